// Search over everything that has a page in the console. Effects: the store.

import { Elysia } from 'elysia'
import { AdminSearch, AdminSearchQuery, searchHitsMax } from '../../contract/admin/views/search.ts'
import { searchTerm } from '../../contract/admin/views/search-term.ts'
import { prepareSearch } from '../../store/directory/search/search.query.ts'
import type { AdminDeps } from '../deps.ts'
import { organizationBySlug, stateOf } from '../organizations.ts'

export function searchRoutes({ store }: Pick<AdminDeps, 'store'>) {
  const { db } = store.directory
  const find = prepareSearch(db)
  return new Elysia({ normalize: false }).get('/search', ({ query }) => search(query.q), {
    query: AdminSearchQuery,
    response: AdminSearch,
  })

  function search(text: string): AdminSearch {
    // One more than the limit shows whether there are more.
    const { organizations, instances, keys, builds } = find(searchTerm(text), searchHitsMax + 1)
    const shown = <Row>(rows: readonly Row[]) => rows.slice(0, searchHitsMax)
    return {
      organizations: shown(organizations).map(slug => ({ slug, status: stateOf(organizationBySlug(db, slug)) })),
      instances: shown(instances),
      keys: shown(keys).map(({ isRevoked, ...key }) => ({ ...key, state: isRevoked === 1 ? 'revoked' : 'active' })),
      builds: shown(builds),
      more: [organizations, instances, keys, builds].some(rows => rows.length > searchHitsMax),
    }
  }
}
