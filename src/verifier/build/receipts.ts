// The two chained receipts of a build by one VM: before any source ran, and after all of it ended. Pure.

import { sha256 } from '../../attest/hash.ts'
import { parsed } from '../../attest/malformed.ts'
import type { ReadEvidence } from '../../attest/provenance/evidence.ts'
import type { PublicKeys } from '../../attest/receipt/public-keys.ts'
import { decodeReceipt } from '../../attest/receipt/receipt.ts'
import { nativeVerifiers, verifyReceipt } from '../../attest/receipt/verifiers.ts'
import type { ReceiptVerdict } from '../../attest/receipt/verify.ts'
import type { SnpReport } from '../../attest/report/report.ts'
import { type Check, check, fail, notChecked } from '../../attest/verdict.ts'
import { equalConstantTime, toHex } from '../../base/bytes.ts'
import { COMMON_GROUPS, type Group, groupsOf, withCrl, withFloors } from '../receipt-groups.ts'
import { type AskedBuild, type ReadResult, sourceDigestOf } from './question.ts'

export type JudgedReceipts = {
  readonly dispatch: ReceiptVerdict<'build-dispatch'>
  readonly completion: ReceiptVerdict<'build'>
  /** The VM's keys, from the completion receipt; null if unreadable. */
  readonly keys: PublicKeys | null
  /** The completion receipt's revocation list, in DER. */
  readonly crl: Uint8Array | undefined
}

/** Judges both receipts. Never throws. */
export async function judgeReceipts(
  { dispatch, completion }: NonNullable<ReadEvidence['receipts']>,
  read: ReadResult,
  question: AskedBuild,
): Promise<JudgedReceipts> {
  const { asOf, roots, policy, pins, nonce } = question
  const common = {
    ...({ nonce, asOf, ageMsMax: 'any', roots, policy, requireCrl: pins.crl !== 'any', tpm: 'any' } as const),
    verifiers: nativeVerifiers,
  }
  const [first, last] = [dispatch, completion].map(receipt => parsed(() => decodeReceipt(receipt)))
  // An unreadable source fails its own check; no value has an empty digest.
  const sourceDigest = { equals: sourceDigestOf(read.provenance) ?? nothing }
  const dispatched = await verifyReceipt(substituted(dispatch, question.crl), {
    ...common,
    kind: 'build-dispatch',
    expected: {
      // The policy checks measurements and the operator's key.
      imageName: 'any',
      operatorKey: 'any',
      jobId: { equals: read.provenance?.predicate.runDetails.metadata.invocationId ?? '' },
      sourceDigest,
      // Compared with the completion's, and with attestations/slsa.json.
      networkPolicy: 'any',
      // Compared with the order in attestations/slsa.json, and with the request.
      orderDigest: 'any',
      fetchProxy: 'any',
      fetchMirror: 'any',
      fetchAuthoritiesDigest: 'any',
    },
  })
  const completed = await verifyReceipt(substituted(completion, question.crl), {
    ...common,
    // Both must contain the same nonce, even if any is accepted.
    nonce: nonce === 'any' ? (dispatched.statement?.nonce ?? 'any') : nonce,
    kind: 'build',
    expected: {
      imageName: 'any',
      operatorKey: 'any',
      dispatchDigest: { equals: first?.ok ? sha256(first.value.statement) : nothing },
      provenanceDigest: { equals: read.provenanceDigest ?? nothing },
      sourceDigest,
      networkPolicy: { equals: dispatched.statement?.networkPolicy ?? '' },
    },
  })
  return {
    dispatch: withFloors(dispatched, pins),
    completion: withFloors(completed, pins),
    keys: last?.ok ? last.value.keys : null,
    crl: last?.ok ? last.value.evidence.crl : undefined,
  }
}

const nothing = new Uint8Array(0)

/** Replaces the revocation list. Returns a value that is not a receipt unchanged; it then fails as a receipt. */
function substituted(receipt: unknown, crl: Uint8Array | undefined): unknown {
  const evidence: unknown = typeof receipt === 'object' && receipt !== null ? Reflect.get(receipt, 'evidence') : null
  if (typeof receipt !== 'object' || receipt === null || typeof evidence !== 'object' || evidence === null)
    return receipt
  return withCrl({ ...receipt, evidence }, crl)
}

