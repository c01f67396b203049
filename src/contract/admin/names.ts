// The part of `strongroom status` about names that instances may reach. Pure.

import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'

export const AdminNames = Closed({
  /** Entries of the list. */
  entries: Type.Integer({ minimum: 1 }),
  /** Addresses that are open because of them. */
  addresses: Type.Integer({ minimum: 0 }),
  /** Next hops at which instances are answered: none before the first VM. */
  listening: Type.Array(Type.String()),
  answered: Type.Integer({ minimum: 0 }),
  blocked: Type.Integer({ minimum: 0 }),
  failed: Type.Integer({ minimum: 0 }),
})
export type AdminNames = Static<typeof AdminNames>
