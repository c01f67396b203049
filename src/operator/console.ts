// The console in the admin interface: links that log a person in, sessions, passkeys. Effects: the console's state,
// through functions.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import {
  AdminConsoleCloseAsk,
  AdminConsoleClosed,
  AdminConsoleLink,
  AdminConsoleLinkAsk,
  AdminConsoleSessionList,
  AdminPasskeyList,
} from '../contract/admin/console.ts'
import { RIGHTS_OF } from '../contract/admin/roles.ts'
import type { IdentifiedCaller } from './access/caller.ts'
import type { ConsoleControl, ConsolePerson } from './access/console-control.ts'
import type { AdminDeps, ReadBody } from './deps.ts'

type Deps = Pick<AdminDeps, 'administrators' | 'console'> & { readonly knownOf: (request: Request) => IdentifiedCaller }

export function consoleRoutes(deps: Deps, readBody: ReadBody) {
  const byId = Type.Object({ id: Type.String({ minLength: 1, maxLength: 1_364 }) })
  const { knownOf } = deps
  return new Elysia({ normalize: false })
    .post('/console/links', ({ body, request }) => makeLink(deps, knownOf(request), body), {
      parse: readBody,
      body: AdminConsoleLinkAsk,
      response: AdminConsoleLink,
    })
    .get('/console/sessions', () => ({ sessions: [...running(deps).sessions()] }), {
      response: AdminConsoleSessionList,
    })
    .post('/console/close', ({ body, request }) => ({ sessions: close(deps, knownOf(request), body) }), {
      parse: readBody,
      body: AdminConsoleCloseAsk,
      response: AdminConsoleClosed,
    })
    .get('/console/passkeys', ({ request }) => passkeysFor(deps, knownOf(request)), { response: AdminPasskeyList })
    .delete('/console/passkeys/:id', ({ params, request }) => remove(deps, knownOf(request), params.id), {
      params: byId,
      response: AdminPasskeyList,
    })
}

/** Returns the console. Throws Fault conflict if there is none. */
function running({ console }: Pick<Deps, 'console'>): ConsoleControl {
  if (console !== null) return console
  throw new Fault(
    'conflict',
    'the console is off: set listen.console, such as "127.0.0.1:8444", and start the daemon again',
    { param: 'listen.console' },
  )
}

/** Makes a link. Faults: conflict (there is no console), forbidden, invalid_request. */
function makeLink(deps: Deps, by: IdentifiedCaller, asked: AdminConsoleLinkAsk): AdminConsoleLink {
  const console = running(deps)
  if (by.socket === 'console') {
    const message = 'a session of the console makes no links; make one on the host: strongroom console open'
    throw new Fault('forbidden', message)
  }
  const person = personOf(by, asked, deps.administrators)
  const { urls, endsAtMs } = console.makeLink(person)
  const [url, ...others] = urls
  return { url, others, actor: person.actor, role: person.role, expires_at: iso(endsAtMs) }
}

function personOf(
  by: IdentifiedCaller,
  { as, role: asked }: AdminConsoleLinkAsk,
  administrators: Deps['administrators'],
): ConsolePerson {
  const person = as === undefined || as === by.actor ? selfOf(by) : otherOf(by, as, administrators)
  const role = asked ?? person.role
  const rights: readonly string[] = RIGHTS_OF[person.role]
  if (!RIGHTS_OF[role].every(right => rights.includes(right))) {
    throw new Fault('forbidden', `${person.actor} is ${person.role} and gets no session as ${role}`, { param: 'role' })
  }
  return { ...person, role }
}

function selfOf({ uid, actor, role }: IdentifiedCaller): ConsolePerson {
  if (role === null || role === 'monitor') throw new Fault('forbidden', `${actor} has no role at the console`)
  return { uid, actor, role }
}

/** Returns the other person that an administrator names. Faults: forbidden, invalid_request. */
function otherOf(by: IdentifiedCaller, as: string, administrators: Deps['administrators']): ConsolePerson {
  if (by.role !== 'admin') {
    throw new Fault('forbidden', `${by.actor} may open the console for itself alone, as ${by.role}`, { param: 'as' })
  }
  const named = administrators.find(({ user }) => user === as)
  if (named === undefined) {
    const message = `${as} is no administrator; add the user to [[operator.admins]] in the configuration`
    throw new Fault('invalid_request', message, { param: 'as' })
  }
  return { uid: named.uid, actor: named.user, role: named.role }
}

/** Ends sessions. Faults: conflict, forbidden. */
function close(deps: Deps, by: IdentifiedCaller, { as, all = false }: AdminConsoleCloseAsk): number {
  const console = running(deps)
  const actor = all ? null : (as ?? by.actor)
  if (actor !== by.actor && by.role !== 'admin') {
    throw new Fault('forbidden', `${by.actor} may end its own sessions alone, as ${by.role}`, {
      param: all ? 'all' : 'as',
    })
  }
  return console.close(actor)
}

function passkeysFor(deps: Deps, by: IdentifiedCaller) {
  return {
    passkeys: running(deps)
      .passkeys()
      .map(passkey => ({ ...passkey, own: passkey.actor === by.actor })),
  }
}

/** Removes a passkey and returns the remaining ones. Faults: conflict, forbidden, not_found. */
function remove(deps: Deps, by: IdentifiedCaller, id: string) {
  const console = running(deps)
  const passkey = console.passkeys().find(known => known.id === id)
  if (passkey === undefined) throw new Fault('not_found', `there is no passkey ${id}`, { param: 'id' })
  if (passkey.actor !== by.actor && by.role !== 'admin') {
    throw new Fault('forbidden', `${by.actor} may remove its own passkeys alone, as ${by.role}`, { param: 'id' })
  }
  // Passkeys are the way in without the provider, so a session from there must not close it.
  if (by.socket === 'console' && by.uid === -1) {
    const message = `${by.actor} signed in at the identity provider and removes no passkeys; on the host: strongroom console passkey remove ${id}`
    throw new Fault('forbidden', message, { param: 'id' })
  }
  console.removePasskey(id)
  return passkeysFor(deps, by)
}
