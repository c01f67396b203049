// Configuration of who may ask the admin interface besides root, of the console and of the metrics. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { Count, Entry, PathOrNone, Section } from './fields.ts'

/** The rights of each: contract/admin/roles.ts. */
const ADMIN_ROLES = ['admin', 'operator', 'auditor'] as const

const accountPattern = '[a-z_][a-z0-9_.-]{0,31}'
const accountAllowed =
  'a name of this host: 1 to 32 lowercase letters, digits, dots, hyphens and underscores, no digit first'

const Role = (description: string) =>
  Type.Union(
    ADMIN_ROLES.map(role => Type.Literal(role)),
    { description },
  )

const Administrator = Entry({
  user: Type.String({
    pattern: `^${accountPattern}$`,
    allowed: accountAllowed,
    description: 'A user of this host. Commands are recorded under this name.',
  }),
  role: Role(
    '"admin" may do everything; "operator" shows, suspends, revokes, cancels, deletes instances and updates the gateway, but gives nothing to anybody; "auditor" shows states, usage and the record of commands.',
  ),
})

export const OperatorConfig = Section({
  admins: Type.Array(Administrator, {
    default: [],
    maxItems: 64,
    description:
      'Users who may ask admin.sock in the state directory, each with a role. Root may always, and alone where this is empty.',
  }),
  monitor_group: Type.String({
    default: '',
    pattern: `^$|^${accountPattern}$`,
    allowed: `"" or ${accountAllowed}`,
    description:
      'Group whose members may ask monitor.sock in the state directory, which only shows states: no usage, consoles, record of commands or secrets. "" for no such socket.',
  }),
  events_days: Count(
    [400, 30, 3650],
    'How long the record of commands is kept (`strongroom events`): of its newest 100,000 commands and 10,000 refusals.',
  ),
})

const visible = '[^\\u0000-\\u001f\\u007f-\\u009f]'

export const OidcConfig = Section({
  issuer: Type.String({
    default: '',
    pattern: '^$|^https://[^\\s?#]+$',
    // The record of a sign-in has room for it beside subject and address.
    maxLength: 512,
    allowed: '"" or an https URL without query and fragment',
    description:
      'Identity provider (OpenID Connect) at which people sign in to the console, beside passkeys and links: its issuer, exactly as its discovery document has it. "" for none.',
  }),
  name: Type.String({
    default: '',
    pattern: `^${visible}*$`,
    maxLength: 64,
    allowed: '0 to 64 visible characters',
    description: 'What the sign-in page calls it. "" for the host in `issuer`.',
  }),
  client_id: Type.String({
    default: '',
    pattern: '^[\\x21-\\x7e]*$',
    maxLength: 256,
    allowed: '0 to 256 visible ASCII characters',
    description: 'Id of this console at the provider, where it is registered as a confidential web client.',
  }),
  client_secret_file: PathOrNone('File with the secret of that client, read again for each sign-in.'),
  ca_file: PathOrNone(
    'File with the PEM certificates of the authorities to trust for the provider. "" for those of the system.',
  ),
  scopes: Type.Array(
    Type.String({ pattern: '^[\\x21\\x23-\\x5b\\x5d-\\x7e]{1,128}$', allowed: 'a scope (RFC 6749 3.3)' }),
    {
      default: ['openid', 'email'],
      minItems: 1,
      maxItems: 16,
      uniqueItems: true,
      description: 'Scopes of the request. Some providers send groups only for a scope of their own, such as "groups".',
    },
  ),
  groups_claim: Type.String({
    default: 'groups',
    minLength: 1,
    maxLength: 256,
    description:
      "Claim of the ID token with the person's groups, a text or a list of texts. The name is compared as it is: a dot leads into no object.",
  }),
  groups: Type.Array(
    Entry({
      group: Type.String({
        minLength: 1,
        maxLength: 512,
        description:
          'A group, exactly as the claim has it; its name must be unique at the provider. Keycloak: the full path, such as "/strongroom-admins". Entra ID sends object ids.',
      }),
      role: Role(
        'The role of its members, as in [[operator.admins]]. A person in several groups gets the highest role.',
      ),
    }),
    {
      default: [],
      maxItems: 64,
      description: 'Groups whose members may sign in, each with a role, read at each sign-in.',
    },
  ),
  email_domains: Type.Array(
    Type.String({
      pattern: '^(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$',
      allowed: 'a DNS name in lowercase',
    }),
    {
      default: [],
      maxItems: 16,
      uniqueItems: true,
      description:
        'Domains of e-mail addresses that may sign in; the provider must then send `email`, and `email_verified` as true. [] for no such condition.',
    },
  ),
  contact: Type.String({
    default: '',
    pattern: `^${visible}*$`,
    maxLength: 200,
    allowed: '0 to 200 visible characters',
    description:
      'The contact for people without a role, such as "it@example.org". "" for an administrator of this host.',
  }),
})
export type OidcConfig = Static<typeof OidcConfig>

export const ConsoleConfig = Section({
  names: Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
    default: [],
    maxItems: 16,
    description:
      'DNS names and IP addresses by which browsers reach the console besides localhost, 127.0.0.1, [::1] and the address in `listen.console`. A request that names another host is refused. Passkeys belong to a name: an IP address has none.',
  }),
  session_idle_minutes: Count([30, 1, 1440], 'A session of the console ends after this time without a request.'),
  session_hours: Count([12, 1, 168], 'A session of the console ends after this time, whatever happens in it.'),
  oidc: OidcConfig,
})

export const MetricsConfig = Section({
  token_file: PathOrNone(
    'File with the token that a scrape of `listen.metrics` must send as a Bearer token: 16 characters or more, read again for each scrape. "" for `metrics-token` in the state directory, which the daemon makes.',
  ),
})
