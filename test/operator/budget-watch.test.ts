// Alerts of budgets: the journal, the status and the metric.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { BudgetWatch } from '../../src/operator/budget-watch.ts'
import { insertGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { setOrganizationBudget } from '../../src/store/directory/organization.query.ts'
import { prepareUsageAppend } from '../../src/store/directory/usage/usage.query.ts'
import { listEvents } from '../../src/store/ledger/event.query.ts'
import { openLedger } from '../rigs/gateway/keys.ts'
import { usageRow } from '../rigs/gateway/usage-rows.ts'

// Goal: once 80 % of a budget is spent, of a key or an organization, in a month, a week or a day, the journal has one
// entry for it, over restarts too, and the status and the metric say so as long as it holds.
test('one alert for each budget and period', async () => {
  using ledger = openLedger()
  const { store, log } = ledger
  const { db } = store.directory
  const clock = createManualClock()
  const at = (text: string) => Date.parse(text)
  clock.set(at('2026-11-25T12:00Z'))
  const none = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
  const short = { day: { nanoUsd: null, tokens: 100 }, week: { nanoUsd: 1_000, tokens: null } }
  const key = { organizationId: 'o1', instanceId: null, secretSha256: new Uint8Array(32), nowMs: 1, ...none }
  insertGatewayKey(db, { ...key, prefix: 'watched0', shortBudgets: short })
  insertGatewayKey(db, { ...key, prefix: 'closed00', budgetTokens: 0 })
  setOrganizationBudget(db, 'acme', { budgetNanoUsd: null, budgetTokens: 1_000 })
  const append = prepareUsageAppend(db)
  let rows = 0
  const spend = (tokens: number) => {
    rows += 1
    const amounts = { promptTokens: tokens, completionTokens: 0, costNanoUsd: tokens }
    append([usageRow({ id: `r${rows}`, keyPrefix: 'watched0', atMs: clock.nowMs(), ...amounts })])
  }
  const look = async (watch: BudgetWatch) => {
    const stopping = new AbortController()
    const running = watch.run(stopping.signal)
    await clock.sleepers(1)
    stopping.abort()
    await running
  }
  const journal = () =>
    listEvents(store.ledger.db, { limit: 100 })
      .filter(event => event.kind === 'budget.near')
      .map(({ subject, detail }) => [subject, detail.key, detail.period, detail.kind, detail.percent])
      .reverse()
  const watch = new BudgetWatch({ store, clock, log })
  spend(79)
  await look(watch)
  expect([watch.near(), journal()]).toEqual([[], []])
  spend(1)
  await look(watch)
  await look(watch)
  const day = { organization: 'acme', key: 'watched0', period: '2026-11-25', kind: 'tokens', percent: 80 } as const
  expect(watch.near()).toEqual([day])
  expect(watch.render()).toContain('\nstrongroom_budgets_near 1\n')
  expect(journal()).toEqual([['o1', 'watched0', '2026-11-25', 'tokens', 80]])
  clock.set(at('2026-11-26T12:00Z'))
  spend(730)
  // A daemon that has just started.
  const next = new BudgetWatch({ store, clock, log })
  await look(next)
  await look(new BudgetWatch({ store, clock, log }))
  expect(next.near()).toEqual([
    { ...day, period: '2026-11-26', percent: 730 },
    { organization: 'acme', key: null, period: '2026-11', kind: 'tokens', percent: 81 },
    { organization: 'acme', key: 'watched0', period: 'the week of 2026-11-23', kind: 'usd', percent: 81 },
  ])
  expect(journal().slice(1)).toEqual([
    ['o1', null, '2026-11', 'tokens', 81],
    ['o1', 'watched0', '2026-11-26', 'tokens', 730],
    ['o1', 'watched0', 'the week of 2026-11-23', 'usd', 81],
  ])
})

// Goal: however many budgets there are, a look leaves the thread to requests, and a restart repeats no alert.
test('1,000 keys with budgets of a day and a week', async () => {
  using ledger = openLedger()
  const { store, log } = ledger
  const { db } = store.directory
  store.ledger.db.run('PRAGMA synchronous = OFF')
  const clock = createManualClock()
  clock.set(Date.parse('2026-11-29T12:00Z'))
  const none = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
  const budget = { nanoUsd: null, tokens: 1 }
  const key = { organizationId: 'o1', instanceId: null, secretSha256: new Uint8Array(32), nowMs: 1, ...none }
  const append = prepareUsageAppend(db)
  store.directory.transact(() => {
    for (let number = 0; number < 1_000; number += 1) {
      const prefix = `k${number}`
      insertGatewayKey(db, { ...key, prefix, shortBudgets: { day: budget, week: budget } })
      append(
        Array.from({ length: 21 }, (_, at) => {
          const atMs = clock.nowMs() - Math.floor(at / 3) * 86_400_000
          return usageRow({ id: `${number} ${at}`, keyPrefix: prefix, model: `m${at % 3}`, atMs })
        }),
      )
    }
  })
  const look = async () => {
    const watch = new BudgetWatch({ store, clock, log })
    const stopping = new AbortController()
    let longestMs = 0
    let sinceMs = performance.now()
    const beat = setInterval(() => {
      longestMs = Math.max(longestMs, performance.now() - sinceMs)
      sinceMs = performance.now()
    }, 1)
    const running = watch.run(stopping.signal)
    await clock.sleepers(1)
    clearInterval(beat)
    longestMs = Math.max(longestMs, performance.now() - sinceMs)
    stopping.abort()
    await running
    return { longestMs, near: watch.near().length }
  }
  const alerts = () => listEvents(store.ledger.db, { limit: 10_000 }).length
  const first = await look()
  expect([first.near, alerts()]).toEqual([100, 2_000])
  const again = await look()
  expect([again.near, alerts()]).toEqual([100, 2_000])
  expect(Math.max(first.longestMs, again.longestMs)).toBeLessThan(500)
}, 60_000)
