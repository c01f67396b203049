// Verifies a build VM's evidence at dispatch and at completion: every expectation is exact. Pure.
//
// Expectations come from the build's row, from the launch in the ledger and, at completion, from the proof at dispatch.
// The VM computes the source's tree id, which must be the same before source code ran and at the end.

import { sha256 } from '../attest/hash.ts'
import { NETWORK_POLICIES } from '../attest/provenance/network-policy.ts'
import { decodeReceipt } from '../attest/receipt/receipt.ts'
import { nativeVerifiers, verifyReceipt } from '../attest/receipt/verifiers.ts'
import type { ReceiptVerdict } from '../attest/receipt/verify.ts'
import { fromHex, toHex } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { AttestedStage } from '../contract/vm/build-agent.ts'
import type { VmEvidence } from '../vm/engine.ts'
import {
  failedChecks,
  type HostTrust,
  launchPolicy,
  readLaunch,
  strangeOperatorKey,
} from '../vm/evidence/launch-policy.plan.ts'

/** Content of the verified receipts of one build, digests in hexadecimal. */
export type BuildProof = {
  readonly dispatch: {
    /** SHA-256 of the statement. */
    readonly statement: string
    readonly keys: string
    readonly source: string
  }
  readonly measurement: string
  readonly simulated: boolean
  /** Null until completion. */
  readonly provenance: string | null
}

/** A build VM's statement, and the host's own record with which it is judged. */
type BuildStatement = Omit<VmEvidence, 'simulated'>

export type BuildQuestion = {
  readonly stage: AttestedStage
  readonly jobId: string
  /** Hexadecimal. */
  readonly nonce: string
  /** Whether its order allows fetching. */
  readonly mayFetch: boolean
  readonly asOf: number
  readonly trust: HostTrust
  /** Proof at dispatch; null while dispatching. */
  readonly earlier: BuildProof | null
}

/** `failed`: each check that did not pass, with its reason. */
export type BuildJudgement =
  | { readonly ok: true; readonly proof: BuildProof }
  | { readonly ok: false; readonly failed: readonly string[] }

/** Judges evidence. Never throws: unreadable evidence fails. */
export async function judgeBuild(evidence: BuildStatement, question: BuildQuestion): Promise<BuildJudgement> {
  try {
    const isDispatch = question.stage === 'dispatch'
    if (isDispatch !== (question.earlier === null)) return bad(['stage: completion follows dispatch, once'])
    const stranger = strangeOperatorKey(question.trust, evidence.operatorKey)
    if (stranger !== null) return bad([stranger])
    return isDispatch ? await judgeDispatch(evidence, question) : await judgeCompletion(evidence, question)
  } catch (error) {
    return bad([messageOf(error)])
  }
}

async function judgeDispatch(evidence: BuildStatement, question: BuildQuestion): Promise<BuildJudgement> {
  const common = commonOf(evidence, question)
  const verdict = await verifyReceipt(evidence.receipt, {
    ...common.question,
    kind: 'build-dispatch',
    expected: { ...common.expected, jobId: { equals: question.jobId }, sourceDigest: 'any', ...forClients },
  })
  const failed = failedOf(verdict, question.trust)
  if (failed.length > 0 || verdict.statement === null) return bad(failed)
  const { statement, simulated } = verdict
  return {
    ok: true,
    proof: {
      dispatch: {
        statement: toHex(sha256(decodeReceipt(evidence.receipt).statement)),
        keys: toHex(statement.keysDigest),
        source: toHex(statement.sourceDigest),
      },
      measurement: toHex(statement.image.measurement),
      simulated,
      provenance: null,
    },
  }
}

/** Clients check these fields against their request; the host itself set them in the order. */
const forClients = { orderDigest: 'any', fetchProxy: 'any', fetchMirror: 'any', fetchAuthoritiesDigest: 'any' } as const

async function judgeCompletion(evidence: BuildStatement, question: BuildQuestion): Promise<BuildJudgement> {
  const { earlier } = question
  if (earlier === null) return bad(['stage: completion without dispatch'])
  const common = commonOf(evidence, question)
  const verdict = await verifyReceipt(evidence.receipt, {
    ...common.question,
    kind: 'build',
    expected: {
      ...common.expected,
      dispatchDigest: { equals: decodeHex(earlier.dispatch.statement) },
      sourceDigest: { equals: decodeHex(earlier.dispatch.source) },
      // Compared with the result's, which arrives later.
      provenanceDigest: 'any',
    },
  })
  const failed = failedOf(verdict, question.trust)
  if (failed.length > 0 || verdict.statement === null) return bad(failed)
  const { statement } = verdict
  // Keys are generated at boot and stay in the VM's memory. Others belong to another VM, or another boot.
  if (toHex(statement.keysDigest) !== earlier.dispatch.keys) return bad(['keys-digest: not the keys of the dispatch'])
  return { ok: true, proof: { ...earlier, provenance: toHex(statement.provenanceDigest) } }
}

function commonOf({ launch, operatorKey }: BuildStatement, { nonce, asOf, trust, mayFetch }: BuildQuestion) {
  return {
    question: {
      nonce: decodeHex(nonce),
      asOf,
      // The nonce is the client's, new for each build; a guest's clock proves nothing.
      ageMsMax: 'any',
      roots: trust.roots,
      requireCrl: true,
      policy: launchPolicy({ document: launch, workload: null, operatorKey }),
      tpm: 'any',
      verifiers: nativeVerifiers,
    },
    expected: {
      imageName: { equals: readLaunch(launch).image.name },
      operatorKey: { equals: operatorKey },
      networkPolicy: { equals: mayFetch ? NETWORK_POLICIES.fetchOnly : NETWORK_POLICIES.none },
    },
  } as const
}

function failedOf(verdict: ReceiptVerdict, trust: HostTrust): string[] {
  const failed = failedChecks(verdict, trust)
  return verdict.ok || failed.length > 0 ? failed : ['verdict: not good']
}

function bad(failed: readonly string[]): BuildJudgement {
  return { ok: false, failed }
}

function decodeHex(hex: string): Uint8Array {
  const bytes = fromHex(hex)
  if (bytes === null) throw new TypeError('not hexadecimal')
  return bytes
}
