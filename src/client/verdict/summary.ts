// A verdict on evidence itself (`verify report`, `vtpm`, `tdx`, `gpu`) in at most fifteen lines: the subject, its
// evidence, waived checks, and checks that were not made. Verdicts on instances, gateways, responses and builds are in
// plain.ts. Pure.

import { GPU_POLICY_CHECKS, keyMakerCheckName, sourceCheckName, upstreamCheckName } from '../../attest/check-names.ts'
import { HGX_POLICY_CHECKS } from '../../attest/nvidia/hgx/check-names.ts'
import { type Check, isBroken } from '../../attest/verdict.ts'
import { oneLine, type Paint, type ShownVerdict, verdictText, verdictWords } from '../../terminal/render.ts'
import { reportSum } from '../../terminal/verdict-exit.ts'
import { EVERY_PIN, pinCheckName } from '../../verifier/pins.ts'

export const summaryLinesMax = 15
/** Longer lines are truncated, because a reason contains text of a host; --verbose prints them whole. */
export const verdictLineCharsMax = 600

/**
 * Formats all checks if `verbose`, otherwise a summary. `details`: checks whose passing ones are listed, such as a
 * receipt's.
 */
export function verdictSummary(
  shown: ShownVerdict,
  { verbose, details = [], paint }: { verbose: boolean; details?: readonly Check[]; paint: Paint },
): string {
  if (verbose) return verdictText(shown, paint)
  const { checks, ok } = shown
  const accepted = checks.filter(isWaiver)
  const told = coveredByWaivers(checks)
  const open = checks.filter(
    check => check.outcome === 'not-checked' && !check.required && !isWaiver(check) && !told.includes(groupName(check)),
  )
  const body = [
    ...(ok
      ? section('rests on', basisLines([...checks, ...details]))
      : section('failed', grouped(checks.filter(isBroken).toSorted(failedFirst), failedLinesMax))),
    ...section(
      'accepted',
      accepted.map(
        check => oneLine(check.reason).replace(/^accepted /, '') + foundUnder(check, [...checks, ...details]),
      ),
    ),
  ]
  const room = summaryLinesMax - body.length - 2
  const rest = section('not checked', grouped(open.toSorted(byUrgency), Math.min(openLinesMax, room)))
  return [verdictWords(shown, paint), ...body, ...rest, checkCounts(shown)].map(line => `${line}\n`).join('')
}

const failedLinesMax = 6
const openLinesMax = 4

/** The pins of `verify vtpm`, `verify tdx` and `verify gpu`, which other verdicts lack. */
export const pcrPinName = 'pin-pcrs'
export const rtmrPinName = 'pin-rtmr'
export const gpuPinName = 'pin-gpu'
export const gpuOcspPinName = 'pin-gpu-ocsp'
export const gpuDevtoolsPinName = 'pin-gpu-devtools'
const ownPinNames: readonly string[] = [pcrPinName, rtmrPinName, gpuPinName, gpuOcspPinName, gpuDevtoolsPinName]

/** Checks that a waiver skips; the waiver's own line covers them. */
const COVERED_BY_WAIVER: Readonly<Record<string, readonly string[]>> = {
  [pinCheckName('measurement')]: ['measurement', 'vtpm-measurement', 'mr-td'],
  [pinCheckName('allowlist')]: ['allowlist', 'admission', 'operator-key', 'id-key-digest', 'author-key-digest'],
  [pinCheckName('operator-key')]: ['operator-key', 'id-key-digest', 'author-key-digest'],
  [pinCheckName('vmpl')]: ['vmpl'],
  [pinCheckName('crl')]: ['chain-revocation'],
  [rtmrPinName]: ['rtmr1', 'rtmr2'],
  [gpuPinName]: [...GPU_POLICY_CHECKS, ...HGX_POLICY_CHECKS],
  [gpuOcspPinName]: ['gpu-chain-ocsp', 'gpu-rim-ocsp'],
  [gpuDevtoolsPinName]: ['gpu-devtools'],
}

/** Checks whose reason begins with the value that a waiver accepted. */
const FOUND_BY: Readonly<Record<string, string>> = {
  [pinCheckName('vmpl')]: 'vmpl',
  // The TCB for which the signing key is certified, by component.
  [pinCheckName('tcb')]: 'vek-tcb',
}

/**
 * Returns the accepted value: a verdict depends on VMPL and firmware even if they were not compared, so it names them.
 */
function foundUnder(waiver: Check, checks: readonly Check[]): string {
  const found = checks.find(({ name, outcome }) => name === FOUND_BY[waiver.name] && outcome !== 'fail')
  const [value = ''] = found?.reason.split(';') ?? []
  return /\d/.test(value) ? `; it is ${value}` : ''
}

/** Returns names of groups and checks that the waivers among these checks skip. */
export function coveredByWaivers(checks: readonly Check[]): string[] {
  return checks.filter(isWaiver).flatMap(({ name }) => COVERED_BY_WAIVER[name] ?? [])
}

/** Returns the last part of a check's name: `measurement` of `gateway/measurement`. */
export function groupName({ name }: Check): string {
  return name.slice(name.indexOf('/') + 1)
}

export function isWaiver({ name, outcome, required }: Check): boolean {
  return (
    outcome === 'not-checked' &&
    !required &&
    (name === upstreamCheckName ||
      name === sourceCheckName ||
      ownPinNames.includes(name) ||
      EVERY_PIN.some(pin => name === pinCheckName(pin)))
  )
}

/** Reason of a pin that an entry of the transparency log satisfies, followed by the place of the entry. */
export const loggedPinWords = 'in the transparency log'

