// Verifies a gateway's attestation document against the relying party's expectations: its five receipts, individually
// and together. Pure.
//
// Each receipt has about seventy checks. The verdict groups them, one group for each check that the contract (4.2)
// requires; the verdict of each receipt has every check.

import type { TrustedRoot } from '../attest/amd/roots.ts'
import { sha256 } from '../attest/hash.ts'
import type { JudgedGpu } from '../attest/nvidia/judge.ts'
import { floorAgeCheck } from '../attest/policy/floors.ts'
import type { Policy } from '../attest/policy/policy.ts'
import type { HybridVerifiers } from '../attest/receipt/hybrid-verify.ts'
import type { PublicKeys } from '../attest/receipt/public-keys.ts'
import { decodeReceipt } from '../attest/receipt/receipt.ts'
import type { StatementOf } from '../attest/receipt/statement.ts'
import { judgeReceipt, type ReceiptQuestion, type ReceiptVerdict } from '../attest/receipt/verify.ts'
import { type Check, check, fail, notChecked, pass, type Verdict, verdict } from '../attest/verdict.ts'
import { equalConstantTime, fromBase64Url, toHex } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import { checkValue } from '../contract/check.ts'
import { AttestationResponse, type AttestedWorkload } from '../contract/http/attestation.ts'
import { admits } from '../contract/vm/allowlist.ts'
import type { Exposure } from '../contract/vm/exposure.ts'
import type { WorkloadDocument } from '../contract/vm/workload.ts'
import type { ExpectedAllowlist } from './allowlist.ts'
import { type JudgeGpus, judgeGpus } from './gpus.ts'
import { PINS, type Pinned, type Pins, pinChecks } from './pins.ts'
import { COMMON_GROUPS, type Group, groupsOf, nonceCheck, withCrl, withFloors } from './receipt-groups.ts'
import { type ReadWorkload, readWorkload, workloadChecks } from './workload.ts'

/** Size limit. A real receipt has about 20 KiB, so a document of five is far smaller. */
export const attestationBytesMax = 2 * 1024 * 1024

/** Length of the random nonce that a relying party sends, in bytes. */
export const nonceBytes = 32

/** `ageMsMax` for a fresh nonce, which the document cannot predate: it only limits clock differences. */
export const freshAgeMsMax = 300_000

export type GatewayQuestion = {
  /** The nonce that was sent. */
  readonly nonce: Uint8Array | 'any'
  /** The time for which to verify, in milliseconds since 1970. The verifier reads no clock. */
  readonly asOf: number
  /** Maximum age of the statements at `asOf`. */
  readonly ageMsMax: number | 'any'
  /** Trusted roots: AMD_ROOTS, and a simulated root (`readSimulatedRoot`) only if the caller chooses to. */
  readonly roots: readonly TrustedRoot[]
  readonly policy: Policy
  /** A caller waives a pin with 'any'; see pins.ts. */
  readonly pins: Pins
  /** Revocation list in DER that replaces the one in each receipt; undefined to use that one. */
  readonly crl: Uint8Array | undefined
  readonly allowlist: ExpectedAllowlist | 'any'
  /** SHA-256 of the public key (SPKI) in the connection's certificate. A page cannot see it, and passes 'any'. */
  readonly tlsSpkiDigest: Uint8Array | 'any'
  /**
   * SHA-256 of the gateway's configuration, which lists its upstreams. 'required': fail if a gateway without
   * workload.json is identified by its allowlist, which does not list them.
   */
  readonly configurationDigest: Uint8Array | 'any' | 'required'
  /**
   * workload.json of a gateway in a VM of its own, as served or as published by the operator: HOST_DATA must be its
   * digest. Null or absent if there is none; HOST_DATA must then be the allowlist's digest.
   */
  readonly workload?: Uint8Array | null
  /** Upstreams outside of the measured VM that may receive prompts: `NAME`, or `NAME=ORIGIN`. Default: none. */
  readonly outside?: readonly string[]
  /** SHA-256 of each accepted workload.json (HOST_DATA). Default: any that the other pins accept. */
  readonly workloads?: readonly Uint8Array[]
  /** Names of accepted settings that reveal more to the host, or retain content. Default: none. */
  readonly allow?: readonly Exposure[]
  /**
   * Judges evidence of GPUs. If absent, only its digest is compared, and the verdict reports that it was not judged.
   */
  readonly gpus?: JudgeGpus
}

export type GatewayVerdict = Verdict & {
  /** True if a receipt's chain ends at a root that is not AMD's: no hardware attests it. */
  readonly simulated: boolean
  readonly receipts: readonly { readonly target: AttestedWorkload; readonly verdict: ReceiptVerdict<'workload'> }[]
  /** The gateway's keys; null if unreadable. Trust them only in a good verdict. */
  readonly keys: PublicKeys | null
  /** The gateway's own statement, under the same conditions as `keys`. */
  readonly gateway: StatementOf<'workload'> | null
  /** Parsed workload.json, under the same conditions; null if there is none, or it is unreadable. */
  readonly workload: WorkloadDocument | null
  /** GPUs of the worker if their evidence was judged, under the same conditions. */
  readonly gpus: readonly JudgedGpu[]
}

