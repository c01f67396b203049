// Texts that change with what the console's pages show, by topic. Effects: reads the database where it was written to.

import type { Clock } from '../../base/clock.ts'
import type { Marks } from '../../console/live/changes.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { Store } from '../../store/db.ts'
import { directoryMarks } from '../../store/directory/live.query.ts'
import { ledgerMarks, writeMark } from '../../store/ledger/live.query.ts'

export type MarksDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** Null if the daemon is about to start. */
  readonly status: () => AdminStatus | null
}

/** How often the status is looked at without a write to the database: warnings of the firewall are no records. */
const statusMs = 3_000

export function createMarks({ store, clock, status }: MarksDeps): () => Marks {
  const written = writeMark(store.ledger.db)
  const inDirectory = directoryMarks(store.directory.db)
  const inLedger = ledgerMarks(store.ledger.db)
  let seen: { written: string; marks: Omit<Marks, 'status' | 'gateway'>; gateway: string } | null = null
  let state = { atMs: Number.NEGATIVE_INFINITY, status: '', gateway: '' }
  return () => {
    const mark = written()
    if (seen?.written !== mark) {
      const { organizations, keys, instances, builds, usage } = inDirectory()
      const { commands, vms, gatewayVms } = inLedger()
      const marks = {
        organizations: `${organizations} ${commands}`,
        keys: `${keys} ${commands}`,
        instances: `${instances} ${vms} ${commands}`,
        builds: `${builds} ${vms}`,
        events: commands,
      }
      seen = { written: mark, marks, gateway: `${gatewayVms} ${usage}` }
    }
    if (clock.monotonicMs() - state.atMs >= statusMs) state = { atMs: clock.monotonicMs(), ...stateIn(status()) }
    return { ...seen.marks, gateway: `${seen.gateway} ${state.gateway}`, status: state.status }
  }
}

/** Without what changes by itself. */
function stateIn(status: AdminStatus | null): { readonly status: string; readonly gateway: string } {
  if (status === null) return { status: '', gateway: '' }
  const { clock: _now, gateway, ...rest } = status
  return { status: JSON.stringify(rest), gateway: JSON.stringify(gateway) }
}
