// In-memory state of a VM beside its ledger row; a restart may lose it. Effects: closes connections.

import { present } from '../../base/assert.ts'
import type { Hello } from '../../contract/vm/agent-responses.ts'
import type { VmState } from '../../store/ledger/vm.table.ts'
import type { VmLink } from '../link.driver.ts'
import type { Pulse } from './pulse.ts'

export type Entry = {
  link: VmLink | null
  state: VmState | null
  /** Monotonic time when this daemon first saw the VM in its current state. */
  sinceMs: number
  /** The agent's hello that listeners have seen. */
  announcedHello: Hello | null
  /** Null if the VM does not run. */
  pulse: Pulse | null
  /** The parts in which its launch differed from the expected one, as text. */
  mismatch: string | null
  /** Whether this daemon made the firewall pass (true) or drop (false) its packets. Null if neither yet. */
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
