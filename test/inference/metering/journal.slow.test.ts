// The usage journal of a process that is killed, and on a disk without room.

import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { UsageJournal } from '../../../src/inference/metering/journal/journal.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { callerOf, type Ledger, openLedger } from '../../rigs/gateway/keys.ts'

const period = { startMs: 0, endMs: 10_000 }
const program = new URL('../../rigs/gateway/journal-program.ts', import.meta.url).pathname

/** Runs the program until it has written some ids, kills it, and returns all that it wrote. */
async function idsOfKilled({ dir }: Ledger, first: number, idsMin: number): Promise<string[]> {
  const child = Bun.spawn([process.execPath, program, dir, String(first)], { stdout: 'pipe', stderr: 'inherit' })
  let text = ''
  const decoder = new TextDecoder()
  for await (const bytes of child.stdout) {
    text += decoder.decode(bytes, { stream: true })
    if (text.split('\n').length > idsMin) child.kill('SIGKILL')
  }
  await child.exited
  // The last line may be cut.
  return text.split('\n').slice(0, -1)
}

test('a kill loses no row that was recorded, and none counts twice', async () => {
  // Goal: after kills soon after the first row and in the middle of batches, and one more start, the ledger has every
  // row whose recording had ended, and its sums are those of its rows.
  using ledger = openLedger()
  const written: string[] = []
  for (const [turn, idsMin] of [1, 50, 400, 2_500, 1, 3_000].entries()) {
    written.push(...(await idsOfKilled(ledger, turn * 1_000_000, idsMin)))
  }
  const { store, clock, log } = ledger
  const journal = new UsageJournal(join(ledger.dir, 'usage-journal.bin'))
  const metering = new Metering({ store, clock, log, cost: () => 5n, journal })
  const { requests, promptTokens, costNanoUsd } = metering.usage('o1', period)
  const has = store.db.all<{ id: string }>('SELECT id FROM usage').map(({ id }) => id)
  const ids = new Set(has)
  expect(written.filter(id => !ids.has(id))).toEqual([])
  expect(written.length).toBeGreaterThan(5_000)
  // The killed process may have recorded a row without writing its id.
  expect(requests).toBeGreaterThanOrEqual(written.length)
  expect([promptTokens, costNanoUsd]).toEqual([BigInt(requests) * 10n, BigInt(requests) * 5n])
  expect(metering.spent(callerOf(), '1970-01').key).toMatchObject({ requests, costNanoUsd: requests * 5 })
  await metering.stop()
}, 300_000)
