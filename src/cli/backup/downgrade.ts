// strongroom downgrade: back to the copy of the database from before an upgrade. Effects: the database, under the lock
// of the state directory; the routing of VMs.

import { join } from 'node:path'
import { iso } from '../../base/clock.ts'
import { noteHostCommand } from '../../host/host-commands.ts'
import { databaseFile } from '../../host/state-files.ts'
import { lockFile } from '../../linux/lock.ts'
import { goBack } from '../../store/way-back.ts'
import { dash, fields } from '../../terminal/render.ts'
import type { Command } from '../operator-run.ts'
import { openVmRouting } from '../vm-routing.ts'

export function addDowngrade(program: Command): void {
  program
    .command('downgrade')
    .description(
      'restore the database from before an upgrade, for this older executable; the service must be stopped. Later records stay only in a file beside it',
    )
    .examples('strongroom downgrade', 'strongroom downgrade --json')
    .runs(async run => {
      using _ = lockFile(join(run.stateDir, 'lock'))
      const { copy, madeAtMs, setAside, kept } = goBack(join(run.stateDir, databaseFile))
      await openVmRouting(run.config, run.hint)
      const since = iso(madeAtMs)
      const facts = { schema: copy.schema, made_at: since, events_kept: kept }
      noteHostCommand(run.stateDir, { operation: 'downgrade', arguments: facts, result: 'ok' }, Date.now())
      await run.result(
        { copy: copy.path, schema: copy.schema, made_at: since, set_aside: setAside, events_kept: kept },
        fields(run.paint, [
          ['put back', copy.path],
          ['schema', String(copy.schema)],
          ['made at', since],
          ['set aside', dash(setAside)],
          ['events kept', kept === null ? 'none: see the log of this command' : String(kept)],
        ]),
      )
      await run.hint(
        `what was recorded since ${since}, but the events, is in the file set aside alone: keys that were revoked since work again, instances created since have no record; systemctl start strongroom`,
      )
    })
}
