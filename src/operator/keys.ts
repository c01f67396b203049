// Keys of service A in the admin interface. Effects: the store. A change commits in the directory; its event follows
// in this host's journal.

import { Type } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminKey, AdminKeyAdd, AdminKeyCreate, AdminKeyCreated, AdminKeyList } from '../contract/admin/admin.ts'
import { type KeyRegistration, type KeyTag, readRegistration } from '../contract/admin/key-registration.ts'
import { keyNameProblem } from '../contract/admin/key-terms.ts'
import { mintUnused } from '../http/bearer.ts'
import { findKey, insertKey, listKeys, prefixOfKeyName, revokeKey } from '../store/directory/key.query.ts'
import type { Key } from '../store/directory/key.table.ts'
import { organizationById } from '../store/directory/organization.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { bySlug, organizationBySlug, presentOrganization } from './organizations.ts'

type KeysDeps = Pick<AdminDeps, 'store' | 'clock' | 'log' | 'random' | 'mintKey'>

export const byPrefix = Type.Object({ prefix: Type.String({ maxLength: 64 }) })

export function keyRoutes(deps: KeysDeps, readBody: ReadBody) {
  return new Elysia({ normalize: false })
    .get('/organizations/:slug/keys', async ({ params }) => ({ keys: await list(deps, params.slug) }), {
      params: bySlug,
      response: AdminKeyList,
    })
    .post(
      '/organizations/:slug/keys',
      async ({ params, body, set }) => {
        set.status = 201
        return await create(deps, params.slug, body)
      },
      { params: bySlug, body: AdminKeyCreate, parse: readNamedBody(readBody), response: { 201: AdminKeyCreated } },
    )
    .post(
      '/organizations/:slug/keys/add',
      async ({ params, body, set }) => {
        set.status = 201
        return await add(deps, params.slug, body)
      },
      {
        params: bySlug,
        body: AdminKeyAdd,
        parse: readNamedBody(readRegistrationBody(readBody, 'ca')),
        response: { 201: AdminKey },
      },
    )
    .post('/keys/:prefix/revoke', ({ params }) => revoke(deps, params.prefix), { params: byPrefix, response: AdminKey })
}

/**
 * Refuses a `registration` that is not a line of this tag while the body is read, so that it never enters the record of
 * commands, because the text may be a whole key. Throws Fault invalid_request.
 */
export function readRegistrationBody(readBody: ReadBody, tag: KeyTag): ReadBody {
  return async context => {
    const body = await readBody(context)
    const isNamed = typeof body === 'object' && body !== null && 'registration' in body
    if (isNamed && typeof body.registration === 'string') registrationOf(body.registration, tag)
    return body
  }
}

/** Refuses a bad `name` in words, before the schema would refuse it by its pattern. Throws Fault invalid_request. */
export function readNamedBody(readBody: ReadBody): ReadBody {
  return async context => {
    const body = await readBody(context)
    const name = typeof body === 'object' && body !== null && 'name' in body ? body.name : null
    const problem = typeof name === 'string' ? keyNameProblem(name) : null
    if (problem !== null) throw new Fault('invalid_request', `the name of a key ${problem}`, { param: 'name' })
    return body
  }
}

/** Throws Fault conflict if `prefix`, the valid key that has the name, is not null. */
export function checkNameIsFree(name: string, prefix: string | null): void {
  if (prefix === null) return
  const message = `key ${prefix} of the organization is named ${name} already; choose another name, or revoke that key first`
  throw new Fault('conflict', message, { param: 'name' })
}

/** Parses the registration. Throws Fault invalid_request. */
export function registrationOf(text: string, tag: KeyTag): KeyRegistration {
  const read = readRegistration(tag, text)
  if (read.ok) return read.value
  throw new Fault('invalid_request', read.problem, { param: 'registration' })
}

export function prefixTaken(prefix: string): Fault {
  const message = `another key has the prefix ${prefix}; the client has to make a new key and send its registration line`
  return new Fault('conflict', message, { param: 'registration' })
}

