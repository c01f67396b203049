// Keys of service A in the admin interface. Effects: the store. Every change appends an event.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminKey, AdminKeyCreate, AdminKeyCreated, AdminKeyList } from '../contract/admin.ts'
import { mintUnused } from '../http/bearer.ts'
import { findKey, insertKey, listKeys, revokeKey } from '../store/directory/key.query.ts'
import type { Key, KeyScope } from '../store/directory/key.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { appendEvent } from '../store/ledger/event.query.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { bySlug, organizationBySlug } from './organizations.ts'

type KeysDeps = Pick<AdminDeps, 'store' | 'clock' | 'random' | 'mintKey'>

export const byPrefix = Type.Object({ prefix: Type.String({ maxLength: 64 }) })

export function keyRoutes(deps: KeysDeps, readBody: ReadBody) {
  return new Elysia({ normalize: false })
    .get('/organizations/:slug/keys', ({ params }) => ({ keys: list(deps, params.slug) }), {
      params: bySlug,
      response: AdminKeyList,
    })
    .post(
      '/organizations/:slug/keys',
      ({ params, body, set }) => {
        set.status = 201
        return create(deps, params.slug, body.scope)
      },
      { params: bySlug, body: AdminKeyCreate, parse: readBody, response: { 201: AdminKeyCreated } },
    )
    .post('/keys/:prefix/revoke', ({ params }) => revoke(deps, params.prefix), { params: byPrefix, response: AdminKey })
}

/** Fault not_found. */
function list({ store }: KeysDeps, slug: string): AdminKey[] {
  return listKeys(store.db, organizationBySlug(store.db, slug).id).map(key => keyView(key, slug))
}

/** Faults: not_found, internal (no free prefix). */
function create({ store, clock, random, mintKey }: KeysDeps, slug: string, scope: KeyScope): AdminKeyCreated {
  return store.transact(tx => {
    const { id: organizationId } = organizationBySlug(tx, slug)
    const nowMs = clock.nowMs()
    const { key, prefix } = mintUnused(
      () => mintKey(random),
      minted => {
        const { prefix, secretSha256 } = minted
        return insertKey(tx, { prefix, organizationId, secretSha256, scope, nowMs })
      },
    )
    appendEvent(tx, { nowMs, kind: 'key.created', subject: organizationId, detail: { slug, prefix, scope } })
    return { key, prefix, organization: slug, scope, created_at: iso(nowMs) }
  })
}

/** Idempotent; the first revocation's time stays. Fault not_found. */
function revoke({ store, clock }: KeysDeps, prefix: string): AdminKey {
  return store.transact(tx => {
    const key = findKey(tx, prefix)
    if (key === null) throw new Fault('not_found', `there is no key with prefix ${prefix}`, { param: 'prefix' })
    if (key.revokedAtMs === null) {
      const nowMs = clock.nowMs()
      revokeKey(tx, { prefix, nowMs })
      appendEvent(tx, { nowMs, kind: 'key.revoked', subject: key.organizationId, detail: { prefix } })
    }
    const { slug } = present(organizationById(tx, key.organizationId), 'a key has an organization')
    return keyView(present(findKey(tx, prefix), 'a revoked key stays'), slug)
  })
}

function keyView(key: Key, slug: string): AdminKey {
  return {
    prefix: key.prefix,
    organization: slug,
    scope: key.scope,
    created_at: iso(key.createdAtMs),
    last_used_at: isoOrNull(key.lastUsedAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
  }
}
