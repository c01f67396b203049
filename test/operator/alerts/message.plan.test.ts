// Goal: a receiver is notified of each problem once it has lasted, again when it becomes critical, and of its end; the
// words are safe in a mail's head and bounded.

import { expect, test } from 'bun:test'
import { AlertMessage, alertProblemsMax } from '../../../src/contract/admin/alerts.ts'
import { type HostProblem, PROBLEM_NAMES, PROBLEMS, problemKey } from '../../../src/contract/admin/problems.ts'
import { checkValue } from '../../../src/contract/check.ts'
import { changesFor, messageOf, subjectOf, textOf } from '../../../src/operator/alerts/message.plan.ts'

const nowMs = Date.parse('2026-11-26T12:00:00.000Z')
const problem = (name: HostProblem['name'], change: Partial<HostProblem> = {}): HostProblem => ({
  ...{ name, subject: null, severity: 'warning', since: '2026-11-26T11:00:00.000Z' },
  ...{ detail: `${name} is wrong`, affects: 'clients', remedy: 'mend it', ...change },
})
const disk = problem('disk')
const models = problem('models', { severity: 'critical' })
const known = (...problems: HostProblem[]) => new Map(problems.map(item => [problemKey(item), item]))
const all = { severity: 'warning', afterMs: 120_000 } as const
const names = ({ began, resolved }: ReturnType<typeof changesFor>) => [
  began.map(({ name }) => name),
  resolved.map(({ name }) => name),
]

test('goal: what is new, worse or over is a change; the rest is none', () => {
  const young = problem('backup', { since: '2026-11-26T11:58:01.000Z' })
  const old = problem('backup', { since: '2026-11-26T11:58:00.000Z' })
  expect(names(changesFor(known(), [disk, models, young], all, nowMs))).toEqual([['disk', 'models'], []])
  expect(names(changesFor(known(), [old], all, nowMs))).toEqual([['backup'], []])
  // It began before the clock was set back by an hour.
  expect(names(changesFor(known(), [old], all, nowMs - 3_600_000))).toEqual([['backup'], []])
  expect(names(changesFor(known(disk, models), [disk, models], all, nowMs))).toEqual([[], []])
  const worse = { ...disk, severity: 'critical' } as const
  expect(names(changesFor(known(disk), [worse], all, nowMs))).toEqual([['disk'], []])
  expect(names(changesFor(known(worse), [disk], all, nowMs))).toEqual([[], []])
  expect(names(changesFor(known(disk, models), [models], all, nowMs))).toEqual([[], ['disk']])
})

test('goal: whoever wants critical ones alone gets no warning, and the end of what became milder', () => {
  const severe = { ...all, severity: 'critical' } as const
  expect(names(changesFor(known(), [disk, models], severe, nowMs))).toEqual([['models'], []])
  const milder = { ...models, severity: 'warning' } as const
  expect(names(changesFor(known(models), [milder], severe, nowMs))).toEqual([[], []])
  expect(names(changesFor(known(models), [], severe, nowMs))).toEqual([[], ['models']])
})

const facts = {
  ...({ id: 'msg_1', kind: 'problems', at: '2026-11-26T12:00:00.000Z' } as const),
  host: { id: 'h', domain: 'a.example', version: '1' },
} as const

test('goal: a message fits its schema, however much is wrong, and says how much it leaves out', () => {
  const many = Array.from({ length: 120 }, (_, at) =>
    problem('upstream', { subject: `u${at}`, detail: 'x'.repeat(9_000) }),
  )
  const message = messageOf({ ...facts, present: many, changes: { began: many, resolved: [disk] } })
  expect(checkValue(AlertMessage, message)).toMatchObject({ ok: true })
  expect([message.began.length, message.resolved.length, message.omitted]).toEqual([alertProblemsMax, 1, 140])
  expect(message.began[0]?.detail).toHaveLength(1_000)
  expect([
    message.ready,
    messageOf({ ...facts, present: [models], changes: { began: [], resolved: [] } }).ready,
  ]).toEqual([true, false])
})

test('goal: subject and text name what began and ended, on lines that no upstream can forge', () => {
  const hostile = problem('upstream', { subject: 'u', detail: 'it says\r\nBcc: all@example.org\u001b[2J' })
  const message = messageOf({ ...facts, present: [models, hostile], changes: { began: [hostile], resolved: [disk] } })
  expect(subjectOf(message)).toBe(
    '[strongroom] a.example (NOT READY): warning: upstream; resolved: disk; still open: models',
  )
  const text = textOf(message)
  expect(text).toContain(
    'Began:\n\nwarning upstream u, since 2026-11-26T11:00:00Z\n  it says Bcc: all@example.org\\x1b[2J\n',
  )
  expect(text).toContain('Resolved:\n\nwarning disk, from 2026-11-26T11:00:00Z')
  expect(text).toContain('Still open:\n\ncritical models')
  const reminder = messageOf({ ...facts, kind: 'reminder', present: [models], changes: { began: [], resolved: [] } })
  expect(subjectOf(reminder)).toBe('[strongroom] a.example (NOT READY): still not ready: models')
  expect(textOf(reminder)).toContain('Problems:\n\ncritical models')
})

