// The console: links to log in, sessions and passkeys, as the admin interface and the console's own pages have them.
// Pure.

import { OneOf } from '../check.ts'
import { Closed, OrNull } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { ADMIN_ROLES } from './roles.ts'

const Time = Type.String({ description: 'ISO 8601 UTC' })
const Role = OneOf(ADMIN_ROLES)
/** `oidc:` and a subject of the identity provider. */
export const actorCharsMax = 260
/** `oidc`: at the identity provider. */
const LOG_INS = ['link', 'passkey', 'oidc'] as const

/** Body of POST /console/links. By default the link is for the caller itself, with its own role. */
export const AdminConsoleLinkAsk = Closed({
  as: Type.Optional(Type.String({ minLength: 1, maxLength: actorCharsMax, description: 'An administrator, or root.' })),
  role: Type.Optional(Role),
})
export type AdminConsoleLinkAsk = Static<typeof AdminConsoleLinkAsk>

/** The only response that holds the link. */
export const AdminConsoleLink = Closed({
  /** Opens the console and logs one browser in, once. */
  url: Type.String(),
  /** The same by the console's other names. */
  others: Type.Array(Type.String()),
  actor: Type.String(),
  role: Role,
  expires_at: Time,
})
export type AdminConsoleLink = Static<typeof AdminConsoleLink>

/** A passkey of the console, without its key. */
export const AdminPasskey = Closed({
  id: Type.String({ description: 'Credential id, base64url' }),
  actor: Type.String(),
  /** The highest that a session by it gets. */
  role: Role,
  name: Type.String(),
  /** The name of the console that it belongs to. */
  rp_id: Type.String(),
  created_at: Time,
  last_used_at: OrNull(Time),
  /** Whether it is the caller's own. */
  own: Type.Boolean(),
})
export type AdminPasskey = Static<typeof AdminPasskey>
/** The oldest first. */
export const AdminPasskeyList = Closed({ passkeys: Type.Array(AdminPasskey) })

export const AdminConsoleSession = Closed({
  id: Type.String(),
  actor: Type.String(),
  role: Role,
  by: OneOf(LOG_INS),
  began_at: Time,
  ends_at: Time,
})
export type AdminConsoleSession = Static<typeof AdminConsoleSession>
export const AdminConsoleSessionList = Closed({ sessions: Type.Array(AdminConsoleSession) })

/** Body of POST /console/close: whose sessions end. By default the caller's own; with `all`, everyone's. */
export const AdminConsoleCloseAsk = Closed({
  as: Type.Optional(Type.String({ minLength: 1, maxLength: actorCharsMax })),
  all: Type.Optional(Type.Boolean()),
})
export type AdminConsoleCloseAsk = Static<typeof AdminConsoleCloseAsk>
export const AdminConsoleClosed = Closed({ sessions: Type.Integer({ minimum: 0 }) })

/** Response to GET /api/sign-in of the console, also without a session. */
export const SignInDocument = Closed({
  /** The identity provider; null if there is none. */
  oidc: OrNull(Closed({ name: Type.String() })),
})
export type SignInDocument = Static<typeof SignInDocument>

/** Response to POST /api/session/oidc/begin of the console. */
export const OidcBegun = Closed({
  /** The address at the provider to which the browser goes. */
  url: Type.String(),
})
export type OidcBegun = Static<typeof OidcBegun>

/** Response to a log-in, and GET /api/session of the console. */
export const SessionDocument = Closed({
  actor: Type.String(),
  role: Role,
  by: OneOf(LOG_INS),
  began_at: Time,
  ends_at: Time,
  /** The session ends after this time without a request. */
  idle_s: Type.Integer({ minimum: 1 }),
  host_id: Type.String(),
  version: Type.String(),
  /** Which services this host has, for tenants. */
  services: Closed({ instances: Type.Boolean(), inference: Type.Boolean(), builds: Type.Boolean() }),
  /** Whether this host is in a fleet, so that there are hosts to show. */
  fleet: Type.Boolean(),
  passkeys: Closed({
    /** The name that a passkey made here belongs to; null if none can be made here. */
    rp_id: OrNull(Type.String()),
    /** Why not. */
    why: OrNull(Type.String()),
  }),
  /** Position in the stream of changes: the stream begins with the changes after it (`since`). Null if unknown. */
  cursor: OrNull(Type.String({ maxLength: 256 })),
})
export type SessionDocument = Static<typeof SessionDocument>
