// The state of an instance's broker, which root's process writes for it: what programs may reach, and the secrets that
// the broker inserts. Pure.

import { Closed, OrNull } from '../../forms.ts'
import { EgressPolicy } from '../../http/egress-policy.ts'
import { type Static, Type } from '../../type.ts'
import { Secret, secretsMax } from './secret.ts'

export const BrokerState = Closed({
  version: Type.Literal(1),
  policy: EgressPolicy,
  /** Allowed ports by slot (`slotsFor`); 0 for a free slot. */
  slots: Type.Array(Type.Integer({ minimum: 0, maximum: 65_535 }), { maxItems: 256 }),
  /** Name servers of the claim. */
  resolvers: Type.Array(Type.String({ maxLength: 45 }), { maxItems: 3 }),
  /** Families that the VM has an address of. */
  v4: Type.Boolean(),
  v6: Type.Boolean(),
  /** Name of the inference gateway if DNS resolves it: the resolver gives its true addresses. */
  gateway: OrNull(Type.String({ maxLength: 253 })),
  secrets: Type.Array(Secret, { maxItems: secretsMax }),
})
export type BrokerState = Static<typeof BrokerState>
