// Lines of samples in the batches of a report.

import { expect, test } from 'bun:test'
import { SampleLines } from '../../../src/fleet/replica/samples.ts'
import { openStore } from '../../../src/store/db.ts'

// Goal: each line is in one batch at most, also one that stays because its sample is newer.
test('more lines of one table than of another', () => {
  const store = openStore(':memory:')
  const { directory, hostId } = store
  directory.transact(tx => {
    const add = (table: string, prefix: string) =>
      tx.run(`INSERT INTO outbox_held (table_name, row_key) VALUES ('${table}', '{"prefix":"${prefix}"}')`)
    add('key_uses', 'k')
    for (let n = 0; n < 501; n += 1) add('gateway_key_uses', `g${n}`)
  })
  const lines = new SampleLines(directory, hostId)
  const counts: number[][] = []
  for (let batch = lines.next({ isFirst: true }); batch !== null; batch = lines.next({ isFirst: false })) {
    counts.push([batch.key_uses.length, batch.gateway_key_uses.length])
    if (counts.length > 3) break
  }
  expect(counts).toEqual([
    [1, 500],
    [0, 1],
  ])
  expect(lines.next({ isFirst: true })?.key_uses).toHaveLength(1)
  store.close()
})
