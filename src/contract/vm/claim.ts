// What a host hands to an instance: its network, and the claim that makes it somebody's. Parts of the wire in agent.ts, in a file of their own
// because relying parties read them, too. Pure.

import { type Static, Type } from '@sinclair/typebox'
import { OneOf } from '../shape.ts'
import { InferenceGateway } from './inference-gateway.ts'

const closed = { additionalProperties: false } as const
const Ipv4 = Type.String({ pattern: '^[0-9.]{7,15}$' })
const Ipv6 = Type.String({ pattern: '^[0-9a-f:]{2,39}$' })

/** Addresses of the one network interface: a routed /32 behind an on-link gateway, a routed /128 behind one, or both. */
export const Network = Type.Object(
  {
    /** Both are there, or neither. */
    address: Type.Optional(Ipv4),
    gateway: Type.Optional(Ipv4),
    v6: Type.Optional(
      Type.Object(
        {
          address: Ipv6,
          gateway: Ipv6,
          /** Nobody is asked for it: there is no neighbour discovery on this link. */
          gatewayMac: Type.String({ pattern: '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$' }),
        },
        closed,
      ),
    ),
    mtuBytes: Type.Integer({ minimum: 576, maximum: 9000 }),
    resolvers: Type.Array(Type.Union([Ipv4, Ipv6]), { maxItems: 3 }),
  },
  closed,
)
export type Network = Static<typeof Network>

/** What a claimed VM is to become. It is sent only sealed. */
export const Claim = Type.Object(
  {
    claimId: Type.String({ minLength: 1, maxLength: 64 }),
    organization: Type.String({ maxLength: 63 }),
    name: Type.String({ pattern: '^[a-z0-9]{8}$' }),
    hostname: Type.String({ maxLength: 253 }),
    /** Normalized OpenSSH public key line of the customer. */
    publicKey: Type.String({ maxLength: 16_384 }),
    inference: Type.Object(
      {
        baseUrl: Type.String({ maxLength: 512 }),
        /** Of the host in baseUrl; null where DNS knows it. */
        address: Type.Union([Ipv4, Ipv6, Type.Null()]),
        model: Type.String({ maxLength: 256 }),
        /** Which gateway answers at baseUrl; `none` where baseUrl is empty. */
        gateway: InferenceGateway,
        /** The instance's own gateway key; null when no gateway is configured. */
        key: Type.Union([Type.String({ maxLength: 128 }), Type.Null()]),
        /** Context size of the model, prompt and completion together; absent when the host does not know it. */
        contextTokens: Type.Optional(Type.Integer({ minimum: 1, maximum: 16_777_216 })),
      },
      closed,
    ),
    /** What the host says that its firewall, outside of the VM, lets out. The VM repeats it; it cannot see whether it is so. */
    egress: Type.Object(
      {
        /** For the life of the VM. */
        limitBytes: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
        /** `listed`: only names of a list, and what they resolve to; `any`: the public Internet. */
        names: OneOf(['any', 'listed']),
      },
      closed,
    ),
  },
  closed,
)
export type Claim = Static<typeof Claim>
