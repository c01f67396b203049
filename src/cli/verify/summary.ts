// A verdict in at most fifteen lines: what it is, what it rests on, what was accepted because the caller asked, what was not checked. Pure.

import type { Check } from '../../attest/verdict.ts'
import { PINS, pinCheckName } from '../../verifier/pins.ts'
import { oneLine, type Paint, type ShownVerdict, verdictText, verdictWords } from '../render.ts'

export const summaryLinesMax = 15
/** A longer line is cut; --verbose prints it whole. */
export const summaryLineCharsMax = 160

/** All checks when `verbose`, else the summary. `details`: further checks of which passing ones are named, such as those of one receipt. */
export function verdictSummary(
  shown: ShownVerdict,
  { verbose, details = [], paint }: { verbose: boolean; details?: readonly Check[]; paint: Paint },
): string {
  if (verbose) return verdictText(shown, paint)
  const { checks, ok } = shown
  const accepted = checks.filter(isWaiver)
  const open = checks.filter(one => one.outcome === 'not-checked' && !one.required && !isWaiver(one))
  const body = [
    ...(ok
      ? section('rests on', restLines([...checks, ...details]))
      : section('failed', grouped(checks.filter(isBad), failedLinesMax))),
    ...section(
      'accepted',
      accepted.map(one => oneLine(one.reason).replace(/^accepted /, '')),
    ),
    ...section('not checked', grouped(open.toSorted(byUrgency), openLinesMax)),
  ]
  return [verdictWords(shown, paint), ...body, counts(shown)].map(line => `${line}\n`).join('')
}

const failedLinesMax = 6
const openLinesMax = 2

function isWaiver({ name, outcome }: Check): boolean {
  return outcome === 'not-checked' && PINS.some(pin => name === pinCheckName(pin))
}

function isBad({ outcome, required }: Check): boolean {
  return outcome === 'fail' || (outcome === 'not-checked' && required)
}

/** What is known of the firmware's floors is never left out for want of room. */
function byUrgency(a: Check, b: Check): number {
  const order = ({ name }: Check) => (name.startsWith('tcb-floor') ? 0 : 1)
  return order(a) - order(b)
}

/** Of the passing checks with these names, what they found. */
const RESTS: readonly (readonly [label: string, names: readonly string[]])[] = [
  ['root', ['chain-root']],
  ['measurement', ['measurement']],
  ['workloads', ['pin-allowlist']],
  ['VMPL', ['vmpl']],
  ['firmware', ['tcb-floor-snp', 'tcb-floor-microcode']],
  ['revocation', ['chain-revocation']],
  ['nonce', ['attestation-nonce']],
  ['TLS key', ['tls-binding']],
  ['response', ['response-receipt']],
]

function restLines(checks: readonly Check[]): string[] {
  return RESTS.flatMap(([label, names]) => {
    const found = names.flatMap(name => checks.find(one => one.name === name && one.outcome === 'pass') ?? [])
    return found.length === 0 ? [] : [`${label}: ${found.map(one => oneLine(one.reason)).join('; ')}`]
  })
}

/** One line for each reason, however many checks give it. */
function grouped(checks: readonly Check[], linesMax: number): string[] {
  const names = new Map<string, string[]>()
  for (const { name, reason } of checks) names.set(reason, [...(names.get(reason) ?? []), name])
  const lines = [...names].map(([reason, [first, ...more]]) => {
    const others = more.length === 0 ? '' : ` and ${more.length} more`
    return `${first}${others}: ${oneLine(reason)}`
  })
  if (lines.length <= linesMax) return lines
  return [...lines.slice(0, linesMax - 1), `and ${lines.length - linesMax + 1} more, see --verbose`]
}

const labelChars = 13

function section(label: string, lines: readonly string[]): string[] {
  return lines.map((line, at) => {
    const whole = `${(at === 0 ? label : '').padEnd(labelChars)}${line}`
    return whole.length <= summaryLineCharsMax ? whole : `${whole.slice(0, summaryLineCharsMax - 1)}…`
  })
}

function counts({ checks }: ShownVerdict): string {
  const count = (outcome: Check['outcome']) => checks.filter(one => one.outcome === outcome).length
  const made = `${count('pass')} passed, ${count('fail')} failed, ${count('not-checked')} not made`
  return `${checks.length} checks: ${made}; --verbose prints each`
}
