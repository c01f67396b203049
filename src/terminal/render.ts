// Results for people: tables, field lists, verdicts, colour; and for programs: JSON. Pure.

import type { Check, Outcome, Verdict } from '../attest/verdict.ts'
import { harmlessJson, harmlessLine } from '../base/harmless.ts'
import { failureOf, type Sorting } from './verdict-exit.ts'

export type Paint = {
  readonly good: (text: string) => string
  readonly bad: (text: string) => string
  readonly weak: (text: string) => string
  readonly strong: (text: string) => string
  /** In the colour of a status or verdict: good, bad, over, or else waiting. */
  readonly word: (text: string) => string
}

/** SGR sequences (ECMA-48 8.3.117), or the text unchanged. */
export function paintFor(coloured: boolean): Paint {
  const sgr = (code: number) => (text: string) => (coloured ? `\u001b[${code}m${text}\u001b[0m` : text)
  const [good, bad, waiting, weak, strong] = [sgr(32), sgr(31), sgr(33), sgr(2), sgr(1)]
  const paints = { good, bad, waiting, weak }
  return { good, bad, weak, strong, word: text => paints[WORDS[text] ?? 'waiting'](text) }
}

const WORDS: { readonly [word: string]: 'good' | 'bad' | 'waiting' | 'weak' } = {
  ready: 'good',
  active: 'good',
  ok: 'good',
  running: 'good',
  PASS: 'good',
  failed: 'bad',
  suspended: 'bad',
  revoked: 'bad',
  FAIL: 'bad',
  terminated: 'weak',
  cancelled: 'weak',
}

/** Colour only for a terminal, and not when NO_COLOR is set. */
export function wantsColour({ isTerminal, env }: { isTerminal: boolean; env: { [name: string]: string | undefined } }) {
  return isTerminal && (env.NO_COLOR ?? '') === '' && env.TERM !== 'dumb'
}

/** Columns are as wide as their widest cell without colour; no line ends in spaces. */
export function table(paint: Paint, head: readonly string[], rows: readonly (readonly string[])[]): string {
  const all = [head, ...rows]
  const widths = head.map((_, column) => Math.max(...all.map(row => visibleLength(row[column] ?? ''))))
  const line = (row: readonly string[]) =>
    row
      .map((cell, column) => pad(cell, widths[column] ?? 0))
      .join('  ')
      .trimEnd()
  return [paint.strong(line(head)), ...rows.map(line)].map(text => `${text}\n`).join('')
}

/** `name: value` lines with the values aligned; further lines of a value are indented under its first. */
export function fields(paint: Paint, entries: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...entries.map(([name]) => name.length)) + 2
  return entries
    .map(([name, value]) => {
      const indented = value.replaceAll('\n', `\n${' '.repeat(width)}`)
      return `${paint.weak(`${name}:`.padEnd(width))}${indented}\n`
    })
    .join('')
}

export function dash(value: string | number | null | undefined): string {
  return value === null || value === undefined || value === '' ? '-' : String(value)
}

/** `1.5 GiB`; the exact number is in --json. */
export function bytesText(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const index = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** index
  return `${index === 0 ? value : value.toFixed(1)} ${units[index]}`
}

/** ISO time to the second, for tables. */
export function timeText(iso: string | null): string {
  return iso === null ? '-' : `${iso.slice(0, 19)}Z`
}

export function json(document: unknown): string {
  return `${harmlessJson(JSON.stringify(document, null, 2))}\n`
}

/** Hexadecimal in lowercase, after 0x. */
export function hexNumber(value: bigint): string {
  return `0x${value.toString(16)}`
}

/**
 * `simulated`: whether the evidence ends at a root that is not AMD's. Absent if no evidence of a platform is verified.
 */
export type ShownVerdict = Verdict & { readonly simulated?: boolean }

/** Words for the outcomes. */
const WORD_OF = { pass: 'PASS', fail: 'FAIL', 'not-checked': 'NOT CHECKED' } as const satisfies Record<Outcome, string>

/** One line for each check, then the verdict. */
export function verdictText(verdict: ShownVerdict, paint: Paint): string {
  return [...verdict.checks.map(check => checkLine(check, paint)), verdictLine(verdict, paint)].join('')
}

/** The --json form: `simulated` stands beside `ok`; `result` is `outcome` in a word for people. */
export function verdictDocument(shown: ShownVerdict, sorting: Sorting = {}) {
  const { ok, simulated, checks } = shown
  return {
    ok,
    failed: failureOf(shown, sorting),
    ...(simulated === undefined ? {} : { simulated }),
    checks: checks.map(({ name, outcome, reason, required }) => ({
      name,
      result: WORD_OF[outcome],
      outcome,
      reason,
      required,
    })),
  }
}

function checkLine({ name, outcome, reason, required }: Check, paint: Paint): string {
  const remark = outcome === 'not-checked' && required ? ' (required)' : ''
  return `${paint.word(WORD_OF[outcome])} ${oneLine(name)}: ${oneLine(reason === '' ? 'ok' : reason)}${remark}\n`
}

function verdictLine({ ok, simulated, checks }: ShownVerdict, paint: Paint): string {
  const count = (outcome: Outcome) => checks.filter(check => check.outcome === outcome).length
  const missing = checks.filter(check => check.outcome === 'not-checked' && check.required).length
  const notChecked = `${count('not-checked')} not checked${missing === 0 ? '' : ` (${missing} required)`}`
  const counts = `${count('pass')} passed, ${count('fail')} failed, ${notChecked}`
  return `${verdictWords({ ok, simulated }, paint)}: ${counts}\n`
}

/** `VERDICT: PASS`, and SIMULATED where it is. */
export function verdictWords(
  { ok, simulated }: { readonly ok: boolean; readonly simulated?: boolean | undefined },
  paint: Paint,
): string {
  const remark = simulated === true ? ' SIMULATED, no hardware attests this evidence' : ''
  return `${paint.strong('VERDICT:')} ${paint.word(ok ? 'PASS' : 'FAIL')}${remark}`
}

/** Reasons quote names from certificates, in which anybody may have written anything. */
export function oneLine(reason: string): string {
  return harmlessLine(reason)
}

const SGR = /\u001b\[[0-9;]*m/g

function visibleLength(text: string): number {
  return text.replace(SGR, '').length
}

function pad(cell: string, width: number): string {
  return cell + ' '.repeat(Math.max(0, width - visibleLength(cell)))
}
