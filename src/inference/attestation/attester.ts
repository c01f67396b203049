// Makes the five receipts of an attestation, for one caller at a time (turns.ts), within a bounded time. Effects: the
// evidence source.

import { sha256 } from '../../attest/hash.ts'
import { gpuNonce } from '../../attest/nvidia/bound.ts'
import { issueReceipt } from '../../attest/receipt/issue.ts'
import { keysDigest } from '../../attest/receipt/public-keys.ts'
import type { Platform, ReceiptEvidence } from '../../attest/receipt/receipt.ts'
import type { Image } from '../../attest/receipt/statement.ts'
import { decodeReport } from '../../attest/report/report.ts'
import { assert } from '../../base/assert.ts'
import { equalConstantTime } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { ATTESTED_WORKLOADS, type AttestationResponse, type AttestedWorkload } from '../../contract/http/attestation.ts'
import type { ReceiptKeys } from './receipt-keys.ts'
import { NetworkTurns } from './turns.ts'

/** Source of the gateway's evidence. */
export type EvidenceOrigin =
  | {
      readonly kind: 'available'
      readonly platform: Platform
      readonly image: Image
      /** SHA-384 of the ID key; 48 zero bytes without one. */
      readonly operatorKey: Uint8Array
      /** HOST_DATA of its launch: SHA-256 of workload.json; null if a simulator uses the allowlist's digest. */
      readonly hostData: Uint8Array | null
      /**
       * Makes a fresh report over 64 bytes with that HOST_DATA. Must settle within a bounded time, because the next
       * caller waits.
       */
      readonly evidence: (reportData: Uint8Array, hostData: Uint8Array) => Promise<ReceiptEvidence>
    }
  | { readonly kind: 'unavailable'; readonly reason: string }

/** Used on SEV-SNP if the gateway runs outside of any VM. */
export const noEvidenceOnHost: EvidenceOrigin = {
  kind: 'unavailable',
  reason:
    'the gateway runs in the host process, which no hardware attests; only a gateway inside a measured SEV-SNP VM, with its evidence from the agent of that VM, can answer /attestation',
}

export type AdmittedWorkload = {
  readonly target: AttestedWorkload
  readonly workload: AttestedWorkload
  /** SHA-256. */
  readonly imageDigest: Uint8Array
  /** The effective argv. */
  readonly command: readonly string[]
}

/** Throws when one of the five has not been admitted. */
export type DescribeWorkloads = () => AdmittedWorkloads | Promise<AdmittedWorkloads>

export type AdmittedWorkloads = {
  /** In the contract's order. */
  readonly workloads: readonly AdmittedWorkload[]
  /** SHA-256 of the allowlist that admitted them. */
  readonly allowlistDigest: Uint8Array
}

/** Makes evidence of the worker's GPUs for a nonce (attest/nvidia/bound.ts). Must settle within a bounded time. */
export type GpuSource = (nonce: Uint8Array) => Promise<Uint8Array>

/** Receipts, and the GPU evidence that the worker's receipt names; null if the worker has no GPUs. */
export type Attested = {
  readonly receipts: AttestationResponse['receipts']
  readonly gpuEvidence: Uint8Array | null
}

export type AttesterDeps = {
  readonly origin: EvidenceOrigin
  readonly describeWorkloads: DescribeWorkloads
  readonly keys: ReceiptKeys
  /** Returns the SHA-256 of the SPKI of the TLS key in service. */
  readonly tlsSpkiDigest: () => Uint8Array
  /** SHA-256 of the gateway's configuration (configuration.ts). */
  readonly configurationDigest: Uint8Array
  /** Null if the worker has no GPUs. */
  readonly gpus: GpuSource | null
  readonly clock: Clock
  /** Callers in the queue, including the current one. */
  readonly callersMax: number
  /** Least time between the starts of two attestations. */
  readonly gapMs: number
  /** Limit for one caller, including its wait in the queue. */
  readonly timeoutMs: number
}

