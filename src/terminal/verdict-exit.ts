// Why a verdict is not good, in one word, and its exit code: a forged report is another matter than an old one that a
// policy refuses, or an unreadable file. Pure.

import type { Check, Verdict } from '../attest/verdict.ts'
import { EXIT, type ExitCode } from './exit.ts'

/** A verdict has the first of these that its checks have: what cannot be read is not judged, nor compared. */
export const FAILURES = ['input', 'evidence', 'policy', 'connection'] as const
export type Failure = (typeof FAILURES)[number]

const EXITS = {
  evidence: EXIT.failed,
  input: EXIT.usage,
  policy: EXIT.refused,
  connection: EXIT.unreachable,
} as const satisfies Record<Failure, ExitCode>

/** Facts about a verdict besides its checks. */
export type Sorting = {
  /** Checks of which some checks of the verdict are groups, such as those of a receipt. */
  readonly details?: readonly Check[] | undefined
  /** Names of checks that compare with a file of the relying party's own: policy, which elsewhere is evidence. */
  readonly named?: ReadonlySet<string> | undefined
}

const nothingNamed: ReadonlySet<string> = new Set()

/**
 * Null for a good verdict. A check that is not known here counts as evidence. Where every check that was made passed,
 * what is missing was not given: input.
 */
export function failureOf(
  { ok, checks }: Verdict,
  { details = [], named = nothingNamed }: Sorting = {},
): Failure | null {
  if (ok) return null
  const members = details.filter(isFailed)
  const kinds = checks.filter(isFailed).flatMap(check => kindsOf(check, members, named))
  // A quote beside a report that a policy refuses was not judged: nothing may call it genuine.
  const isQuoteOpen = checks.some(check => check.name === reportSum && isFailed(check))
  if (isQuoteOpen && !kinds.every(kind => kind === 'input')) return 'evidence'
  return FAILURES.find(failure => kinds.includes(failure)) ?? 'input'
}

export function exitCodeOfVerdict(verdict: Verdict, sorting: Sorting = {}): ExitCode {
  const failure = failureOf(verdict, sorting)
  return failure === null ? EXIT.ok : EXITS[failure]
}

function isFailed({ outcome }: Check): boolean {
  return outcome === 'fail'
}

/** A group has the kinds of its members, where they are among `members`: its reason has each one's name before it. */
function kindsOf({ name, reason }: Check, members: readonly Check[], named: ReadonlySet<string>): Failure[] {
  const own = members.filter(member => `; ${reason}`.includes(`; ${member.name}: `))
  if (name === reportSum) return []
  if (!name.includes('/') || own.length === 0) return [kindOf(name, named)]
  // The summary of a receipt's hardware evidence only reports that other checks failed: those decide, in any group.
  const isSummed = members.some(member => member.name !== evidenceSum)
  return own.filter(member => !(isSummed && member.name === evidenceSum)).map(member => kindOf(member.name, named))
}

/** A check of vTPMs that only repeats that a check of the SNP report beside it did not pass. */
export const reportSum = 'vtpm-evidence'

/** A check of receipts (attest/receipt/verify.ts) that sums up those of the hardware evidence beside it. */
const evidenceSum = 'evidence'

function kindOf(name: string, named: ReadonlySet<string>): Failure {
  const last = name.slice(name.lastIndexOf('/') + 1)
  if (named.has(last)) return 'policy'
  if (last === 'connection' || last === 'log-connection') return 'connection'
  if (INPUT_CHECKS.has(last) || last.endsWith('-format')) return 'input'
  return POLICY_CHECKS.has(last) || POLICY_PREFIXES.some(prefix => last.startsWith(prefix)) ? 'policy' : 'evidence'
}

/** Checks that something can be read, besides those that end with `-format`. */
const INPUT_CHECKS: ReadonlySet<string> = new Set([
  ...['report-form', 'certificate-table', 'vek-certificate', 'quote-form', 'collateral-form', 'gateway-key-maker'],
])

/** Checks of policies' groups of fields (appraise.ts of attest/policy and attest/tdx), of pins and of floors. */
const POLICY_PREFIXES = [
  ...['pin-', 'tcb-floor', 'guest-policy-', 'platform-info-', 'key-info-', 'minimum-', 'maximum-', 'tcb-order-'],
  ...['committed-', 'td-attributes-', 'gpu-policy-'],
]

/** Checks of single fields of a policy, and of other values that the relying party names. */
const POLICY_CHECKS: ReadonlySet<string> = new Set([
  ...['product-allowed', 'signer', 'reserved-bytes', 'vmpl', 'measurement', 'host-data', 'report-data', 'chip-id'],
  ...[
    'chip-list',
    'id-key-digest',
    'author-key-digest',
    'operator-key',
    'firmware-order',
    'report-version',
    'family-id',
  ],
  ...['image-id', 'report-id', 'report-id-ma', 'processor', 'chip-id-masked', 'launch-mitigations'],
  ...['current-mitigations', 'csp-id', 'crl-age', 'certificate-entries', 'expected-image-name', 'workload-upstreams'],
  ...['workload-pinned', 'workload-settings', 'image'],
  ...['response-upstream', 'gateway-configuration', 'prompts', 'own-key', 'login-keys', 'reach', 'gateway-key'],
  'secrets',
  'published',
  ...['expected-operator-key', 'tpm-expected-pcrs', 'vtpm-measurement', 'log-witnessed', 'log-age'],
  'gpu-devtools',
  // TDX quotes.
  ...['quote-version', 'header-reserved', 'user-data', 'tee-tcb-svn', 'tee-tcb-svn2', 'mr-seam', 'mr-signer-seam'],
  ...['seam-attributes', 'xfam', 'mr-td', 'mr-config-id', 'mr-owner', 'mr-owner-config', 'rtmr0', 'rtmr1', 'rtmr2'],
  ...['rtmr3', 'mr-service-td', 'fmspc', 'ppid', 'tcb-status', 'advisories', 'tcb-date'],
  ...['tcb-evaluation-data-number'],
  'collateral-age',
  'event-policy',
])