/** `verifiers` check the signatures of receipts. */
export type GatewayJudging = GatewayQuestion & { readonly verifiers: HybridVerifiers }

/** Judges the body of GET /attestation. Never throws: unreadable input is a failed check. */
export async function judgeGateway(bytes: Uint8Array, asked: GatewayJudging): Promise<GatewayVerdict> {
  const read = readDocument(bytes)
  const ownWorkload = readWorkload(asked.workload ?? null)
  const question = withWorkload(asked, ownWorkload)
  if (!read.ok) {
    const checks = [fail('attestation-format', read.reason), ...pinChecks(PINS, asked.pins, pinnedBy(asked))]
    return { ...verdict(checks), simulated: false, receipts: [], keys: null, gateway: null, workload: null, gpus: [] }
  }
  const { document } = read
  const nonce = fromBase64Url(document.nonce) ?? new Uint8Array(0)
  const receipts = await Promise.all(
    document.receipts.map(async ({ target, receipt }) => {
      const given = withCrl(receipt, question.crl)
      // Every receipt must contain the document's nonce, which is compared with the caller's below.
      return {
        target,
        verdict: withFloors(await judgeReceipt(given, questionOf(target, nonce, question)), question.pins),
      }
    }),
  )
  const statements = receipts.map(receipt => receipt.verdict.statement)
  const gateway = statements[0] ?? null
  const worker = receipts.find(({ target }) => target === 'inference-worker')?.verdict.statement ?? null
  const { gpuEvidence: sent } = document
  const gpus = judgeGpus({ worker, workload: ownWorkload, sent, judge: asked.gpus, asOfMs: asked.asOf })
  const checks = [
    pass('attestation-format', 'five receipts, in the order and under the names of the contract'),
    ...pinChecks(PINS, asked.pins, pinnedBy(asked)),
    nonceCheck(nonce, question.nonce),
    togetherCheck(statements),
    tlsCheck(gateway, question.tlsSpkiDigest),
    ...(question.pins.tcb === 'any' ? [] : [floorAgeCheck(question.asOf)]),
    configurationCheck(gateway, question),
    ...workloadChecks(gateway, ownWorkload, {
      outside: asked.outside ?? [],
      workloads: asked.workloads ?? 'any',
      allow: asked.allow ?? [],
    }),
    ...gpus.checks,
    ...receipts.flatMap(({ target, verdict: judged }) => [
      ...groupsOf(judged.checks, { prefix: `${target}/`, groups: GROUPS, elsewhere: admissionMembers }),
      admissionCheck(target, judged, question.allowlist),
    ]),
  ]
  const simulated = gpus.simulated || receipts.some(receipt => receipt.verdict.simulated)
  // The groups contain every check of the receipts, but the verdict must not depend on the grouping.
  const ok = verdict(checks).ok && receipts.every(receipt => receipt.verdict.ok)
  const [keys, ofWorkload] = [keysOf(document), ownWorkload?.document ?? null]
  return { ok, checks, simulated, receipts, keys, gateway, workload: ofWorkload, gpus: gpus.gpus }
}

type ReadDocument =
  | { readonly ok: true; readonly document: AttestationResponse }
  | { readonly ok: false; readonly reason: string }

function readDocument(bytes: Uint8Array): ReadDocument {
  if (bytes.length > attestationBytesMax) return { ok: false, reason: `${bytes.length} bytes are too many` }
  try {
    const result = checkValue(AttestationResponse, parseJson(bytes, { depthMax: 8 }))
    return result.ok ? { ok: true, document: result.value } : { ok: false, reason: result.problem }
  } catch (error) {
    return { ok: false, reason: messageOf(error) }
  }
}

function questionOf(
  target: AttestedWorkload,
  nonce: Uint8Array,
  { asOf, ageMsMax, roots, policy, pins, allowlist, workload = null, verifiers }: GatewayJudging,
): ReceiptQuestion<'workload'> & Pick<GatewayJudging, 'verifiers'> {
  return {
    kind: 'workload',
    ...{ nonce, asOf, ageMsMax, roots, policy },
    requireCrl: pins.crl !== 'any',
    expected: {
      // The policy checks measurements and the operator's key.
      imageName: 'any',
      operatorKey: 'any',
      target: { equals: target },
      workload: { equals: target },
      // See `admissionCheck`: an allowlist may allow several of each.
      imageDigest: 'any',
      command: 'any',
      allowlistDigest: allowlist === 'any' ? 'any' : { equals: allowlist.digest },
      // See `tlsCheck`. Only the gateway terminates TLS connections.
      tlsSpkiDigest: target === 'gateway' ? 'any' : { equals: null },
      // See `configurationCheck`.
      configurationDigest: target === 'gateway' ? 'any' : { equals: null },
      // See `judgeGpus`.
      gpuEvidenceDigest: target === 'inference-worker' ? 'any' : { equals: null },
    },
    tpm: 'any',
    verifiers,
    ...(workload === null ? {} : { hostData: sha256(workload) }),
  }
}

