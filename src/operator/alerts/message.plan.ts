// Which problems a receiver has to be notified of, and the words of a message. Pure.

import { harmlessLine } from '../../base/harmless.ts'
import { dayMs, hourMs, minuteMs } from '../../base/time.ts'
import { type AlertMessage, alertProblemsMax } from '../../contract/admin/alerts.ts'
import { type HostProblem, helpCommandFor, problemKey } from '../../contract/admin/problems.ts'

/** Problems that a receiver was notified of and that have not ended for it, by key. */
export type Notified = ReadonlyMap<string, HostProblem>

export type AlertRules = {
  readonly severity: HostProblem['severity']
  readonly afterMs: number
}

export type AlertChanges = { readonly began: readonly HostProblem[]; readonly resolved: readonly HostProblem[] }

/** `present`: the problems of this host now. */
export function changesFor(
  notified: Notified,
  present: readonly HostProblem[],
  { severity, afterMs }: AlertRules,
  nowMs: number,
): AlertChanges {
  const keys = new Set(present.map(problemKey))
  const began = present.filter(problem => {
    if (severity === 'critical' && problem.severity !== 'critical') return false
    const before = notified.get(problemKey(problem))
    if (before !== undefined) return before.severity !== 'critical' && problem.severity === 'critical'
    // A clock that was set back makes the beginning lie in the future.
    return Math.abs(nowMs - Date.parse(problem.since)) >= afterMs
  })
  return { began, resolved: [...notified].filter(([key]) => !keys.has(key)).map(([, problem]) => problem) }
}

export type MessageFacts = {
  readonly id: string
  readonly kind: AlertMessage['kind']
  readonly at: string
  readonly host: AlertMessage['host']
  readonly present: readonly HostProblem[]
  readonly changes: AlertChanges
}

const detailCharsMax = 1_000

export function messageOf({ id, kind, at, host, present, changes: { began, resolved } }: MessageFacts): AlertMessage {
  const lists = [began, resolved, present]
  const [first = [], second = [], third = []] = lists.map(list => list.slice(0, alertProblemsMax).map(bounded))
  return {
    version: 1,
    ...{ id, kind, at, host },
    ready: present.every(({ severity }) => severity !== 'critical'),
    began: first,
    resolved: second,
    open: third,
    omitted: lists.reduce((sum, list) => sum + Math.max(0, list.length - alertProblemsMax), 0),
  }
}

function bounded(problem: HostProblem): HostProblem {
  const { detail, remedy } = problem
  return { ...problem, detail: cut(detail), remedy: cut(remedy) }
}

/** Marks what is cut: half of a command must not look whole. */
function cut(text: string): string {
  return text.length <= detailCharsMax ? text : `${text.slice(0, detailCharsMax - 1)}…`
}

export function subjectOf(message: AlertMessage): string {
  const { kind, at, host, ready, began, resolved, open } = message
  const critical = open.filter(({ severity }) => severity === 'critical')
  const named = (title: string, problems: readonly HostProblem[]) => listed(title, namesOf(problems, at))
  const worst = began.filter(({ severity }) => severity === 'critical')
  const mild = began.filter(({ severity }) => severity !== 'critical')
  const changes = [
    ...named('CRITICAL', worst),
    ...named('warning', mild),
    // Without deadlines: what is over has none.
    ...listed('resolved', [...new Set(resolved.map(({ name }) => name))]),
    ...named('still open', othersIn(message)),
  ]
  const words = {
    test: 'test of the alerts',
    reminder: `still not ready: ${shortList(namesOf(critical, at))}`,
    problems: changes.join('; '),
  } as const satisfies Record<AlertMessage['kind'], string>
  return harmlessLine(`[strongroom] ${host.domain}${ready ? '' : ' (NOT READY)'}: ${words[kind]}`).slice(0, 200)
}

function listed(title: string, names: readonly string[]): string[] {
  return names.length === 0 ? [] : [`${title}: ${shortList(names)}`]
}

const shownNames = 3

function shortList(names: readonly string[]): string {
  return names.slice(0, shownNames).join(', ') + (names.length > shownNames ? ', …' : '')
}

/** Returns each name once, with the deadline that is nearest at `at`. */
function namesOf(problems: readonly HostProblem[], at: string): string[] {
  return [...Map.groupBy(problems, ({ name }) => name)].map(([name, all]) => {
    const left = all.flatMap(problem => timeLeftMs(problem, at) ?? [])
    return left.length === 0 ? name : `${name} (${deadlineText(Math.min(...left))})`
  })
}

