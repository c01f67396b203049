// Wire between host and guest agent, over virtio-serial port `strongroom.agent.0`: requests of the host. Pure. Schemas
// of responses, which only the host checks, are in agent-responses.ts.
//
// One JSON object a line, LF-terminated, at most `agentLineBytesMax` bytes. The host sends requests; the guest responds
// with the same id. Ids begin with a prefix that the host draws per connection, so that a response to an earlier
// connection is recognized and dropped. The host begins each connection with an empty line, which ends a partial line
// that an earlier connection may have left.

import { Base64Url, Closed, OrNull, Sha256, Sha384 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Network } from './network.ts'

export const agentProtocol = 2
export const agentLineBytesMax = 131_072
export const agentPortName = 'strongroom.agent.0'

/** The gateway's name in instances; it exists in them alone (`.internal` is reserved for private use). */
export const guestGatewayName = 'inference.strongroom.internal'

export const Base64Key = Type.String({ pattern: '^[A-Za-z0-9+/]{43}=$', description: '32 bytes, standard base64' })

/** nacl box (X25519, XSalsa20-Poly1305) of a Claim's UTF-8 JSON from a one-time host key to the guest's boxKey. */
export const SealedClaim = Closed({
  ephemeralKey: Base64Key,
  nonce: Type.String({ pattern: '^[A-Za-z0-9+/]{32}$', description: '24 bytes, standard base64' }),
  box: Type.String({ maxLength: 49_152, description: 'standard base64' }),
})
export type SealedClaim = Static<typeof SealedClaim>

/** Launch values that a simulated platform reports for this VM. A guest with its own report device refuses them. */
export const SimulatedLaunch = Closed({ measurement: Sha384, operatorKey: Sha384 })
export type SimulatedLaunch = Static<typeof SimulatedLaunch>

/** Both in bytes. */
export const EgressCount = Closed({
  usedBytes: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  limitBytes: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
})
export type EgressCount = Static<typeof EgressCount>

/** A connection for a ciphertext: TCP port of the VM's next hop, and the secret of this one connection. */
export const Transfer = Closed({
  port: Type.Integer({ minimum: 1, maximum: 65_535 }),
  token: Sha256,
})
export type Transfer = Static<typeof Transfer>

export const id = Type.String({ minLength: 1, maxLength: 64 })

export const AgentRequest = Type.Union([
  Closed({ id, op: Type.Literal('hello') }),
  Closed({ id, op: Type.Literal('network'), network: Network }),
  Closed({ id, op: Type.Literal('claim'), sealed: SealedClaim }),
  Closed({
    id,
    op: Type.Literal('evidence'),
    nonce: Base64Url(32, 32, { description: 'Of the relying party' }),
    simulated: OrNull(SimulatedLaunch),
  }),
  /** The whole receipt, as JSON, that the host made of the guest's last evidence: for the verifier inside the guest. */
  Closed({ id, op: Type.Literal('receipt'), receipt: Type.String({ maxLength: 98_304 }) }),
  /** Egress by the host's count. The VM shows it to its owner; nothing else depends on it. */
  Closed({ id, op: Type.Literal('egress'), egress: EgressCount }),
  /**
   * Whether the idle time is over: `minutes`, unless the owner has ordered another; null for none. Sent every minute to
   * a claimed guest. `isSnapshotLost`: the host has not kept the last snapshot that the guest signed, so the next one
   * is due without the time between. For guests that have answered `isSnapshotDue`.
   */
  Closed({
    id,
    op: Type.Literal('idle'),
    minutes: OrNull(Type.Integer({ minimum: 1, maximum: 525_600 })),
    isSnapshotLost: Type.Optional(Type.Literal(true)),
  }),
  /**
   * Packs the owner's files and sends them, encrypted to the owner. The response follows the last byte. `ifChanged`:
   * SHA-256 of the newest one that the host keeps; if it is the guest's last one and no file has changed since, refused
   * as `unchanged`. For guests that have answered `isSnapshotDue`.
   */
  Closed({ id, op: Type.Literal('snapshot'), to: Transfer, ifChanged: Type.Optional(Sha256) }),
  /** Fetches such a ciphertext for the owner's session, which reads it from a pipe of this name. */
  Closed({ id, op: Type.Literal('restore'), from: Transfer, pipe: Type.String({ pattern: '^[a-z0-9]{16}$' }) }),
  /** For a `name` that the guest has answered to `idle`: a PEM chain, or why there is none. */
  Closed({
    id,
    op: Type.Literal('certificate'),
    name: Type.String({ maxLength: 32 }),
    chain: OrNull(Type.String({ maxLength: 16_384 })),
    problem: OrNull(Type.String({ maxLength: 512 })),
  }),
  Closed({ id, op: Type.Literal('shutdown') }),
])
export type AgentRequest = Static<typeof AgentRequest>
/** Fields of the request `certificate`. */
export type IssuedCertificate = Omit<Extract<AgentRequest, { readonly op: 'certificate' }>, 'id' | 'op'>
/** Fields of the request `idle`. */
export type IdlePoll = Omit<Extract<AgentRequest, { readonly op: 'idle' }>, 'id' | 'op'>
