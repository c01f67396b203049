// Goal: a problem has one beginning and one end, in the log, the journal and for listeners, also over a restart of the
// daemon and when it comes and goes.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createLogger } from '../../../src/base/log.ts'
import { type FoundProblem, PROBLEMS, problemCountMax } from '../../../src/contract/admin/problems.ts'
import { ProblemJournal } from '../../../src/operator/problems/journal.ts'
import { type ProblemChange, ProblemWatch } from '../../../src/operator/problems/watch.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { appendEvent, listEvents } from '../../../src/store/ledger/event.query.ts'

const startMs = Date.parse('2026-11-26T12:00:00.000Z')
const stepMs = 15_000

let store: Store
let clock: ReturnType<typeof createManualClock>
let lines: { level: string; message: string }[]
beforeEach(() => {
  store = openStore(':memory:')
  clock = createManualClock(startMs)
  lines = []
})
afterEach(() => store.close())

const upstream: FoundProblem = {
  ...{ name: 'upstream', subject: 'u', severity: 'warning', sinceMs: null },
  ...{ detail: 'u: it does not answer', remedy: 'start it' },
}
const disk: FoundProblem = { ...upstream, name: 'disk', subject: null, detail: 'the disk is full' }

function daemon() {
  const log = createLogger({ level: 'info', sink: line => lines.push(JSON.parse(line)), nowMs: clock.nowMs })
  const journal = new ProblemJournal(store)
  const watch = new ProblemWatch({
    ...{ clock, log, openBefore: () => journal.open() },
    onEvent: (kind, detail) => appendEvent(store.ledger.db, { nowMs: clock.nowMs(), kind, subject: '', detail }),
  })
  const changes: ProblemChange[] = []
  watch.onChange(found => changes.push(...found))
  let present: readonly FoundProblem[] = []
  return {
    watch,
    changes,
    /** Looks `times` times. Returns what the last look saw. */
    look: async (found: readonly FoundProblem[], times = 1) => {
      present = found
      for (let time = 0; time < times; time += 1) {
        watch.look(() => watch.dated(present))
        await clock.elapse(stepMs)
      }
      return watch.dated(present)
    },
  }
}

const kinds = () =>
  listEvents(store.ledger.db, { limit: 100 })
    .map(({ kind }) => kind)
    .toReversed()
const words = () => lines.map(({ level, message }) => `${level} ${message}`)
const seen = (changes: readonly ProblemChange[]) => changes.map(({ kind, problem: { name } }) => `${kind} ${name}`)

test('goal: one line and one entry when it begins, and when it ends; in between the list alone has it', async () => {
  const { look, changes } = daemon()
  const [problem] = await look([upstream], 20)
  expect(problem).toEqual({
    ...{ name: 'upstream', subject: 'u', severity: 'warning', since: '2026-11-26T12:00:00.000Z' },
    ...{ detail: 'u: it does not answer', affects: PROBLEMS.upstream, remedy: 'start it' },
  })
  expect(words()).toEqual(['warn problem upstream u: u: it does not answer'])
  expect(await look([], 10)).toEqual([])
  expect(words().slice(1)).toEqual(['info problem upstream u has ended'])
  expect([seen(changes), kinds()]).toEqual([
    ['began upstream', 'ended upstream'],
    ['problem.began', 'problem.ended'],
  ])
})

test('goal: a problem of one look is in the list, and in no log', async () => {
  const { look, changes } = daemon()
  expect(await look([upstream])).toHaveLength(1)
  await look([], 10)
  expect([words(), kinds(), changes]).toEqual([[], [], []])
})

test('goal: what comes and goes within a minute is one problem', async () => {
  const { look, changes } = daemon()
  await look([upstream], 2)
  for (let time = 0; time < 5; time += 1) {
    await look([], 3)
    await look([upstream], 1)
  }
  const [problem] = await look([upstream])
  expect([problem?.since, seen(changes), words().length]).toEqual(['2026-11-26T12:00:00.000Z', ['began upstream'], 1])
})

