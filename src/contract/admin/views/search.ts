// Search over organizations, instances, keys and builds, in the admin interface. Pure.

import { OneOf } from '../../check.ts'
import { Closed, OrNull } from '../../forms.ts'
import { BUILD_STATES } from '../../http/build.ts'
import { type Static, Type } from '../../type.ts'
import { searchCharsMax } from './search-term.ts'

/** Results of each kind. No share: limits each search. */
export const searchHitsMax = 20

const listOf = <Row extends Parameters<typeof Type.Array>[0]>(row: Row) => Type.Array(row, { maxItems: searchHitsMax })
const Name = Type.String()

export const AdminSearchQuery = Closed({
  q: Type.String({ minLength: 1, maxLength: searchCharsMax, description: 'Part of a name, key prefix or id' }),
})

export const AdminSearch = Closed({
  organizations: listOf(Closed({ slug: Name, status: OneOf(['active', 'suspended', 'deleting', 'deleted']) })),
  instances: listOf(Closed({ organization: Name, name: Name, status: Name })),
  keys: listOf(
    Closed({ kind: OneOf(['ca', 'gw']), prefix: Name, organization: Name, state: OneOf(['active', 'revoked']) }),
  ),
  builds: listOf(Closed({ id: Name, organization: OrNull(Name), state: OneOf(BUILD_STATES), source: OrNull(Name) })),
  /** Whether some kind has more results than `searchHitsMax`. */
  more: Type.Boolean(),
})
export type AdminSearch = Static<typeof AdminSearch>
