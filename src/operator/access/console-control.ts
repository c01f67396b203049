// The console of this daemon, as the admin interface asks it. Types only.

import type { AdminRole } from '../../contract/admin/roles.ts'

/** A person for whom the console opens. */
export type ConsolePerson = { readonly uid: number; readonly actor: string; readonly role: AdminRole }

/** The console of this daemon. */
export type ConsoleControl = {
  /** A new link by each name of the console, the best first. */
  readonly makeLink: (person: ConsolePerson) => {
    readonly urls: readonly [string, ...string[]]
    readonly endsAtMs: number
  }
}
