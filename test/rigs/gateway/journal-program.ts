// A daemon's ledger with its thread and journal: books rows without an end and writes each id once it is recorded. Run
// by tests, which kill it. Arguments: the state directory and the first number of its ids.

import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { UsageJournal } from '../../../src/inference/metering/journal/journal.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { startLedgerWriter } from '../../../src/inference/metering/ledger-writer.ts'
import { openStore } from '../../../src/store/db.ts'
import { callerOf } from './keys.ts'

const [dir = '', first = '0'] = process.argv.slice(2)
const clock = systemClock
const log = createLogger({ level: 'warn', sink: line => process.stderr.write(`${line}\n`), nowMs: clock.nowMs })
const path = join(dir, 'strongroom.db')
const store = openStore(path)
const journal = new UsageJournal(join(dir, 'usage-journal.bin'))
const writer = startLedgerWriter({ path, journal: journal.path, clock, log })
const metering = new Metering({ store: store.directory, clock, log, cost: () => 5n, writer, journal })
let next = Number(first)
setInterval(() => {
  for (let i = 0; i < 20; i += 1) {
    const id = `row-${next}`
    next += 1
    metering.record({
      id,
      atMs: 1_000,
      caller: callerOf(),
      model: 'tiny',
      upstream: 'local',
      tokens: { prompt: 10, completion: 20 },
      tokensSource: 'reported',
      outcome: 'completed',
      // Rows take one slot or several.
      labels: { endUser: 'ä'.repeat(next % 257), tags: null },
    })
    process.stdout.write(`${id}\n`)
  }
}, 1)
