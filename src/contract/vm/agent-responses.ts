// Responses of a guest agent to its host's requests (agent.ts), as the host checks them. Pure.

import { OneOf } from '../check.ts'
import { Base64Url, Closed, OrNull, Sha256 } from '../forms.ts'
import { SignedSnapshot } from '../snapshot.ts'
import { type Static, Type } from '../type.ts'
import { agentProtocol, Base64Key, id } from './agent.ts'
import { DrawnKey } from './claim.ts'
import { publishedEgressBytesMax, publishedMax } from './orders/published.ts'
import { PublishedFacts } from './orders/published-facts.ts'

/** The guest's description of itself. Its keys are made at boot inside the VM and are only in its memory. */
export const Hello = Closed({
  protocol: Type.Literal(agentProtocol),
  version: Type.String({ maxLength: 64 }),
  /** Random per boot: another value means that the guest has restarted. */
  bootId: Type.String({ pattern: '^[0-9a-f-]{36}$' }),
  /** X25519 public key that claims are sealed to (nacl box). */
  boxKey: Base64Key,
  /** SSH host key as `ssh-ed25519 AAAA…`, no comment; null for a guest without logins. */
  sshHostKey: OrNull(Type.String({ maxLength: 512 })),
  /** Id of the claim in force, null before the first. */
  claimId: OrNull(Type.String({ maxLength: 64 })),
  /** Where this guest's SNP reports come from: a device of its own, or nowhere. */
  platform: OneOf(['snp', 'none']),
})
export type Hello = Static<typeof Hello>

/** A claim in force: sshd is started, and presents `sshHostKey` once it listens. */
export const Claimed = Closed({
  claimId: Type.String({ maxLength: 64 }),
  sshHostKey: Type.String({ maxLength: 512 }),
  /** The gateway key that the guest drew; null if the claim requests none. Every repetition has the same key. */
  key: OrNull(DrawnKey),
})
export type Claimed = Static<typeof Claimed>

/**
 * Size of the largest statement of kind `claim`: the receipt and the lines of the channel have room for it.
 * `orderedBytesMax` bounds what orders add.
 */
export const claimStatementBytesMax = 32_768

/** Fresh evidence of a claimed guest: its signed `claim` statement over the nonce. The host adds certificates. */
export const GuestEvidence = Closed({
  statement: Base64Url(1, claimStatementBytesMax, { description: 'Deterministic CBOR, attest/receipt/statement.ts' }),
  keys: Closed({
    ed25519: Base64Url(32, 32, { description: 'RFC 8032' }),
    mldsa65: Base64Url(1952, 1952, { description: 'FIPS 204' }),
    x25519: Base64Url(32, 32, { description: 'RFC 7748' }),
    mlkem768: Base64Url(1184, 1184, { description: 'FIPS 203' }),
  }),
  signatures: Closed({
    ed25519: Base64Url(64, 64, { description: 'Over the statement' }),
    mldsa65: Base64Url(3309, 3309, { description: 'Over the statement' }),
  }),
  /** The SNP report whose REPORT_DATA is SHA-512 of the statement; null if the host's simulation makes it. */
  report: OrNull(Base64Url(1184, 1184, { description: 'AMD 56860, table 23' })),
  /** A quote over the same 64 bytes as the report (attest/tpm/evidence.ts); left out without a working TPM. */
  tpm: Type.Optional(Base64Url(1, 16_384, { description: 'Deterministic CBOR' })),
})
export type GuestEvidence = Static<typeof GuestEvidence>

/**
 * Why a guest refuses: the line is no request of this wire, the claim cannot be opened, another claim is in force,
 * there is no claim yet, the set-up failed, no file has changed since the last snapshot.
 */
export const AgentErrorCode = OneOf(['bad_request', 'bad_claim', 'claimed', 'unclaimed', 'failed', 'unchanged'])
export type AgentErrorCode = Static<typeof AgentErrorCode>

/**
 * `csr`: PKCS #10, DER, for the whole name alone. `chainSha256`: of the PEM chain that the guest serves. `egressBytes`:
 * what answers of the port may use of the VM's egress cap.
 */
export const CertificateRequest = Closed({
  name: PublishedFacts.properties.name,
  csr: Base64Url(1, 1_024),
  chainSha256: OrNull(Sha256),
  egressBytes: Type.Integer({ minimum: 1, maximum: publishedEgressBytesMax }),
})
export type CertificateRequest = Static<typeof CertificateRequest>

/**
 * The answer to `idle`. `isSnapshotDue`: the time of the owner's schedule is over. Left out otherwise, and at the idle
 * end, before which the host takes a snapshot anyway: an earlier release can read that. `published`: the names that
 * the owner publishes ports under; left out without any.
 */
export const IdleAnswer = Closed({
  isIdle: Type.Boolean(),
  isSnapshotDue: Type.Optional(Type.Literal(true)),
  published: Type.Optional(Type.Array(CertificateRequest, { maxItems: publishedMax })),
})
export type IdleAnswer = Static<typeof IdleAnswer>

export const AgentResponse = Type.Union([
  Closed({ id, ok: Type.Literal(true), hello: Hello }),
  Closed({ id, ok: Type.Literal(true), claimed: Claimed }),
  Closed({ id, ok: Type.Literal(true), evidence: GuestEvidence }),
  Closed({ id, ok: Type.Literal(true), ...IdleAnswer.properties }),
  Closed({ id, ok: Type.Literal(true), snapshot: SignedSnapshot }),
  Closed({ id, ok: Type.Literal(true) }),
  Closed({ id, ok: Type.Literal(false), code: AgentErrorCode, message: Type.String({ maxLength: 1024 }) }),
])
export type AgentResponse = Static<typeof AgentResponse>
