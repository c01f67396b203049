// The console in the admin interface: links that log a person in. Effects: the console's state, through functions.

import { Elysia } from 'elysia'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminConsoleLink, AdminConsoleLinkAsk } from '../contract/admin/console.ts'
import { RIGHTS_OF } from '../contract/admin/roles.ts'
import type { Known } from './access/caller.ts'
import type { ConsolePerson } from './access/console-control.ts'
import type { AdminDeps, ReadBody } from './deps.ts'

type Deps = Pick<AdminDeps, 'administrators' | 'console'> & { readonly knownOf: (request: Request) => Known }

export function consoleRoutes(deps: Deps, readBody: ReadBody) {
  return new Elysia({ normalize: false }).post(
    '/console/links',
    ({ body, request }) => makeLink(deps, deps.knownOf(request), body),
    { parse: readBody, body: AdminConsoleLinkAsk, response: AdminConsoleLink },
  )
}

/** Faults: conflict (there is no console), forbidden, invalid_request. */
function makeLink({ administrators, console }: Deps, by: Known, asked: AdminConsoleLinkAsk): AdminConsoleLink {
  if (console === null) {
    throw new Fault(
      'conflict',
      'the console is off: set listen.console, such as "127.0.0.1:8444", and start the daemon again',
      {
        param: 'listen.console',
      },
    )
  }
  if (by.socket === 'console') {
    throw new Fault(
      'forbidden',
      'a link is made on the host: strongroom console open; a session of the console makes none',
    )
  }
  const { urls, endsAtMs } = console.makeLink(personOf(by, asked, administrators))
  const { actor, role } = personOf(by, asked, administrators)
  const [url, ...others] = urls
  return { url, others, actor, role, expires_at: iso(endsAtMs) }
}

function personOf(
  by: Known,
  { as, role: asked }: AdminConsoleLinkAsk,
  administrators: Deps['administrators'],
): ConsolePerson {
  const own = by.role
  if (own === null || own === 'monitor') throw new Fault('forbidden', `${by.actor} has no role at the console`)
  const isSelf = as === undefined || as === by.actor
  if (!isSelf && own !== 'admin') {
    throw new Fault('forbidden', `${by.actor} may open the console as itself alone, being ${own}`, { param: 'as' })
  }
  const named = administrators.find(({ user }) => user === as)
  if (!isSelf && named === undefined) {
    throw new Fault(
      'invalid_request',
      `${as} is no administrator: add the user to [[operator.admins]] in the configuration`,
      {
        param: 'as',
      },
    )
  }
  const person =
    isSelf || named === undefined
      ? { uid: by.uid, actor: by.actor, role: own }
      : { uid: named.uid, actor: named.user, role: named.role }
  const role = asked ?? person.role
  const rights: readonly string[] = RIGHTS_OF[person.role]
  if (!RIGHTS_OF[role].every(right => rights.includes(right))) {
    throw new Fault('forbidden', `${person.actor} is ${person.role} and gets no session as ${role}`, { param: 'role' })
  }
  return { ...person, role }
}