test('goal: what becomes critical is reported again, and what becomes milder is not', async () => {
  const { look, changes } = daemon()
  await look([disk], 2)
  await look([{ ...disk, severity: 'critical' }], 2)
  await look([disk], 2)
  expect(seen(changes)).toEqual(['began disk', 'worse disk'])
  expect(words()).toEqual(['warn problem disk: the disk is full', 'error problem disk: the disk is full'])
})

test('goal: a restart changes no beginning and repeats no line; what ended meanwhile ends', async () => {
  await daemon().look([upstream, disk], 3)
  await clock.elapse(3_600_000)
  lines = []
  const { look, changes } = daemon()
  const [problem] = await look([upstream], 10)
  expect(problem?.since).toBe('2026-11-26T12:00:00.000Z')
  expect([words(), seen(changes)]).toEqual([['info problem disk has ended'], ['ended disk']])
  expect(changes[0]?.problem).toMatchObject({ name: 'disk', detail: 'the disk is full' })
})

test('goal: the source knows best since when; critical ones and old ones come first; the list has an end', async () => {
  const { look, watch } = daemon()
  const old = { ...upstream, subject: 'old', sinceMs: startMs - 5_000 }
  const list = await look([upstream, old, { ...disk, severity: 'critical' }, { ...disk, detail: 'again' }])
  expect(list.map(({ name, subject, since }) => [name, subject, since])).toEqual([
    ['disk', null, '2026-11-26T12:00:00.000Z'],
    ['upstream', 'old', '2026-11-26T11:59:55.000Z'],
    ['upstream', 'u', '2026-11-26T12:00:00.000Z'],
  ])
  const many = Array.from({ length: 2_000 }, (_, at) => ({ ...upstream, subject: `u${at}` }))
  expect(watch.dated([...many, { ...disk, severity: 'critical' }])).toHaveLength(problemCountMax)
})

test('goal: entries that are no problems of this release do no harm', () => {
  const event = (kind: string, detail: Record<string, unknown>) =>
    appendEvent(store.ledger.db, { nowMs: startMs, kind, subject: '', detail })
  const journal = new ProblemJournal(store)
  event('nft.restored', {})
  event('problem.began', { name: 'of another release', subject: null, severity: 'warning', detail: 'x' })
  event('problem.began', { name: 'disk', subject: null, severity: 'warning', detail: 'x' })
  expect(journal.facts()).toEqual({ tableRestoredMs: startMs, authorityReplacedMs: null })
  expect([...journal.open().keys()]).toEqual(['disk'])
  event('problem.ended', { name: 'disk', subject: null, severity: 'warning', detail: 'x' })
  expect([...journal.open().keys()]).toEqual([])
})

test('goal: a list that cannot be made is a critical problem itself after three looks, and ends no other', async () => {
  const { watch, look, changes } = daemon()
  await look([upstream], 2)
  const stopping = new AbortController()
  const failing = { isFailing: true }
  const running = watch.run(() => {
    if (failing.isFailing) throw new Error('disk I/O error')
    return watch.dated([upstream])
  }, stopping.signal)
  const step = async (looks: number) => {
    for (let count = 0; count < looks; count += 1) await clock.elapse(stepMs)
  }
  await step(1)
  expect(seen(changes)).toEqual(['began upstream'])
  await step(12)
  expect(seen(changes)).toEqual(['began upstream', 'began status_unknown'])
  expect(watch.reported().map(({ name, severity, detail }) => `${severity} ${name} ${detail}`)).toEqual([
    'warning upstream u: it does not answer',
    'critical status_unknown the status of this host cannot be made: disk I/O error',
  ])
  failing.isFailing = false
  await step(6)
  expect(seen(changes)).toEqual(['began upstream', 'began status_unknown', 'ended status_unknown'])
  stopping.abort()
  await clock.elapse(stepMs)
  await running
})
