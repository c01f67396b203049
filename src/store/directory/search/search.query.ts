// Search for organizations, instances, keys and builds by a part of their names. Effects: SQL.

import type { BuildState } from '../../../contract/http/build.ts'
import { type DirectoryDb, prepareRaw } from '../../db.ts'

export type FoundInstance = { readonly organization: string; readonly name: string; readonly status: string }
export type FoundKey = {
  readonly kind: 'ca' | 'gw'
  readonly prefix: string
  readonly organization: string
  readonly isRevoked: 0 | 1
}
export type FoundBuild = {
  readonly id: string
  readonly organization: string | null
  readonly state: BuildState
  readonly source: string | null
}
export type Search = {
  /** Slugs. */
  readonly organizations: readonly string[]
  readonly instances: readonly FoundInstance[]
  readonly keys: readonly FoundKey[]
  readonly builds: readonly FoundBuild[]
}

/** `instr` compares characters, so no character of the term has another meaning, as one of LIKE or GLOB would. */
const ORGANIZATIONS = 'SELECT slug FROM organizations WHERE instr(slug, ?1) > 0 ORDER BY slug LIMIT ?2'
const INSTANCES = `SELECT o.slug AS organization, i.name, i.status
  FROM instances i JOIN organizations o ON o.id = i.organization_id
  WHERE instr(o.slug || '/' || i.name, ?1) > 0 OR instr(i.hostname, ?1) > 0 OR i.id = ?1
  ORDER BY i.status IN ('terminated', 'terminating'), i.created_at_ms DESC, i.id LIMIT ?2`
const KEYS = `SELECT k.kind, k.prefix, o.slug AS organization, k.revoked_at_ms IS NOT NULL AS isRevoked
  FROM (SELECT 'ca' AS kind, prefix, organization_id, revoked_at_ms FROM keys
    UNION ALL SELECT 'gw', prefix, organization_id, revoked_at_ms FROM gateway_keys) k
  JOIN organizations o ON o.id = k.organization_id
  WHERE instr(k.kind || '_' || k.prefix, ?1) > 0
  ORDER BY isRevoked, k.prefix LIMIT ?2`
const BUILDS = `SELECT b.id, o.slug AS organization, b.state, coalesce(b.source_name, b.repo_url) AS source
  FROM builds b LEFT JOIN organizations o ON o.id = b.organization_id
  WHERE instr(b.id, ?1) = 1 OR instr(lower(coalesce(b.source_name, b.repo_url, '')), ?1) > 0
  ORDER BY b.created_at_ms DESC, b.id LIMIT ?2`

/** Returns a function that finds at most `limit` of each kind for a term in lower case. */
export function prepareSearch(db: DirectoryDb): (term: string, limit: number) => Search {
  const organizations = prepareRaw<{ slug: string }>(db, ORGANIZATIONS)
  const instances = prepareRaw<FoundInstance>(db, INSTANCES)
  const keys = prepareRaw<FoundKey>(db, KEYS)
  const builds = prepareRaw<FoundBuild>(db, BUILDS)
  return (term, limit) => ({
    organizations: organizations.all(term, limit).map(({ slug }) => slug),
    instances: instances.all(term, limit),
    keys: keys.all(term, limit),
    builds: builds.all(term, limit),
  })
}
