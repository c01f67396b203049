// A person at the console: identity on this host, and role. Pure.

import { type AdminRole, RIGHTS_OF } from '../contract/admin/roles.ts'

export type Person = {
  /** The person's user id on the host; -1 for a person of the identity provider. */
  readonly uid: number
  /** Name in the record of commands: `root`, the name of an administrator, or `oidc:` and a subject. */
  readonly actor: string
  readonly role: AdminRole
}

/** Reports whether a role has all rights of another one; true for the same role. */
export function hasRightsOf(role: AdminRole, other: AdminRole): boolean {
  const rights: readonly string[] = RIGHTS_OF[role]
  return RIGHTS_OF[other].every(right => rights.includes(right))
}

/** Returns the role with fewer rights. */
export function lowerRole(a: AdminRole, b: AdminRole): AdminRole {
  return hasRightsOf(a, b) ? b : a
}
