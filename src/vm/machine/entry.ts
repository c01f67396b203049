// What a daemon knows of a VM beside its row in the ledger; a restart may forget it all. Effects: closes connections.

import { present } from '../../base/assert.ts'
import type { Hello } from '../../contract/vm/agent.ts'
import type { VmState } from '../../store/ledger/vm.table.ts'
import type { VmLink } from '../link.driver.ts'
import type { Pulse } from './pulse.ts'

export type Entry = {
  link: VmLink | null
  state: VmState | null
  /** When this daemon first saw the VM in its present state, monotonic. */
  sinceMs: number
  /** The agent's hello that listeners know of. */
  announcedHello: Hello | null
  /** Of a VM that runs. */
  pulse: Pulse | null
  /** The parts in which its launch was not what was expected, in words. */
  mismatch: string | null
  /** Whether this daemon has had the firewall let it through, or drop it again; null: neither yet. */
  opened: boolean | null
}

export function newEntry(): Entry {
  return { link: null, state: null, sinceMs: 0, announcedHello: null, pulse: null, mismatch: null, opened: null }
}

export function linkOf(entry: Entry): VmLink {
  return present(entry.link, 'a VM is attached before it is spoken to')
}

export function closeLink(entry: Entry): void {
  entry.link?.close()
  entry.link = null
}
