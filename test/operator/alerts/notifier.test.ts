// Goal: changes go out together, once, in order; a receiver that fails gets them later, and a restart neither loses nor
// repeats one.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import type { AlertMessage } from '../../../src/contract/admin/alerts.ts'
import type { HostProblem } from '../../../src/contract/admin/problems.ts'
import { Notifier } from '../../../src/operator/alerts/notifier.ts'
import { ProblemJournal } from '../../../src/operator/problems/journal.ts'
import { formerProblem } from '../../../src/operator/problems/watch.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { appendEvent } from '../../../src/store/ledger/event.query.ts'

const startMs = Date.parse('2026-11-26T12:00:00.000Z')
const tickMs = 5_000
const hourMs = 3_600_000

let store: Store
let clock: ReturnType<typeof createManualClock>
let messages: AlertMessage[]
let refusal: string | null
let present: HostProblem[]
beforeEach(() => {
  store = openStore(':memory:')
  clock = createManualClock(startMs)
  messages = []
  refusal = null
  present = []
})
afterEach(() => store.close())

const problem = (name: HostProblem['name'], change: Partial<HostProblem> = {}): HostProblem => ({
  ...{ name, subject: null, severity: 'warning', since: new Date(clock.nowMs()).toISOString() },
  ...{ detail: `${name} is wrong`, affects: 'clients', remedy: 'mend it', ...change },
})

function daemon() {
  const journal = new ProblemJournal(store)
  const notifier = new Notifier({
    sender: {
      receiver: 'webhook',
      target: 'https://hook.example',
      send: async message => {
        if (refusal !== null) throw new Error(refusal)
        messages.push(message)
      },
    },
    rules: { severity: 'warning', afterMs: 120_000, groupMs: 30_000, repeatMs: 24 * hourMs },
    host: { id: 'h', domain: 'a.example', version: '1' },
    present: () => present,
    notifiedBefore: () => [...journal.notified('webhook').values()].map(formerProblem),
    ...{ clock, random: systemRandom, log: silentLogger },
    onEvent: (kind, detail) => appendEvent(store.ledger.db, { nowMs: clock.nowMs(), kind, subject: '', detail }),
  })
  const signal = new AbortController().signal
  return {
    notifier,
    pass: async (ms: number) => {
      for (let passed = 0; passed < ms; passed += tickMs) {
        await notifier.tick(signal)
        await clock.elapse(tickMs)
      }
    },
  }
}

const words = () =>
  messages.map(({ kind, began, resolved }) =>
    [kind, ...began.map(({ name }) => `+${name}`), ...resolved.map(({ name }) => `-${name}`)].join(' '),
  )

test('goal: what lasts is sent once, with what follows within half a minute; its end too', async () => {
  const { pass } = daemon()
  present = [problem('disk')]
  await pass(125_000)
  expect(words()).toEqual([])
  present = [...present, problem('models', { since: new Date(startMs).toISOString(), severity: 'critical' })]
  await pass(60_000)
  expect(words()).toEqual(['problems +disk +models'])
  expect(messages[0]).toMatchObject({ version: 1, ready: false, open: [{ name: 'disk' }, { name: 'models' }] })
  await pass(10 * 60_000)
  present = present.slice(0, 1)
  await pass(60_000)
  expect(words().slice(1)).toEqual(['problems -models'])
  expect(new Set(messages.map(({ id }) => id)).size).toBe(2)
})

test('goal: what is over within the time is never sent', async () => {
  const { pass } = daemon()
  present = [problem('disk')]
  await pass(100_000)
  present = []
  await pass(600_000)
  expect(words()).toEqual([])
})

test('goal: a critical problem is repeated after a day, a warning is not', async () => {
  const { pass } = daemon()
  present = [problem('disk')]
  await pass(25 * hourMs)
  expect(words()).toEqual(['problems +disk'])
  present = [problem('disk', { severity: 'critical', since: new Date(startMs).toISOString() })]
  await pass(25 * hourMs)
  expect(words().slice(1)).toEqual(['problems +disk', 'reminder'])
})

test('goal: a receiver that fails gets the same message later, less and less often, and is a problem itself', async () => {
  const { pass, notifier } = daemon()
  refusal = 'it answers with status 500'
  present = [problem('disk', { since: new Date(startMs - hourMs).toISOString() })]
  await pass(40_000)
  expect(notifier.problems()).toEqual([])
  await pass(hourMs)
  expect(notifier.problems()).toMatchObject([
    { name: 'alerts', subject: 'webhook', severity: 'warning', sinceMs: startMs + 30_000 },
  ])
  expect(notifier.problems()[0]?.detail).toMatch(
    /has not taken the last ([4-9]|1[0-2]) messages: it answers with status 500/,
  )
  // Its own failure is no message for it.
  present = [...present, problem('alerts', { subject: 'webhook', since: new Date(startMs).toISOString() })]
  refusal = null
  await pass(hourMs)
  expect([words(), notifier.problems()]).toEqual([['problems +disk'], []])
})

test('goal: what began and ended while the receiver failed is told by what is left', async () => {
  const { pass } = daemon()
  refusal = 'no'
  const old = { since: new Date(startMs - hourMs).toISOString() }
  present = [problem('disk', old), problem('models', old)]
  await pass(6 * hourMs)
  present = [problem('disk', old)]
  await pass(6 * hourMs)
  refusal = null
  await pass(2 * hourMs)
  expect(words()).toEqual(['problems +disk'])
})

test('goal: a restart repeats nothing, and the end of what was sent before it is sent after it', async () => {
  present = [problem('disk', { since: new Date(startMs - hourMs).toISOString() }), problem('backup')]
  await daemon().pass(60_000)
  expect(words()).toEqual(['problems +disk'])
  await daemon().pass(60_000)
  await clock.elapse(hourMs)
  const third = daemon()
  await third.pass(60_000)
  expect(words().slice(1)).toEqual(['problems +backup'])
  present = []
  await daemon().pass(60_000)
  expect(words().slice(2)).toEqual(['problems -disk -backup'])
  expect(messages[2]?.resolved[0]).toMatchObject({ name: 'disk', detail: 'disk is wrong' })
})

test('goal: a test is sent at once and changes nothing; its failure has the reason and a remedy', async () => {
  const { notifier, pass } = daemon()
  expect(await notifier.test()).toEqual({ receiver: 'webhook', ok: true, detail: 'https://hook.example', remedy: null })
  refusal = 'no route'
  expect(await notifier.test()).toMatchObject({
    ...{ ok: false, detail: 'https://hook.example: no route' },
    remedy: expect.stringContaining('alerts.webhook_url'),
  })
  await pass(60_000)
  expect(words()).toEqual(['test'])
})