function keysOf(document: AttestationResponse): PublicKeys | null {
  try {
    return decodeReceipt(document.receipts[0].receipt).keys
  } catch {
    return null
  }
}

/** Requires the same keys, image, operator and allowlist in all five receipts. */
function togetherCheck(statements: readonly (StatementOf<'workload'> | null)[]): Check {
  const name = 'attestation-together'
  const identities = statements.map(statement => {
    if (statement === null) return null
    const { keysDigest, image, operatorKey, allowlistDigest } = statement
    return [keysDigest, image.measurement, operatorKey, allowlistDigest].map(toHex).join(' ')
  })
  if (identities.includes(null)) return notChecked(name, 'a receipt cannot be read', true)
  const isOne = new Set(identities).size === 1
  return check(name, isOne, 'the receipts differ in keys, image, operator or allowlist', 'one gateway made all five')
}

function tlsCheck(gateway: StatementOf<'workload'> | null, connection: Uint8Array | 'any'): Check {
  const name = 'tls-binding'
  if (connection === 'any') return notChecked(name, 'there is no connection to compare with', false)
  if (gateway === null) return notChecked(name, "the gateway's receipt cannot be read", true)
  const attested = gateway.tlsSpkiDigest
  const holds = attested !== null && equalConstantTime(attested, connection)
  const found = attested === null ? 'no TLS key' : toHex(attested)
  return check(
    name,
    holds,
    `the connection's key is ${toHex(connection)}, the receipt names ${found}`,
    toHex(connection),
  )
}

function configurationCheck(gateway: StatementOf<'workload'> | null, question: GatewayQuestion): Check {
  const { configurationDigest: expected, allowlist, policy } = question
  const name = 'gateway-configuration'
  if (gateway === null) return notChecked(name, "the gateway's receipt cannot be read", true)
  const found = gateway.configurationDigest === null ? 'none' : toHex(gateway.configurationDigest)
  if (typeof expected === 'string') {
    const reason = `${found}: no configuration is expected; its upstreams are not known`
    const isNeeded = expected === 'required' && (allowlist !== 'any' || policy.hostData !== 'any')
    return isNeeded ? fail(name, `${reason}: name it, or say 'any'`) : notChecked(name, reason, false)
  }
  return check(name, found === toHex(expected), `the receipt names ${found}, not ${toHex(expected)}`, found)
}

/** Takes expectations that the caller leaves open from workload.json: HOST_DATA binds it, and a pin binds HOST_DATA. */
function withWorkload(question: GatewayJudging, workload: ReadWorkload | null): GatewayJudging {
  if (workload === null || workload.document === null) return question
  const { digest, allowlist } = workload
  return {
    ...question,
    allowlist: question.allowlist === 'any' ? allowlist : question.allowlist,
    configurationDigest: typeof question.configurationDigest === 'string' ? digest : question.configurationDigest,
  }
}

/**
 * Returns the pinned values. Accepting a workload.json identifies its operator, because it binds more than an
 * allowlist.
 */
function pinnedBy({ policy, allowlist, workload = null, workloads }: GatewayQuestion): Pinned {
  return { policy, allowlist, hasWorkload: workload !== null, workloadCount: workloads?.length ?? 0 }
}

const GROUPS: readonly Group[] = [
  ...COMMON_GROUPS,
  {
    name: 'identity',
    members: [
      'statement-kind',
      'expected-target',
      'expected-workload',
      'expected-tls-spki-digest',
      'expected-configuration-digest',
      'expected-gpu-evidence-digest',
    ],
  },
  {
    name: 'allowlist',
    members: ['expected-allowlist-digest', 'host-data-allowlist', 'host-data'],
    decides: { check: 'expected-allowlist-digest', otherwise: 'no allowlist is expected; name yours by --allowlist' },
  },
]
/** `admissionCheck` compares these, because it has the allowlist. */
const admissionMembers = ['expected-image-digest', 'expected-command']

/** Compares image digest and command by the gateway's own rule. */
function admissionCheck(
  target: AttestedWorkload,
  { statement }: ReceiptVerdict<'workload'>,
  expected: ExpectedAllowlist | 'any',
): Check {
  const name = `${target}/admission`
  if (statement === null) return notChecked(name, 'the receipt cannot be read', true)
  const { imageDigest, command } = statement
  const shown = `image ${toHex(imageDigest)}, command ${JSON.stringify(command)}`
  if (expected === 'any') return notChecked(name, `${shown}: no allowlist is expected`, false)
  const admission = admits(expected.allowlist, { workload: target, imageDigest, command })
  return admission.ok ? pass(name, shown) : fail(name, admission.fault.message)
}