const REPORT_DATA: Group = { name: 'report-data', members: ['statement-report-data'] }
const SOURCE: Group = { name: 'source', members: ['expected-source-digest'] }

const DISPATCH_GROUPS: readonly Group[] = [
  ...COMMON_GROUPS.filter(group => group.name !== 'nonce'),
  REPORT_DATA,
  ...COMMON_GROUPS.filter(group => group.name === 'nonce'),
  { name: 'kind', members: ['statement-kind'] },
  { name: 'job', members: ['expected-job-id'] },
  SOURCE,
]

const COMPLETION_GROUPS: readonly Group[] = [
  ...DISPATCH_GROUPS.filter(group => group.name !== 'job' && group !== SOURCE),
  { name: 'chained', members: ['expected-dispatch-digest'] },
  SOURCE,
  { name: 'network-policy', members: ['expected-network-policy'] },
  { name: 'provenance-digest', members: ['expected-provenance-digest'] },
]

/** judgeOrder judges these, together with the order itself. */
const ofOrder = [
  'expected-order-digest',
  'expected-fetch-proxy',
  'expected-fetch-mirror',
  'expected-fetch-authorities-digest',
]

/** This check only repeats that another check is bad, which that check's own group reports. */
const repeating = 'evidence'

/** Returns the summary of a build for relying parties. */
export function receiptChecks({ dispatch, completion }: JudgedReceipts): Check[] {
  return [
    ...groupsOf(dispatch.checks, {
      prefix: 'dispatch/',
      groups: DISPATCH_GROUPS,
      elsewhere: ['expected-network-policy', ...ofOrder, repeating],
    }),
    ...groupsOf(completion.checks, { prefix: 'completion/', groups: COMPLETION_GROUPS, elsewhere: [repeating] }),
    oneVmCheck(dispatch, completion),
    orderCheck(dispatch, completion),
  ]
}

/** Returns the checks of a result without receipts, which our own builders always write. */
export function receiptsMissing(isOwn: boolean): Check[] {
  const reason = 'evidence.json has no receipts of the dispatch and of the completion'
  if (isOwn) return [fail('receipts', `${reason}; this builder always writes both`)]
  return [notChecked('receipts', `${reason}: another builder made it; its report alone vouches`, false)]
}

/** Fields that identify a launch: firmware generates a new REPORT_ID for each. */
const SAME = ['reportId', 'chipId', 'measurement', 'hostData', 'idKeyDigest'] as const satisfies (keyof SnpReport)[]

export function differenceOf(a: SnpReport, b: SnpReport): string | null {
  return SAME.find(field => !equalConstantTime(a[field], b[field])) ?? null
}

function oneVmCheck(dispatch: JudgedReceipts['dispatch'], completion: JudgedReceipts['completion']): Check {
  const name = 'one-vm'
  const [first, last] = [dispatch, completion]
  if (first.report === null || last.report === null || first.statement === null || last.statement === null) {
    return notChecked(name, 'a receipt cannot be read', true)
  }
  if (!equalConstantTime(first.statement.keysDigest, last.statement.keysDigest)) {
    return fail(name, 'dispatch and completion have different keys')
  }
  if (first.statement.image.name !== last.statement.image.name) return fail(name, 'the receipts name different images')
  const difference = differenceOf(first.report, last.report)
  return check(name, difference === null, `the two reports differ in ${difference}`, toHex(last.statement.keysDigest))
}

function orderCheck(dispatch: JudgedReceipts['dispatch'], completion: JudgedReceipts['completion']): Check {
  const name = 'receipts-order'
  const [first, last] = [dispatch.statement, completion.statement]
  if (first === null || last === null) return notChecked(name, 'a receipt cannot be read', true)
  const isInOrder = first.issuedAt <= last.issuedAt
  return check(
    name,
    isInOrder,
    'the completion is older than the dispatch',
    `${last.issuedAt - first.issuedAt} ms between`,
  )
}
