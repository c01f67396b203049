// The network of a guest, as its host gives it. Pure.

import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const Ipv4 = Type.String({ pattern: '^[0-9.]{7,15}$' })
export const Ipv6 = Type.String({ pattern: '^[0-9a-f:]{2,39}$' })

/**
 * Addresses of the one network interface: a routed /32, a routed /128, or both, each behind an on-link next hop, which
 * `gateway` names.
 */
export const Network = Closed({
  /** Both are there, or neither. */
  address: Type.Optional(Ipv4),
  gateway: Type.Optional(Ipv4),
  v6: Type.Optional(
    Closed({
      address: Ipv6,
      gateway: Ipv6,
      /** Given here because there is no neighbour discovery on this link. */
      gatewayMac: Type.String({ pattern: '^[0-9a-f]{2}(:[0-9a-f]{2}){5}$' }),
    }),
  ),
  mtuBytes: Type.Integer({ minimum: 576, maximum: 9000 }),
  resolvers: Type.Array(Type.Union([Ipv4, Ipv6]), { maxItems: 3 }),
})
export type Network = Static<typeof Network>
