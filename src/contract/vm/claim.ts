// The claim that gives an instance to an owner. Pure. A part of the wire in agent.ts, in a file of its own because
// relying parties read it too, and guests of other kinds take none.

import { OneOf } from '../check.ts'
import { Closed, Sha256 } from '../forms.ts'
import { EgressPolicy } from '../http/egress-policy.ts'
import { type Static, Type } from '../type.ts'
import { InferenceGateway } from './inference-gateway.ts'
import { Ipv4, Ipv6 } from './network.ts'

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
    /** Address of the host in baseUrl; null if DNS resolves it. */
    address: Type.Union([Ipv4, Ipv6, Type.Null()]),
    model: Type.String({ maxLength: 256 }),
    /** Which gateway answers at baseUrl; `none` where baseUrl is empty. */
    gateway: InferenceGateway,
    /** Whether the guest draws a gateway key of its own. The host gets its digest alone (`DrawnKey`). */
    drawsKey: Type.Boolean(),
    /** Context size of the model, prompt and completion together; absent when the host does not know it. */
    contextTokens: Type.Optional(Type.Integer({ minimum: 1, maximum: 16_777_216 })),
  }),
  /** Limits of egress. Except for `policy` they are the host's statement about its firewall, which the VM repeats. */
  egress: Closed({
    /** For the life of the VM. */
    limitBytes: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
    /** `listed`: only names of a list, and what they resolve to; `any`: the public Internet. */
    names: OneOf(['any', 'listed']),
    /** Destinations that programs may reach, enforced by the guest. Absent if nothing is restricted. */
    policy: Type.Optional(EgressPolicy),
  }),
})
export type Claim = Static<typeof Claim>