/** Returns an organization's keys. Throws Fault not_found. */
async function list({ store }: KeysDeps, slug: string): Promise<AdminKey[]> {
  const { db } = store.directory
  const { id } = organizationBySlug(db, slug)
  await store.directory.refreshSamples('key_uses', id)
  return listKeys(db, id).map(key => keyView(key, slug))
}

/** Creates a key. Faults: not_found, conflict (the name is taken), internal (no free prefix). */
async function create(
  { store, clock, log, random, mintKey }: KeysDeps,
  slug: string,
  { scope, name = null }: AdminKeyCreate,
): Promise<AdminKeyCreated> {
  const nowMs = clock.nowMs()
  const { organizationId, key, prefix } = await store.directory.change(tx => {
    const { id: organizationId } = presentOrganization(tx, slug)
    if (name !== null) checkNameIsFree(name, prefixOfKeyName(tx, { organizationId, name }))
    const minted = mintUnused(
      () => mintKey(random),
      ({ prefix, secretSha256 }) => insertKey(tx, { prefix, organizationId, secretSha256, name, scope, nowMs }),
    )
    return { organizationId, ...minted }
  })
  const detail = { slug, prefix, name, scope, made_by: 'host' }
  noteEvent(store.ledger.db, log, { nowMs, kind: 'key.created', subject: organizationId, detail })
  return { key, prefix, name, organization: slug, scope, created_at: iso(nowMs) }
}

/** Adds a registered key. Faults: invalid_request, not_found, conflict (the prefix or the name is taken). */
async function add(
  { store, clock, log }: KeysDeps,
  slug: string,
  { registration, scope, name = null }: AdminKeyAdd,
): Promise<AdminKey> {
  const nowMs = clock.nowMs()
  const { prefix, secretSha256 } = registrationOf(registration, 'ca')
  const key = await store.directory.change(tx => {
    const { id: organizationId } = presentOrganization(tx, slug)
    if (name !== null) checkNameIsFree(name, prefixOfKeyName(tx, { organizationId, name }))
    const isNew = insertKey(tx, { prefix, organizationId, secretSha256, isClientMade: true, name, scope, nowMs })
    if (!isNew) throw prefixTaken(prefix)
    return present(findKey(tx, prefix), 'the key was inserted')
  })
  const detail = { slug, prefix, name, scope, made_by: 'client' }
  noteEvent(store.ledger.db, log, { nowMs, kind: 'key.created', subject: key.organizationId, detail })
  return keyView(key, slug)
}

/** Revokes a key. Idempotent; the time of the first revocation stays. Throws Fault not_found. */
async function revoke({ store, clock, log }: KeysDeps, prefix: string): Promise<AdminKey> {
  const nowMs = clock.nowMs()
  const { key, slug, isChanged } = await store.directory.change(tx => {
    const before = findKey(tx, prefix)
    if (before === null) throw new Fault('not_found', `there is no key with prefix ${prefix}`, { param: 'prefix' })
    const isChanged = before.revokedAtMs === null
    if (isChanged) revokeKey(tx, { prefix, nowMs })
    const { slug } = present(organizationById(tx, before.organizationId), 'a key has an organization')
    return { key: present(findKey(tx, prefix), 'a revoked key stays'), slug, isChanged }
  })
  if (isChanged) {
    noteEvent(store.ledger.db, log, {
      nowMs,
      kind: 'key.revoked',
      subject: key.organizationId,
      detail: { prefix, name: key.name },
    })
  }
  return keyView(key, slug)
}

function keyView(key: Key, slug: string): AdminKey {
  return {
    prefix: key.prefix,
    name: key.name,
    organization: slug,
    scope: key.scope,
    made_by: key.isClientMade ? 'client' : 'host',
    created_at: iso(key.createdAtMs),
    last_used_at: isoOrNull(key.lastUsedAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
  }
}
