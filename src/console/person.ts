// A person at the console: who it is on this host, and with which role. Pure.

import { type AdminRole, RIGHTS_OF } from '../contract/admin/roles.ts'

export type Person = {
  /** The user of the host behind the name. */
  readonly uid: number
  /** As in the record of commands: `root`, or the name of an administrator. */
  readonly actor: string
  readonly role: AdminRole
}

/** Whether a role has all rights of another one, itself included. */
export function hasRightsOf(role: AdminRole, other: AdminRole): boolean {
  const rights: readonly string[] = RIGHTS_OF[role]
  return RIGHTS_OF[other].every(right => rights.includes(right))
}

/** The one with fewer rights. */
export function lowerRole(a: AdminRole, b: AdminRole): AdminRole {
  return hasRightsOf(a, b) ? b : a
}
