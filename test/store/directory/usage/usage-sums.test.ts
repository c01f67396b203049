// The sums by month and by day that appends to the ledger keep, beside what SQL counts from its rows. Real SQLite.

import { expect, test } from 'bun:test'
import { createDraw } from '../../../../scripts/rigs/draw.ts'
import { prepareRaw } from '../../../../src/store/db.ts'
import { insertOrganization } from '../../../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../../../src/store/directory/usage/usage.query.ts'
import type { Usage } from '../../../../src/store/directory/usage/usage.table.ts'
import { openLedger } from '../../../rigs/gateway/keys.ts'
import { usageRow } from '../../../rigs/gateway/usage-rows.ts'

const counted = `count(*) AS requests, sum(prompt_tokens) AS prompt, sum(completion_tokens) AS completion,
  sum(cost_nano_usd) AS cost`
const kept = 'requests, prompt_tokens AS prompt, completion_tokens AS completion, cost_nano_usd AS cost'
const monthOfRow = "strftime('%Y-%m', at_ms / 1000, 'unixepoch')"
const dayOfRow = "strftime('%Y-%m-%d', at_ms / 1000, 'unixepoch')"
const isLate = 'at_ms % 86400000 >= (SELECT created_at_ms % 86400000 FROM organizations WHERE id = organization_id)'

/** For each kind of sum: as counted from the rows, and as kept. */
const QUERIES = {
  months: [
    `SELECT organization_id, ${monthOfRow} AS month, key_prefix, ${counted} FROM usage GROUP BY 1, 2, 3
     UNION ALL SELECT organization_id, ${monthOfRow}, '', ${counted} FROM usage GROUP BY 1, 2 ORDER BY 1, 2, 3`,
    `SELECT organization_id, month, key_prefix, ${kept} FROM usage_months ORDER BY 1, 2, 3`,
  ],
  days: [
    `SELECT organization_id, key_prefix, ${dayOfRow} AS day, model, ${counted},
       sum(iif(${isLate}, cost_nano_usd, 0)) AS late FROM usage GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4`,
    `SELECT organization_id, key_prefix, day, model, ${kept}, late_cost_nano_usd AS late FROM usage_days
     ORDER BY 1, 2, 3, 4`,
  ],
} as const

// Goal: whatever batches come, with rows of before and the same row twice in them, each row counts once.
test('sums of the ledger', () => {
  const seed = Number(process.env.STRONGROOM_SUMS_SEED ?? crypto.getRandomValues(new Uint32Array(1))[0])
  const draw = createDraw(seed)
  using ledger = openLedger()
  const { db, transact } = ledger.store
  insertOrganization(db, { id: 'o3', slug: 'late', nowMs: Date.parse('2026-01-31T18:30Z') })
  const append = prepareUsageAppend(db)
  const ids = new Set<string>()
  const drawn = (): Usage =>
    usageRow({
      id: `${draw(4_000)}`,
      // Some at the very time of day at which billing periods of o3 begin, or a millisecond before.
      atMs: Date.parse('2026-11-29T00:30Z') + draw(4 * 24) * 3_600_000 + (draw(2) === 0 ? -draw(2) : draw(3_600_000)),
      organizationId: `o${1 + draw(3)}`,
      keyPrefix: `k${draw(3)}`,
      model: ['tiny', 'big', 'o1\nk1'][draw(3)] ?? '',
      promptTokens: draw(100),
      completionTokens: draw(10),
      costNanoUsd: draw(2) * 3_000_000_000 + draw(1_000),
    })
  for (let batch = 0; batch < 60; batch += 1) {
    const rows = Array.from({ length: draw(120) }, drawn)
    const before = ids.size
    for (const { id } of rows) ids.add(id)
    expect([seed, transact(() => append(rows))]).toEqual([seed, ids.size - before])
  }
  for (const [fromRows, fromSums] of Object.values(QUERIES)) {
    const expected = prepareRaw<Record<string, unknown>>(db, fromRows).all()
    expect(expected.length).toBeGreaterThan(20)
    expect([seed, prepareRaw<Record<string, unknown>>(db, fromSums).all()]).toEqual([seed, expected])
  }
})

// Goal: a batch that the store refuses leaves no sum behind.
test('a batch with a bad row', () => {
  using ledger = openLedger()
  const { db, transact } = ledger.store
  const append = prepareUsageAppend(db)
  const rows = [usageRow({ id: '1' }), usageRow({ id: '2', organizationId: 'nobody' })]
  expect(() => transact(() => append(rows))).toThrow()
  for (const [, fromSums] of Object.values(QUERIES)) expect(prepareRaw(db, fromSums).all()).toEqual([])
})
