// The five lines of strongroom-verify. Pure.

import type { Check } from '../../attest/verdict.ts'
import { harmlessLine } from '../../base/harmless.ts'

export const LINES = [
  'hardware attestation',
  'TPM measurements',
  'host-key binding',
  'inference provider attestation',
  'external-access lockout',
] as const

export type LineName = (typeof LINES)[number]

export type Line = {
  readonly name: LineName
  readonly outcome: 'pass' | 'fail' | 'not-checked'
  /** The evidence or the problem, as text for people. */
  readonly reason: string
  readonly checks: readonly Check[]
}

/** A failed check fails the line; a missing required check makes it not checked; `good` is its text if all pass. */
export function lineOf(name: LineName, checks: readonly Check[], good: string): Line {
  const failed = checks.filter(check => check.outcome === 'fail')
  const missing = checks.filter(check => check.outcome === 'not-checked' && check.required)
  // Only repeats that another check failed.
  const telling = failed.length > 1 ? failed.filter(check => check.name !== 'evidence') : failed
  if (failed.length > 0) return { name, outcome: 'fail', reason: wordsOf(telling), checks }
  if (missing.length > 0 || checks.length === 0) {
    return { name, outcome: 'not-checked', reason: wordsOf(missing) || 'nothing was checked', checks }
  }
  return { name, outcome: 'pass', reason: good, checks }
}

const reasonsMax = 3

function wordsOf(checks: readonly Check[]): string {
  const words = checks.slice(0, reasonsMax).map(check => `${check.name}: ${check.reason}`)
  const more = checks.length - words.length
  return [...words, ...(more > 0 ? [`and ${more} more, see --verbose`] : [])].join('; ')
}

const WORDS = { pass: 'PASS', fail: 'FAIL', 'not-checked': 'NOT CHECKED' } as const
const wordChars = 'NOT CHECKED'.length

/** One line each; with `verbose` the checks follow below each line. */
export function linesText(lines: readonly Line[], { verbose }: { readonly verbose: boolean }): string {
  const text = lines.flatMap(line => [
    `${WORDS[line.outcome].padEnd(wordChars)}  ${line.name}: ${harmlessLine(line.reason)}`,
    ...(verbose
      ? line.checks.map(check => `    ${WORDS[check.outcome].padEnd(wordChars)}  ${check.name}${after(check)}`)
      : []),
  ])
  return text.map(text => `${text}\n`).join('')
}

function after({ reason }: Check): string {
  return reason === '' ? '' : `: ${harmlessLine(reason)}`
}

/** JSON for programs. */
export function linesDocument(lines: readonly Line[], simulated: boolean, excused: readonly LineName[] = []) {
  return {
    schemaVersion: 1,
    ok: isGood(lines, excused),
    simulated,
    /** Lines that fail only because there is no hardware, which the caller accepts. */
    excused,
    lines: lines.map(({ name, outcome, reason, checks }) => ({ name, outcome, reason, checks })),
  }
}

/** `excused` lines fail, and are shown as failures, but do not count: the caller accepts a development machine. */
export function isGood(lines: readonly Line[], excused: readonly LineName[] = []): boolean {
  const isWell = ({ name, outcome }: Line) => outcome === 'pass' || excused.includes(name)
  return lines.length === LINES.length && lines.every(isWell)
}
