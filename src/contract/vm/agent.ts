// Wire between host and guest agent, over virtio-serial port `strongroom.agent.0`. Pure.
//
// One JSON object a line, LF-terminated, at most `agentLineBytesMax` bytes. The host sends requests; the guest responds
// with the same id. Ids begin with a prefix that the host draws per connection, so that a response to an earlier
// connection is recognized and dropped. The host begins each connection with an empty line, which ends a partial line
// that an earlier connection may have left.

import { OneOf } from '../check.ts'
import { Closed, OrNull, Sha384 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { DrawnKey, Network } from './claim.ts'

export { Claim, DrawnKey, Network } from './claim.ts'

export const agentProtocol = 2
export const agentLineBytesMax = 131_072
export const agentPortName = 'strongroom.agent.0'

/** The gateway's name in instances; it exists in them alone (`.internal` is reserved for private use). */
export const guestGatewayName = 'inference.strongroom.internal'

const Base64Key = Type.String({ pattern: '^[A-Za-z0-9+/]{43}=$', description: '32 bytes, standard base64' })
const Base64Url = (bytesMin: number, bytesMax: number, description: string) =>
  Type.String({
    pattern: '^[A-Za-z0-9_-]+$',
    minLength: Math.ceil((bytesMin * 4) / 3),
    maxLength: Math.ceil((bytesMax * 4) / 3),
    description: `${description}; base64url without padding`,
  })

/** The guest's description of itself. Its keys are made at boot inside the VM and are only in its memory. */
export const Hello = Closed({
  protocol: Type.Literal(agentProtocol),
  version: Type.String({ maxLength: 64 }),
  /** Random per boot: another value means that the guest has restarted. */
  bootId: Type.String({ pattern: '^[0-9a-f-]{36}$' }),
  /** X25519 public key that claims are sealed to (nacl box). */
  boxKey: Base64Key,
  /** SSH host key as `ssh-ed25519 AAAA…`, no comment; null for a guest that nobody logs in to. */
  sshHostKey: OrNull(Type.String({ maxLength: 512 })),
  /** Id of the claim in force, null before the first. */
  claimId: OrNull(Type.String({ maxLength: 64 })),
  /** Where this guest's SNP reports come from: a device of its own, or nowhere. */
  platform: OneOf(['snp', 'none']),
})
export type Hello = Static<typeof Hello>

/** nacl box (X25519, XSalsa20-Poly1305) of a Claim's UTF-8 JSON from a one-time host key to the guest's boxKey. */
export const SealedClaim = Closed({
  ephemeralKey: Base64Key,
  nonce: Type.String({ pattern: '^[A-Za-z0-9+/]{32}$', description: '24 bytes, standard base64' }),
  box: Type.String({ maxLength: 49_152, description: 'standard base64' }),
})
export type SealedClaim = Static<typeof SealedClaim>

/** A claim in force: sshd listens and presents `sshHostKey`. */
export const Claimed = Closed({
  claimId: Type.String({ maxLength: 64 }),
  sshHostKey: Type.String({ maxLength: 512 }),
  /** The gateway key that the guest drew; null if the claim asks for none. Every repetition has the same key. */
  key: OrNull(DrawnKey),
})
export type Claimed = Static<typeof Claimed>

/** Launch values that a simulated platform reports for this VM. A guest with its own report device refuses them. */
export const SimulatedLaunch = Closed({ measurement: Sha384, operatorKey: Sha384 })
export type SimulatedLaunch = Static<typeof SimulatedLaunch>

/** Fresh evidence of a claimed guest: its signed `claim` statement over the nonce. The host adds certificates. */
export const GuestEvidence = Closed({
  statement: Base64Url(1, 4096, 'Deterministic CBOR, attest/receipt/statement.ts'),
  keys: Closed({
    ed25519: Base64Url(32, 32, 'RFC 8032'),
    mldsa65: Base64Url(1952, 1952, 'FIPS 204'),
    x25519: Base64Url(32, 32, 'RFC 7748'),
    mlkem768: Base64Url(1184, 1184, 'FIPS 203'),
  }),
  signatures: Closed({
    ed25519: Base64Url(64, 64, 'Over the statement'),
    mldsa65: Base64Url(3309, 3309, 'Over the statement'),
  }),
  /** The SNP report whose REPORT_DATA is SHA-512 of the statement; null where the host's simulation makes it. */
  report: OrNull(Base64Url(1184, 1184, 'AMD 56860, table 23')),
  /** A quote over the same 64 bytes as the report (attest/tpm/evidence.ts); left out without a working TPM. */
  tpm: Type.Optional(Base64Url(1, 16_384, 'Deterministic CBOR')),
})
export type GuestEvidence = Static<typeof GuestEvidence>

const id = Type.String({ minLength: 1, maxLength: 64 })

export const AgentRequest = Type.Union([
  Closed({ id, op: Type.Literal('hello') }),
  Closed({ id, op: Type.Literal('network'), network: Network }),
  Closed({ id, op: Type.Literal('claim'), sealed: SealedClaim }),
  Closed({
    id,
    op: Type.Literal('evidence'),
    nonce: Base64Url(32, 32, 'Of the relying party'),
    simulated: OrNull(SimulatedLaunch),
  }),
  /** The whole receipt, as JSON, that the host made of the guest's last evidence: for the verifier inside the guest. */
  Closed({ id, op: Type.Literal('receipt'), receipt: Type.String({ maxLength: 98_304 }) }),
  Closed({ id, op: Type.Literal('shutdown') }),
])
export type AgentRequest = Static<typeof AgentRequest>

/**
 * Why a guest refuses: the line is no request of this wire, the claim cannot be opened, another claim is in force,
 * there is no claim yet, the set-up failed.
 */
export const AgentErrorCode = OneOf(['bad_request', 'bad_claim', 'claimed', 'unclaimed', 'failed'])
export type AgentErrorCode = Static<typeof AgentErrorCode>

export const AgentResponse = Type.Union([
  Closed({ id, ok: Type.Literal(true), hello: Hello }),
  Closed({ id, ok: Type.Literal(true), claimed: Claimed }),
  Closed({ id, ok: Type.Literal(true), evidence: GuestEvidence }),
  Closed({ id, ok: Type.Literal(true) }),
  Closed({ id, ok: Type.Literal(false), code: AgentErrorCode, message: Type.String({ maxLength: 1024 }) }),
])
export type AgentResponse = Static<typeof AgentResponse>
