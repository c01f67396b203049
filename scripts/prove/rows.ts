// The table of `prove-host.ts`: one row for each number of what a host owes to its operator, and each Debian. Pure.

/** In the order of the table. */
export const ROWS = {
  '1': 'problems: raised for real, seen in status, doctor, console, metrics and alerts',
  '2': 'metrics: scraped by Prometheus over TLS with a token, judged by the rules of the package',
  '3': 'alerts: a signed webhook, e-mail over TLS, one message for a group, resolved, one line in the journal',
  '4': 'init: typed once, from a bare Debian to an answered prompt',
  '5': 'packages: install, remove, install, purge; a fresh host shows nothing untrue',
  '6': 'a host without IPv4: init, doctor, names, an instance',
  '6a': 'upstream add: tried, priced, its context taken; what follows for running instances',
  '7': 'day two: names of keys, quotas, billing, maintenance, backup to a command',
  '8': 'events of backup, restore, upgrade and downgrade',
  '9': 'firewalls: the second lock, a changed table, a firewall of others',
  '10': 'programs that maintain a host: networkd, tmpfiles, needrestart, upgrades, PgBouncer, ACME',
} as const

export type Row = keyof typeof ROWS
export const ROW_NAMES = Object.keys(ROWS).toSorted((a, b) => order(a) - order(b)) as Row[]

/** The result of one part of a row. `untried`: why it was not tried; `failed`: what was found instead. */
export type Outcome = {
  readonly row: Row
  readonly release: number
  readonly part: string
  readonly tookMs: number
  readonly result: 'ok' | { readonly failed: string } | { readonly untried: string }
}

type Verdict = 'ok' | 'FAIL' | 'not tried here'

/** A row is `ok` if some part of it was and none failed. Parts that failed or were not tried follow in lines below. */
export function tableLines(outcomes: readonly Outcome[], releases: readonly number[]): string[] {
  const lines = [line('number', 'Debian', 'result', 'time', 'what')]
  for (const row of ROW_NAMES) {
    for (const release of releases) {
      const own = outcomes.filter(outcome => outcome.row === row && outcome.release === release)
      const tookMs = own.reduce((sum, outcome) => sum + outcome.tookMs, 0)
      lines.push(line(row, `${release}`, verdictOf(own), `${(tookMs / 1000).toFixed(1)} s`, ROWS[row]))
      if (own.length === 0) lines.push(below('not tried here: nothing of it was run'))
      for (const { part, result } of own) {
        if (result === 'ok') continue
        if ('failed' in result) lines.push(below(`FAIL: ${part}: ${firstLines(result.failed)}`))
        else lines.push(below(`not tried here: ${part}: ${firstLines(result.untried)}`))
      }
    }
  }
  return lines
}

/** 1 if a part failed, otherwise 0. */
export function exitStatusOf(outcomes: readonly Outcome[]): 0 | 1 {
  return outcomes.some(({ result }) => result !== 'ok' && 'failed' in result) ? 1 : 0
}

function verdictOf(own: readonly Outcome[]): Verdict {
  if (exitStatusOf(own) === 1) return 'FAIL'
  return own.some(({ result }) => result === 'ok') ? 'ok' : 'not tried here'
}

function line(row: string, release: string, verdict: string, took: string, what: string): string {
  return [row.padEnd(6), release.padEnd(6), verdict.padEnd(14), took.padStart(8), what].join('  ')
}

const below = (text: string) => `                ${text}`

/** Reasons are outputs of whole commands at times. */
function firstLines(text: string): string {
  const line = text.trim().replaceAll(/\s+/g, ' ')
  return line.length <= reasonCharsMax ? line : `${line.slice(0, reasonCharsMax)}…`
}
const reasonCharsMax = 400

/** 6a comes after 6. */
function order(row: string): number {
  return Number.parseInt(row, 10) + (/\D$/.test(row) ? 0.5 : 0)
}