export type Attester = {
  /**
   * Returns all five receipts over the nonce. Calls `accept` at the caller's turn, before any evidence is made, and
   * rethrows what it throws. Fault attestation_unavailable if there is no evidence source, the queue is full, the
   * time is up, or the caller has left.
   */
  readonly attest: (
    nonce: Uint8Array,
    options: { readonly address: () => string; readonly accept: () => void; readonly signal: AbortSignal },
  ) => Promise<Attested>
}

export function createAttester(deps: AttesterDeps): Attester {
  const { origin, clock, callersMax, gapMs, timeoutMs } = deps
  const turns = new NetworkTurns({ clock, callersMax, gapMs })
  return {
    attest: async (nonce, { address, accept, signal }) => {
      if (origin.kind === 'unavailable') throw unavailable(origin.reason)
      const ended = new AbortController()
      const hasLeft = () => signal.aborted || ended.signal.aborted
      // A caller that leaves keeps its turn until its evidence has arrived, so that a hanging source gets no second
      // request.
      const work = turns.run(address(), AbortSignal.any([signal, ended.signal]), async () => {
        if (hasLeft()) throw unavailable('the caller has left')
        accept()
        return issueAll(deps, origin, { nonce, hasLeft })
      })
      const timeout = clock.sleep(timeoutMs, ended.signal).then(() => {
        throw unavailable(`no evidence within ${timeoutMs} ms`)
      })
      try {
        const attested = await Promise.race([work, timeout])
        if (attested === null) throw unavailable(`${turns.size} callers are waiting already`)
        return attested
      } finally {
        ended.abort()
        for (const promise of [work, timeout]) promise.catch(() => {})
      }
    },
  }
}

async function issueAll(
  { describeWorkloads, keys, tlsSpkiDigest, configurationDigest, gpus, clock }: AttesterDeps,
  origin: Extract<EvidenceOrigin, { kind: 'available' }>,
  caller: { readonly nonce: Uint8Array; readonly hasLeft: () => boolean },
): Promise<Attested> {
  const { workloads, allowlistDigest } = await describeWorkloads()
  const names = workloads.map(item => `${item.target}=${item.workload}`).join(' ')
  assert(
    names === ATTESTED_WORKLOADS.map(kind => `${kind}=${kind}`).join(' '),
    'the workloads are those of the contract',
  )
  const hostData = origin.hostData ?? allowlistDigest
  const evidenceSource = async (reportData: Uint8Array) => {
    const evidence = await origin.evidence(reportData, hostData)
    const isMeasured = equalConstantTime(decodeReport(evidence.report).hostData, hostData)
    if (!isMeasured) throw unavailable('HOST_DATA of the report is not the digest of what is in use')
    return evidence
  }
  const gpuEvidence = await gpus?.(gpuNonce({ nonce: caller.nonce, keysDigest: keysDigest(keys.publicKeys) }))
  const gpuEvidenceDigest = gpuEvidence === undefined ? null : sha256(gpuEvidence)
  const entries: unknown[] = []
  for (const { target, workload, imageDigest, command } of workloads) {
    if (caller.hasLeft()) throw unavailable('the caller has left')
    const receipt = await issueReceipt({
      fields: {
        kind: 'workload',
        nonce: caller.nonce,
        operatorKey: origin.operatorKey,
        image: origin.image,
        target,
        workload,
        imageDigest,
        command,
        allowlistDigest,
        // No client connects to the other workloads.
        tlsSpkiDigest: target === 'gateway' ? tlsSpkiDigest() : null,
        configurationDigest: target === 'gateway' ? configurationDigest : null,
        gpuEvidenceDigest: target === 'inference-worker' ? gpuEvidenceDigest : null,
      },
      publicKeys: keys.publicKeys,
      evidenceSource,
      platform: origin.platform,
      nowMs: clock.nowMs(),
      sign: keys.signStatement,
    })
    entries.push({ target, workload, receipt })
  }
  // The names and their order were asserted above; issueReceipt returns what the schema describes.
  return { receipts: entries as AttestationResponse['receipts'], gpuEvidence: gpuEvidence ?? null }
}

function unavailable(reason: string): Fault {
  return new Fault('attestation_unavailable', reason)
}