test('goal: what is over has its beginning, its end and its length, and orders nothing', () => {
  const textFor = (since: string) => {
    const over = problem('firewall', { severity: 'critical', since, remedy: 'run nft flush' })
    return textOf(messageOf({ ...facts, present: [], changes: { began: [], resolved: [over] } }))
  }
  const lines = (since: string) => textFor(since).split('\n').slice(2, 7)
  expect(lines('2026-11-26T11:57:30.000Z')).toEqual([
    'Resolved:',
    '',
    'critical firewall, from 2026-11-26T11:57:30Z until 2026-11-26T12:00:00Z at the latest (2 min 30 s)',
    '  it was: firewall is wrong',
    '',
  ])
  expect(lines('2026-11-26T11:59:59.100Z')[2]).toEndWith(' at the latest (0 s)')
  expect(lines('2026-11-26T09:59:00.000Z')[2]).toEndWith(' at the latest (2 h 1 min)')
  expect(lines('2026-11-23T10:59:00.000Z')[2]).toEndWith(' at the latest (3 d 1 h)')
  // The clock was set back in the meantime.
  expect(lines('2026-11-26T12:30:00.000Z')[2]).toBe(
    'critical firewall, from 2026-11-26T12:30:00Z until 2026-11-26T12:00:00Z at the latest',
  )
  expect(textFor('2026-11-26T11:57:30.000Z')).not.toMatch(/remedy|affects|flush/)
})

test('goal: commands that follow each other stand on lines of their own, without the line ends that a remedy may quote', () => {
  const linesFor = (remedy: string) =>
    textOf(messageOf({ ...facts, present: [], changes: { began: [problem('disk', { remedy })], resolved: [] } }))
      .split('\n')
      .slice(7, -7)
  expect(linesFor('run `a -i b`; `c -o d` (safe: it is). Store them.')).toEqual([
    '  remedy: run',
    '',
    '    a -i b',
    '    c -o d',
    '',
    '  (safe: it is). Store them.',
  ])
  expect(linesFor('run `a`; `b`; `c`. If not, go')[6]).toBe('  If not, go')
  expect(linesFor('run `a`, which has `b`')).toEqual(['  remedy: run `a`, which has `b`'])
  expect(linesFor('x\n    rm -r /\n`a`; `b`')).toEqual(['  remedy: x     rm -r /', '', '    a', '    b'])
})

test('goal: half of a command does not look whole', () => {
  const message = (length: number) => {
    const long = problem('disk', { detail: 'd'.repeat(length), remedy: 'r'.repeat(length) })
    const [found] = messageOf({ ...facts, present: [long], changes: { began: [long], resolved: [] } }).began
    return [found?.detail, found?.remedy]
  }
  expect(message(1_000)).toEqual(['d'.repeat(1_000), 'r'.repeat(1_000)])
  expect(message(1_001)).toEqual([`${'d'.repeat(999)}…`, `${'r'.repeat(999)}…`])
})

test('goal: the subject has the severity of what began, how long a certificate lasts, and what is open besides', () => {
  const ends = (days: number) =>
    `the certificate of the services ends soon: at ${new Date(nowMs + days * 86_400_000).toISOString()}`
  const subject = (began: HostProblem[], others: HostProblem[] = []) =>
    subjectOf(messageOf({ ...facts, present: [...began, ...others], changes: { began, resolved: [] } }))
  const certificate = (days: number, which = 'server') => problem('certificate', { subject: which, detail: ends(days) })
  expect(subject([disk, models])).toEndWith('a.example (NOT READY): CRITICAL: models; warning: disk')
  expect(subject([certificate(3.5)])).toEndWith('a.example: warning: certificate (ends in 3 days)')
  expect(subject([certificate(1.5)])).toEndWith('(ends in 1 day)')
  expect(subject([certificate(0.5)])).toEndWith('(ends within a day)')
  expect(subject([certificate(-0.5)])).toEndWith('(expired)')
  const renewed = { began: [], resolved: [certificate(3.5), certificate(-0.5, 'guest')] }
  expect(subjectOf(messageOf({ ...facts, present: [], changes: renewed }))).toEndWith(
    'a.example: resolved: certificate',
  )
  expect(subject([certificate(9), certificate(2, 'guest')])).toEndWith('certificate (ends in 2 days)')
  const valid = `this host has one, which is valid until ${new Date(nowMs + 27.4 * 86_400_000).toISOString()}`
  const order = `${valid}; the order failed at 2026-11-26T11:00:00.000Z: dns: no`
  expect(subject([problem('acme', { detail: order })])).toEndWith('a.example: warning: acme (ends in 27 days)')
  const none = 'this host has none: clients get another; the order failed at 2026-11-26T11:00:00.000Z: dns: no'
  expect(subject([problem('acme', { detail: none })])).toEndWith('a.example: warning: acme')
  // A time in the detail of another problem is no deadline.
  expect(subject([problem('backup', { detail: ends(2) })])).toEndWith('warning: backup')
  expect(subject([disk], [certificate(2)])).toEndWith('warning: disk; still open: certificate (ends in 2 days)')
  const text = (others: HostProblem[]) =>
    textOf(messageOf({ ...facts, present: [disk, ...others], changes: { began: [disk], resolved: [] } }))
  expect(text([])).toContain('\nNo other problem is open.\n')
  expect(text([models])).not.toContain('No other problem')
  expect(text([models])).toContain('remedy: mend it\n  more: strongroom help problem disk\n\nStill open:')
})

test('goal: each effect begins with who is affected now', () => {
  expect(Object.values(PROBLEMS).filter(text => !/^(now: |no client)/.test(text))).toEqual([])
})

test('goal: a long list cuts off no readiness, and the text explains it and what follows', () => {
  const host = { ...facts.host, domain: `${'a'.repeat(60)}.`.repeat(2) }
  const many = PROBLEM_NAMES.map(name => problem(name))
  const message = messageOf({ ...facts, host, present: [models, ...many], changes: { began: many, resolved: [] } })
  expect(subjectOf(message)).toContain(`${host.domain} (NOT READY): `)
  expect(textOf(message)).toContain(
    ' is NOT READY at 2026-11-26T12:00:00Z: it does not give clients what its services ',
  )
  expect(textOf(message)).toContain('\nfirst steps at night. Another message comes when a problem of this one ends.\n')
})
