// Messages between host and build VM beside contract/vm/agent.ts: one build, in one VM, once. Pure.
//
// Source and result go over the exchange disk, a block device with the serial `exchange`: the host writes the source
// archive from byte 0 before it sends the order; the guest, which has read all of it by then, writes the result
// archive from byte 0. The host polls for progress; it trusts only what the guest's receipts prove.

import { OneOf } from '../check.ts'
import { Base64Url, Closed, OrNull, Sha256, Sha384 } from '../forms.ts'
import { BuildErrorType, BuildStep } from '../http/build.ts'
import { type Static, Type } from '../type.ts'
import { BuildOrder } from './build-order.ts'

export const exchangeSerial = 'exchange'

const Count = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER })

/** One line that a client sees; `seq` counts from 0 without a gap. */
export const BuildLine = Closed({
  seq: Type.Integer({ minimum: 0 }),
  type: BuildStep,
  msg: Type.String({ maxLength: 4096 }),
})
export type BuildLine = Static<typeof BuildLine>

const ATTESTED_STAGES = ['dispatch', 'completion'] as const
export const AttestedStage = OneOf(ATTESTED_STAGES)
export type AttestedStage = Static<typeof AttestedStage>

export const BuildProgress = Closed({
  /** Lines from the requested one on, at most 64 and about 64 KiB. */
  lines: Type.Array(BuildLine, { maxItems: 64 }),
  /** Whether the guest needs its network now; after `done` it never does again, and has taken the interface down. */
  network: OneOf(['unused', 'wanted', 'done']),
  /**
   * Waits for the host to complete the evidence of this stage (`vouch`, then `vouched`); null if it waits for
   * nothing.
   */
  waitsFor: OrNull(AttestedStage),
  result: Type.Union([
    Type.Null(),
    Closed({ status: Type.Literal('ok'), sizeBytes: Count, sha256: Sha256, provenanceSha256: Sha256 }),
    Closed({ status: Type.Literal('failed'), error: Type.String({ maxLength: 8192 }), errorType: BuildErrorType }),
  ]),
})
export type BuildProgress = Static<typeof BuildProgress>

/** Like GuestEvidence of contract/vm/agent.ts, for the pending stage. */
export const BuildEvidence = Closed({
  stage: AttestedStage,
  /** Deterministic CBOR of kind `build-dispatch` or `build` (attest/receipt/statement.ts). */
  statement: Base64Url(1, 4096),
  keys: Closed({
    ed25519: Base64Url(32, 32),
    mldsa65: Base64Url(1952, 1952),
    x25519: Base64Url(32, 32),
    mlkem768: Base64Url(1184, 1184),
  }),
  signatures: Closed({ ed25519: Base64Url(64, 64), mldsa65: Base64Url(3309, 3309) }),
  /** The SNP report whose REPORT_DATA is SHA-512 of the statement; null if the host's simulation makes it. */
  report: OrNull(Base64Url(1184, 1184)),
  /**
   * At completion, for evidence.json: REPORT_DATA is SHA-256 of provenance.json, the nonce, zeros. Null at dispatch,
   * and for a nonce of fewer than 16 bytes. Its `report` is null if the host's simulation makes it.
   */
  provenance: OrNull(Closed({ sha256: Sha256, report: OrNull(Base64Url(1184, 1184)) })),
})
export type BuildEvidence = Static<typeof BuildEvidence>

const id = Type.String({ minLength: 1, maxLength: 64 })

/** Requests that a build VM takes beside `hello`, `network` and `shutdown`. */
export const BUILD_REQUESTS = [
  /** Taken once. Again with the same jobId: no effect. With another: refused as `claimed`. */
  Closed({ id, op: Type.Literal('build'), order: BuildOrder }),
  Closed({ id, op: Type.Literal('progress'), from: Type.Integer({ minimum: 0 }) }),
  /** Refused as `unclaimed` while the guest waits for no evidence. */
  Closed({
    id,
    op: Type.Literal('vouch'),
    simulated: OrNull(Closed({ measurement: Sha384, operatorKey: Sha384 })),
  }),
  /** The completed evidence: the receipt as JSON; at completion also certificates for the provenance's report. */
  Closed({
    id,
    op: Type.Literal('vouched'),
    stage: AttestedStage,
    receipt: Type.String({ maxLength: 98_304 }),
    provenance: OrNull(
      Closed({
        report: Base64Url(1184, 1184),
        vek: Base64Url(1, 4096),
        ask: Base64Url(1, 4096),
        ark: Base64Url(1, 4096),
      }),
    ),
  }),
  /** Ends the build as `cancelled`; everything of it is killed. No effect on one that has ended. */
  Closed({ id, op: Type.Literal('cancel') }),
] as const

export type BuildAgentRequest = Static<(typeof BUILD_REQUESTS)[number]>

export const BUILD_RESPONSES = [
  Closed({ id, ok: Type.Literal(true), progress: BuildProgress }),
  Closed({ id, ok: Type.Literal(true), vouched: BuildEvidence }),
] as const