/** Null if the problem has no deadline. The detail has the time at which the certificate ends. */
function timeLeftMs({ name, detail }: HostProblem, at: string): number | null {
  const time =
    name === 'certificate'
      ? /\d{4}-\d\d-\d\dT[\d:.]+Z/.exec(detail)?.[0]
      : name === 'acme'
        ? /valid until (\d{4}-\d\d-\d\dT[\d:.]+Z)/.exec(detail)?.[1]
        : undefined
  return time === undefined ? null : Date.parse(time) - Date.parse(at)
}

function deadlineText(leftMs: number): string {
  if (leftMs <= 0) return 'expired'
  const days = Math.floor(leftMs / dayMs)
  return days === 0 ? 'ends within a day' : `ends in ${days} ${days === 1 ? 'day' : 'days'}`
}

/** Returns the open problems that did not begin with this message. */
function othersIn({ began, open }: AlertMessage): HostProblem[] {
  return open.filter(problem => !began.some(other => problemKey(other) === problemKey(problem)))
}

export function textOf(message: AlertMessage): string {
  const { host, kind, at, ready, began, resolved, omitted } = message
  const section = (title: string, problems: readonly HostProblem[], linesOf = problemLines) =>
    problems.length === 0 ? [] : [`${title}:`, '', ...problems.flatMap(problem => linesOf(problem))]
  const others = othersIn(message)
  const isChange = began.length + resolved.length > 0
  return [
    ready
      ? `${host.domain} (${host.id}) is ready at ${withoutMs(at)}.`
      : `${host.domain} (${host.id}) is NOT READY at ${withoutMs(at)}: it does not give clients what its services promise.`,
    '',
    ...(kind === 'test' ? ['This is a test of the alerts. Nothing has changed.', ''] : []),
    ...section('Began', began),
    ...section('Resolved', resolved, problem => resolvedLines(problem, at)),
    ...section(isChange ? 'Still open' : 'Problems', others),
    ...(isChange && others.length + omitted === 0 ? ['No other problem is open.', ''] : []),
    ...(omitted === 0 ? [] : [`${omitted} more are left out.`, '']),
    'Run `strongroom status` on the host as root for all its problems as they are now, and `strongroom help 3am` for the',
    'first steps at night. Another message comes when a problem of this one ends.',
    '',
  ].join('\n')
}

function problemLines(problem: HostProblem): string[] {
  const { severity, since, detail, affects, remedy } = problem
  const lines = [
    `${severity} ${problemKey(problem)}, since ${withoutMs(since)}`,
    `  ${withoutMs(detail)}`,
    `  affects: ${affects}`,
    ...(remedy === '' ? [] : remedyLines(remedy)),
    `  more: ${helpCommandFor(problem.name)}`,
  ]
  return [...lines.map(harmlessLine), '']
}

/** Commands in backticks that follow each other, `a`; `b`, stand on lines of their own, so that they can be copied. */
function remedyLines(remedy: string): string[] {
  const found = /^(.*?)(`[^`]+`(?:; `[^`]+`)+)(.*)$/s.exec(remedy)
  if (found === null) return [`  remedy: ${remedy}`]
  const [, before = '', commands = '', after = ''] = found
  const rest = after.replace(/^[ .;,]+/, '')
  const lines = commands.slice(1, -1).split('`; `')
  return [
    `  remedy: ${before.trimEnd()}`,
    '',
    ...lines.map(line => `    ${line}`),
    ...(rest === '' ? [] : ['', `  ${rest}`]),
  ]
}

/** Without effect and remedy, because there is nothing to do. `at`: time of the message, which follows the end. */
function resolvedLines(problem: HostProblem, at: string): string[] {
  const { severity, since, detail } = problem
  const lastedMs = Date.parse(at) - Date.parse(since)
  // A clock that was set back makes the beginning lie in the future.
  const lasted = lastedMs < 0 ? '' : ` (${durationText(lastedMs)})`
  const lines = [
    `${severity} ${problemKey(problem)}, from ${withoutMs(since)} until ${withoutMs(at)} at the latest${lasted}`,
    `  it was: ${withoutMs(detail)}`,
  ]
  return [...lines.map(harmlessLine), '']
}

/** Removes the milliseconds of times in ISO 8601. */
function withoutMs(text: string): string {
  return text.replace(/(T\d\d:\d\d:\d\d)\.\d{3}Z/g, '$1Z')
}

/** Returns the two largest units. */
function durationText(ms: number): string {
  const units = [
    [Math.floor(ms / dayMs), 'd'],
    [Math.floor(ms / hourMs) % 24, 'h'],
    [Math.floor(ms / minuteMs) % 60, 'min'],
    [Math.floor(ms / 1000) % 60, 's'],
  ] as const
  const first = units.findIndex(([count]) => count > 0)
  const shown = first === -1 ? units.slice(-1) : units.slice(first, first + 2)
  return shown.map(([count, unit]) => `${count} ${unit}`).join(' ')
}
