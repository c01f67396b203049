// Interface of this daemon's console for the admin interface. Types only.

import type { AdminConsoleSession, AdminPasskey } from '../../contract/admin/console.ts'
import type { AdminRole } from '../../contract/admin/roles.ts'

/** A person who may use the console. */
export type ConsolePerson = { readonly uid: number; readonly actor: string; readonly role: AdminRole }

export type ConsoleControl = {
  /** Makes a new link for each name of the console, the best first. */
  readonly makeLink: (person: ConsolePerson) => {
    readonly urls: readonly [string, ...string[]]
    readonly endsAtMs: number
  }
  readonly sessions: () => readonly AdminConsoleSession[]
  /**
   * Ends the sessions of an actor and its unopened links; for null, those of all actors. Returns the number of
   * sessions.
   */
  readonly close: (actor: string | null) => number
  readonly passkeys: () => readonly Omit<AdminPasskey, 'own'>[]
  /** Removes a passkey and ends its sessions. Returns false if there is none with this id. */
  readonly removePasskey: (id: string) => boolean
}
