// The caller of the admin interface, identified by the ids that the kernel recorded for the connection, or by a session
// of the console. Pure.

import { Fault } from '../../base/fault.ts'
import { type AdminRole, mayDo, operationOf, type Right, type Role, rolesWith } from '../../contract/admin/roles.ts'
import type { Peer } from '../../host/peer.ts'
import type { ConsolePerson } from './console-control.ts'

/** `monitor` is the read-only socket, which grants the same rights to every user. */
export type AdminSocket = 'admin' | 'monitor'

type SocketCaller = Peer & { readonly socket: AdminSocket }

/** A person with a session of the console, which has authenticated them. `uid`: the host's user of that name. */
export type ConsoleCaller = Peer & { readonly socket: 'console'; readonly actor: string; readonly role: AdminRole }

export type Caller = SocketCaller | ConsoleCaller

/** A named administrator of the configuration. */
export type Administrator = { readonly uid: number; readonly user: string; readonly role: AdminRole }

export type IdentifiedCaller = Peer & {
  readonly socket: Caller['socket']
  readonly actor: string
  /** Null for other callers. */
  readonly role: Role | null
}

/** Returns the caller with its role. `ownerUid`: the daemon's user, which is always an administrator, as is root. */
export function knownCaller(
  caller: Caller,
  { administrators, ownerUid }: { readonly administrators: readonly Administrator[]; readonly ownerUid: number },
): IdentifiedCaller {
  if (caller.socket === 'console') return caller
  const named = administrators.find(({ uid }) => uid === caller.uid)
  const isOwner = caller.uid === 0 || caller.uid === ownerUid
  const actor = caller.uid === 0 ? 'root' : (named?.user ?? `uid ${caller.uid}`)
  if (caller.socket === 'monitor') return { ...caller, actor, role: 'monitor' }
  return { ...caller, actor, role: isOwner ? 'admin' : (named?.role ?? null) }
}

/** Returns the person that the configuration assigns to an actor; null if there is none. */
export function personOf(
  actor: string,
  { administrators, ownerUid }: Parameters<typeof knownCaller>[1],
): ConsolePerson | null {
  if (actor === 'root') return { uid: 0, actor, role: 'admin' }
  const named = administrators.find(({ user }) => user === actor)
  // The daemon's own user is always an administrator.
  if (named?.uid === ownerUid || actor === `uid ${ownerUid}`) return { uid: ownerUid, actor, role: 'admin' }
  return named === undefined ? null : { uid: named.uid, actor, role: named.role }
}

/**
 * Returns Fault forbidden, with a text for the caller; null if the operation is allowed. A route without a role is
 * forbidden.
 */
export function refusalOf({ actor, role, uid }: IdentifiedCaller, method: string, route: string): Fault | null {
  const operation = operationOf(method, route)
  if (operation === null) return new Fault('forbidden', `${method} ${route} has no role, so no user may use it`)
  if (role === null) return strangerFault({ actor, uid })
  if (mayDo(role, operation.right)) return null
  return new Fault('forbidden', `${actor} may not use ${operation.name} as ${role}; ${needed(operation.right, role)}`)
}

function needed(right: Right, role: Role): string {
  const roles = `it needs the role ${rolesWith(right)} ([[operator.admins]] in the configuration)`
  return role === 'monitor' ? `this socket only reads, and ${roles} on admin.sock` : roles
}

/** Returns the fault for a connection whose user is not an administrator, before anything of it is read. */
export function strangerFault({ actor, uid }: Pick<IdentifiedCaller, 'actor' | 'uid'>): Fault {
  const who = actor === `uid ${uid}` ? `the user with id ${uid}` : actor
  return new Fault(
    'forbidden',
    `${who} is no administrator here; be root, or let root add the user to [[operator.admins]] in the configuration`,
  )
}
