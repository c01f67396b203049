// A host's messages to an instance: its network, and the claim that gives it to an owner. Pure. Parts of the wire in
// agent.ts, in their own file because relying parties read them too.

import { OneOf } from '../check.ts'
import { Closed, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { InferenceGateway } from './inference-gateway.ts'

const Ipv4 = Type.String({ pattern: '^[0-9.]{7,15}$' })
const Ipv6 = Type.String({ pattern: '^[0-9a-f:]{2,39}$' })

/** Addresses of the one network interface: a routed /32, a routed /128, or both, each behind an on-link gateway. */
export const Network = Closed({
  /** Both are there, or neither. */
  address: Type.Optional(Ipv4),
  gateway: Type.Optional(Ipv4),
  v6: Type.Optional(
    Closed({
      address: Ipv6,
      gateway: Ipv6,
      /** Nobody is asked for it: there is no neighbour discovery on this link. */
      gatewayMac: Type.String({ pattern: '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$' }),
    }),
  ),
  mtuBytes: Type.Integer({ minimum: 576, maximum: 9000 }),
  resolvers: Type.Array(Type.Union([Ipv4, Ipv6]), { maxItems: 3 }),
})
export type Network = Static<typeof Network>

/** The part of a drawn gateway key that leaves its guest: enough to register the key, not to use it. */
export const DrawnKey = Closed({
  /** The key's public part, which names it in the store and in logs. */
  prefix: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  /** SHA-256 of the key's secret, in hexadecimal. */
  secretSha256: Sha256,
})
export type DrawnKey = Static<typeof DrawnKey>

/** The state that a claimed VM gets. It is sent only sealed. */
export const Claim = Closed({
  claimId: Type.String({ minLength: 1, maxLength: 64 }),
  organization: Type.String({ maxLength: 63 }),
  name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
  hostname: Type.String({ maxLength: 253 }),
  /** Normalized OpenSSH public key line of the customer. */
  publicKey: Type.String({ maxLength: 16_384 }),
  inference: Closed({
    baseUrl: Type.String({ maxLength: 512 }),
    /** Address of the host in baseUrl; null if DNS knows it. */
    address: Type.Union([Ipv4, Ipv6, Type.Null()]),
    model: Type.String({ maxLength: 256 }),
    /** Which gateway answers at baseUrl; `none` where baseUrl is empty. */
    gateway: InferenceGateway,
    /** Whether the guest draws a gateway key of its own. The host gets its digest alone (`DrawnKey`). */
    drawsKey: Type.Boolean(),
    /** Context size of the model, prompt and completion together; absent when the host does not know it. */
    contextTokens: Type.Optional(Type.Integer({ minimum: 1, maximum: 16_777_216 })),
  }),
  /** The host's statement of what its firewall, outside of the VM, lets out. The VM repeats it, unchecked. */
  egress: Closed({
    /** For the life of the VM. */
    limitBytes: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    /** `listed`: only names of a list, and what they resolve to; `any`: the public Internet. */
    names: OneOf(['any', 'listed']),
  }),
})
export type Claim = Static<typeof Claim>
