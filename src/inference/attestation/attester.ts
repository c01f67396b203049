// Makes the five receipts of an attestation: one caller after the other, in a queue of bounded length and time. Effects: the evidence source.

import { issueReceipt } from '../../attest/receipt/issue.ts'
import type { Platform, ReceiptEvidence } from '../../attest/receipt/receipt.ts'
import type { Image } from '../../attest/receipt/statement.ts'
import { decodeReport } from '../../attest/report/report.ts'
import { assert } from '../../base/assert.ts'
import { equalConstantTime } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { ATTESTED_WORKLOADS, type AttestationResponse, type AttestedWorkload } from '../../contract/attestation.ts'
import type { ReceiptKeys } from './receipt-keys.ts'

/** What vouches for the gateway. */
export type EvidenceOrigin =
  | {
      readonly kind: 'available'
      readonly platform: Platform
      readonly image: Image
      /** SHA-384 of the ID key; 48 zero bytes without one. */
      readonly operatorKey: Uint8Array
      /**
       * A fresh report over 64 bytes. HOST_DATA must be the allowlist's digest: hardware has it from the launch, a simulator takes it from here.
       * Ends by itself: the next caller waits for it.
       */
      readonly evidence: (reportData: Uint8Array, hostData: Uint8Array) => Promise<ReceiptEvidence>
    }
  | { readonly kind: 'unavailable'; readonly reason: string }

/** On SEV-SNP with the gateway outside of any VM. */
export const noEvidenceOnHost: EvidenceOrigin = {
  kind: 'unavailable',
  reason:
    'the gateway runs in the host process, which no hardware vouches for; only a gateway inside a measured SEV-SNP VM, with its evidence from the agent of that VM, can answer /attestation',
}

export type AdmittedWorkload = {
  readonly target: AttestedWorkload
  readonly workload: AttestedWorkload
  /** SHA-256. */
  readonly imageDigest: Uint8Array
  /** The effective argv. */
  readonly command: readonly string[]
}

/** Throws when one of the five is not there or not admitted. */
export type DescribeWorkloads = () => AdmittedWorkloads | Promise<AdmittedWorkloads>

export type AdmittedWorkloads = {
  /** In the contract's order. */
  readonly workloads: readonly AdmittedWorkload[]
  /** SHA-256 of the allowlist that admitted them. */
  readonly allowlistDigest: Uint8Array
}

export type AttesterDeps = {
  readonly origin: EvidenceOrigin
  readonly describeWorkloads: DescribeWorkloads
  readonly keys: ReceiptKeys
  /** SHA-256 of the SPKI of the TLS key that is in service now. */
  readonly tlsSpkiDigest: () => Uint8Array
  readonly clock: Clock
  readonly random: RandomBytes
  /** Callers that are served or wait. */
  readonly callersMax: number
  /** Waiting included. */
  readonly timeoutMs: number
}

export type Attester = {
  /**
   * All five receipts over the nonce, or a rejection. `accept` is called once it is clear that evidence will be asked for, before it is;
   * what it throws is passed on. Fault attestation_unavailable: no evidence is to be had, too many callers, too late, or the caller has gone.
   */
  readonly attest: (
    nonce: Uint8Array,
    options: { readonly accept: () => void; readonly signal: AbortSignal },
  ) => Promise<AttestationResponse['receipts']>
}

export function createAttester(deps: AttesterDeps): Attester {
  const { origin } = deps
  let callers = 0
  let last: Promise<unknown> = Promise.resolve()
  return {
    attest: async (nonce, { accept, signal }) => {
      if (origin.kind === 'unavailable') throw unavailable(origin.reason)
      if (callers >= deps.callersMax) throw unavailable(`${callers} callers are waiting already`)
      accept()
      callers += 1
      const ended = new AbortController()
      const isGone = () => signal.aborted || ended.signal.aborted
      const work = last.then(async () => await issueAll(deps, origin, { nonce, isGone }))
      // A caller who has given up keeps its place until its evidence is there: a stuck source is not asked again.
      last = work
        .catch(() => {})
        .finally(() => {
          callers -= 1
        })
      const late = deps.clock.sleep(deps.timeoutMs, ended.signal).then(() => {
        throw unavailable(`no evidence within ${deps.timeoutMs} ms`)
      })
      try {
        return await Promise.race([work, late])
      } finally {
        ended.abort()
        late.catch(() => {})
      }
    },
  }
}

async function issueAll(
  { describeWorkloads, keys, tlsSpkiDigest, clock, random }: AttesterDeps,
  origin: Extract<EvidenceOrigin, { kind: 'available' }>,
  caller: { readonly nonce: Uint8Array; readonly isGone: () => boolean },
): Promise<AttestationResponse['receipts']> {
  const { workloads, allowlistDigest } = await describeWorkloads()
  const names = workloads.map(one => `${one.target}=${one.workload}`).join(' ')
  assert(names === ATTESTED_WORKLOADS.map(one => `${one}=${one}`).join(' '), 'the workloads are those of the contract')
  const evidenceSource = async (reportData: Uint8Array) => {
    const evidence = await origin.evidence(reportData, allowlistDigest)
    const isMeasured = equalConstantTime(decodeReport(evidence.report).hostData, allowlistDigest)
    if (!isMeasured) throw unavailable('HOST_DATA of the report is not the digest of the allowlist in use')
    return evidence
  }
  const entries: unknown[] = []
  for (const { target, workload, imageDigest, command } of workloads) {
    if (caller.isGone()) throw unavailable('the caller has gone')
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
        // The other workloads serve no connection of a client's.
        tlsSpkiDigest: target === 'gateway' ? tlsSpkiDigest() : null,
      },
      keys: keys.hybrid,
      evidenceSource,
      platform: origin.platform,
      nowMs: clock.nowMs(),
      random,
      sign: keys.signStatement,
    })
    entries.push({ target, workload, receipt })
  }
  // Names and order were compared above, and issueReceipt gives what the schema describes.
  return entries as AttestationResponse['receipts']
}

function unavailable(reason: string): Fault {
  return new Fault('attestation_unavailable', reason)
}