/** Reports whether only the transparency log names the image: others see it too, but the caller named none. */
export function isImageOnlyLogged(checks: readonly Check[]): boolean {
  const name = pinCheckName('measurement')
  return checks.some(
    check => check.name === name && check.outcome === 'pass' && check.reason.startsWith(loggedPinWords),
  )
}

/** Sorts first what always gets a line: floors of the firmware, and a log without an external cosignature. */
function byUrgency(a: Check, b: Check): number {
  const order = ({ name }: Check) => (name.startsWith('tcb-floor') || name === 'log-witnessed' ? 0 : 1)
  return order(a) - order(b)
}

/** Sorts what failed before what could not be judged. A check that only repeats another one stays behind it. */
function failedFirst(a: Check, b: Check): number {
  const order = ({ name, outcome }: Check) => (outcome === 'fail' && name !== reportSum ? 0 : 1)
  return order(a) - order(b)
}

/** Labels of the findings that the passing checks with these names contain. */
const BASIS: readonly (readonly [label: string, names: readonly string[]])[] = [
  // In a good verdict every GPU's root is trusted. If one is simulated, the verdict reports it.
  ['root', ['chain-root', 'pck-chain', 'gpu-0/gpu-chain-root']],
  ['measurement', ['measurement', 'mr-td']],
  ['kernel', [rtmrPinName]],
  ['chips', ['chip-list']],
  ['TCB', ['tcb-level']],
  ['workloads', ['pin-allowlist']],
  ['prompts', ['workload-upstreams', 'prompts']],
  ['settings', ['workload-settings']],
  ['operator', ['pin-operator-key']],
  ['VMPL', ['vmpl']],
  ['firmware', ['tcb-floor-snp', 'tcb-floor-microcode']],
  ['revocation', ['chain-revocation', 'revocation']],
  ['log', ['log-included', 'log-witnessed', 'log-age']],
  ['GPUs', ['gpu-required', 'gpu-evidence']],
  ['machine', ['gpu-policy-topology', 'gpu-topology-switches', 'gpu-topology-gpus']],
  ['nonce', ['attestation-nonce', 'report/nonce']],
  ['vTPM', ['vtpm-binding']],
  ['PCRs', ['tpm-expected-pcrs', 'tpm-event-log']],
  ['launched', ['launch-document', 'image', 'launch-measurement']],
  ['disk', ['image-root-hash']],
  ['source', [sourceCheckName]],
  ['built', ['request']],
  ['fetched', ['fetch']],
  ['artifacts', ['artifact-digests']],
  ['own key', ['own-key']],
  ['login keys', ['login-keys']],
  ['reach', ['reach']],
  ['secrets', ['secrets']],
  ['published', ['published']],
  ['host key', ['known-hosts']],
  ['TLS key', ['tls-binding']],
  ['response', ['response-receipt']],
  ['upstream', [upstreamCheckName]],
  ['key', [keyMakerCheckName, 'gateway-key-maker']],
]

/** Returns a line for each label with a finding, including the root, the VMPL and the firmware. */
export function basisLines(checks: readonly Check[]): string[] {
  return BASIS.flatMap(([label, names]) => {
    const isTelling = ({ outcome, reason }: Check) => outcome === 'pass' && reason !== ''
    const found = names.flatMap(name => checks.find(check => check.name === name && isTelling(check)) ?? [])
    return found.length === 0 ? [] : [`${label}: ${found.map(found => oneLine(found.reason)).join('; ')}`]
  })
}

/**
 * Returns one line for each reason, however many checks have it, and one for the same group of several reports. If
 * there is no space, the line with the counts must suffice.
 */
function grouped(checks: readonly Check[], linesMax: number): string[] {
  if (linesMax < 1) return []
  const lines = new Map<string, Check[]>()
  for (const check of checks) {
    const key = check.name.includes('/') ? groupName(check) : `: ${check.reason}`
    lines.set(key, [...(lines.get(key) ?? []), check])
  }
  const texts = [...lines.values()].map(lineOf)
  if (texts.length <= linesMax) return texts
  const shown = Math.max(0, linesMax - 1)
  return [...texts.slice(0, shown), `and ${texts.length - shown} more, see --verbose`]
}

function lineOf(checks: readonly Check[]): string {
  const [first, ...more] = checks
  if (first === undefined) return ''
  const reason = new Set(checks.map(check => check.reason)).size === 1 ? first.reason : `${first.reason}, and so on`
  if (first.name.includes('/') && more.length > 0) {
    const members = /^(?:gpu|switch)-\d/.test(first.name) ? 'devices' : 'receipts'
    return `${oneLine(groupName(first))} of ${checks.length} ${members}: ${oneLine(reason)}`
  }
  return `${oneLine(first.name)}${more.length === 0 ? '' : ` and ${more.length} more`}: ${oneLine(reason)}`
}

const labelChars = 13

function section(label: string, lines: readonly string[]): string[] {
  return lines.map((line, at) => {
    const whole = `${(at === 0 ? label : '').padEnd(labelChars)}${line}`
    return whole.length <= verdictLineCharsMax ? whole : `${whole.slice(0, verdictLineCharsMax - 1)}…`
  })
}

export function checkCounts({ checks }: ShownVerdict): string {
  const count = (outcome: Check['outcome']) => checks.filter(check => check.outcome === outcome).length
  const required = checks.filter(check => check.outcome === 'not-checked' && check.required).length
  const open = count('not-checked') - required
  const missing = required === 0 ? '' : `${required} required but not made, `
  const made = `${count('pass')} passed, ${count('fail')} failed, ${missing}${open} not ${missing === '' ? 'made' : 'required'}`
  return `${checks.length} checks: ${made}; --verbose prints each`
}
