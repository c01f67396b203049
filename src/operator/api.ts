// The admin interface: who may use this appliance, and what it is doing. Effects: the store; the rest comes in as functions.
// Only root reaches the socket, so there is no further authentication here. Every change appends an event.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { present } from '../base/assert.ts'
import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid, type RandomBytes } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import {
  AdminEventList,
  AdminInstance,
  AdminInstanceList,
  AdminKey,
  AdminKeyCreate,
  AdminKeyCreated,
  AdminKeyList,
  type AdminLeak,
  AdminLeaks,
  AdminOrganization,
  AdminOrganizationCreate,
  AdminOrganizationList,
  AdminStatus,
  consoleTailBytesMax,
  eventCountMax,
  InstanceReference,
  Slug,
  slugProblem,
} from '../contract/admin.ts'
import { followConsole, readConsole } from '../host/qemu/console.ts'
import type { Store } from '../store/db.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import { findKey, insertKey, listKeys, revokeKey } from '../store/directory/key.query.ts'
import type { KeyScope } from '../store/directory/key.table.ts'
import { insertOrganization, listOrganizations, setOrganizationStatus } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { appendEvent, type NewEvent } from '../store/ledger/event.query.ts'
import { adminFault, adminProblem } from './problem.ts'
import { createAdminView, instanceByReference, organizationBySlug, type VmSummary } from './view.ts'

export type AdminDeps = {
  readonly store: Pick<Store, 'directory' | 'ledger'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly random: RandomBytes
  readonly log: Logger
  readonly mintKey: (random: RandomBytes, kind: 'ca') => { key: string; prefix: string; secretSha256: Uint8Array }
  /** Accepts a deletion as the owner's would be. Idempotent. */
  readonly deleteInstance: (instance: Instance, organization: Organization) => void
  readonly vm: (vmId: string) => VmSummary | null
  readonly status: () => AdminStatus
  readonly leaks: () => Promise<readonly AdminLeak[]>
  /** Directory that holds the console of a VM. */
  readonly consoleDir: (vmId: string) => string
}

/** A request handler for `listenAdmin`. */
export type AdminHandler = (request: Request) => Response | Promise<Response>

export function createAdmin(deps: AdminDeps): AdminHandler {
  const { store, log } = deps
  const view = createAdminView({ store, vm: deps.vm })
  const operator = createOperator(deps)
  const found = (reference: string) => instanceByReference(store.directory.db, reference)
  const bySlug = { params: Type.Object({ slug: Slug }) }
  const byReference = Type.Object({ ref: InstanceReference })

  const app = new Elysia({ normalize: false })
    .onError(({ error, set }) => {
      const fault = adminFault(error)
      if (fault.status >= 500) log.error('admin request failed', { error })
      set.status = fault.status
      return adminProblem(fault)
    })
    .get('/status', () => deps.status(), { response: AdminStatus })
    .get('/leaks', async () => ({ leaks: [...(await deps.leaks())] }), { response: AdminLeaks })
    .get('/organizations', () => ({ organizations: listOrganizations(store.directory.db).map(view.organization) }), {
      response: AdminOrganizationList,
    })
    .post(
      '/organizations',
      ({ body, set }) => {
        set.status = 201
        return view.organization(operator.createOrganization(body.slug))
      },
      { body: AdminOrganizationCreate, parse: 'json', response: { 201: AdminOrganization } },
    )
    .get(
      '/organizations/:slug',
      ({ params }) => view.organization(organizationBySlug(store.directory.db, params.slug)),
      {
        ...bySlug,
        response: AdminOrganization,
      },
    )
    .post(
      '/organizations/:slug/suspend',
      ({ params }) => view.organization(operator.setStatus(params.slug, 'suspended')),
      {
        ...bySlug,
        response: AdminOrganization,
      },
    )
    .post('/organizations/:slug/resume', ({ params }) => view.organization(operator.setStatus(params.slug, 'active')), {
      ...bySlug,
      response: AdminOrganization,
    })
    .get(
      '/organizations/:slug/keys',
      ({ params }) => {
        const organization = organizationBySlug(store.directory.db, params.slug)
        return { keys: listKeys(store.directory.db, organization.id).map(key => view.key(key, organization)) }
      },
      { ...bySlug, response: AdminKeyList },
    )
    .post(
      '/organizations/:slug/keys',
      ({ params, body, set }) => {
        set.status = 201
        return operator.createKey(params.slug, body.scope)
      },
      { ...bySlug, body: AdminKeyCreate, parse: 'json', response: { 201: AdminKeyCreated } },
    )
    .post('/keys/:prefix/revoke', ({ params }) => view.keyAlone(operator.revokeKey(params.prefix)), {
      params: Type.Object({ prefix: Type.String({ maxLength: 64 }) }),
      response: AdminKey,
    })
    .get('/instances', ({ query }) => ({ instances: view.instances(query.organization ?? null) }), {
      query: Type.Object({ organization: Type.Optional(Slug) }),
      response: AdminInstanceList,
    })
    .get('/instance', ({ query }) => view.instance(found(query.ref)), { query: byReference, response: AdminInstance })
    .delete('/instance', ({ query }) => view.instance(operator.deleteInstance(found(query.ref))), {
      query: byReference,
      response: AdminInstance,
    })
    .get('/instance/events', ({ query }) => ({ events: view.events(found(query.ref), query.limit) }), {
      query: Type.Object({
        ref: InstanceReference,
        limit: t.Integer({ default: eventCountMax, minimum: 1, maximum: eventCountMax }),
      }),
      response: AdminEventList,
    })
    .get(
      '/instance/console',
      async ({ query, request }) => {
        const { vmId } = found(query.ref).instance
        if (vmId === null) throw new Fault('conflict', 'the instance has no VM now, so there is no console')
        const dir = deps.consoleDir(vmId)
        if (!query.follow) return bytesResponse(Uint8Array.from(await readConsole(dir, query.tail)))
        return bytesResponse(stream(dir, { tailBytes: query.tail, signal: request.signal }))
      },
      {
        query: Type.Object({
          ref: InstanceReference,
          tail: t.Integer({ minimum: 0, maximum: consoleTailBytesMax }),
          follow: t.Boolean({ default: false }),
        }),
      },
    )
  return request => app.fetch(request)
}

/** Each change commits in the directory first; the event follows in this host's journal. */
function createOperator(deps: AdminDeps) {
  const { store, clock, random } = deps
  const { directory } = store
  const append = (event: NewEvent) => appendEvent(store.ledger.db, event)
  return {
    createOrganization: (slug: string): Organization => {
      const wrong = slugProblem(slug)
      if (wrong !== null) throw new Fault('invalid_request', `slug ${JSON.stringify(slug)} ${wrong}`, { param: 'slug' })
      const [id, nowMs] = [newUuid(random), clock.nowMs()]
      if (!insertOrganization(directory.db, { id, slug, nowMs })) {
        throw new Fault('conflict', `organization ${slug} exists already`, { param: 'slug' })
      }
      append({ nowMs, kind: 'organization.created', subject: id, detail: { slug } })
      return organizationBySlug(directory.db, slug)
    },
    /** Idempotent; only a change is an event. */
    setStatus: (slug: string, status: Organization['status']): Organization => {
      const { organization, changed } = directory.transact(tx => {
        const before = organizationBySlug(tx, slug)
        if (before.status === status) return { organization: before, changed: false }
        setOrganizationStatus(tx, { slug, status })
        return { organization: organizationBySlug(tx, slug), changed: true }
      })
      const kind = status === 'active' ? 'organization.resumed' : 'organization.suspended'
      if (changed) append({ nowMs: clock.nowMs(), kind, subject: organization.id, detail: { slug } })
      return organization
    },
    createKey: (slug: string, scope: KeyScope): AdminKeyCreated => {
      const nowMs = clock.nowMs()
      const { organizationId, key, prefix } = directory.transact(tx => {
        const organizationId = organizationBySlug(tx, slug).id
        for (let attempt = 1; attempt <= mintAttemptsMax; attempt += 1) {
          const { key, prefix, secretSha256 } = deps.mintKey(random, 'ca')
          if (insertKey(tx, { prefix, organizationId, secretSha256, scope, nowMs }))
            return { organizationId, key, prefix }
        }
        throw new Fault('internal', `no free key prefix in ${mintAttemptsMax} attempts`)
      })
      append({ nowMs, kind: 'key.created', subject: organizationId, detail: { slug, prefix, scope } })
      return { key, prefix, organization: slug, scope, created_at: new Date(nowMs).toISOString() }
    },
    /** Idempotent; the first revocation's time stays. */
    revokeKey: (prefix: string) => {
      const nowMs = clock.nowMs()
      const { key, changed } = directory.transact(tx => {
        const before = findKey(tx, prefix)
        if (before === null) throw new Fault('not_found', `there is no key with prefix ${prefix}`, { param: 'prefix' })
        if (before.revokedAtMs !== null) return { key: before, changed: false }
        revokeKey(tx, { prefix, nowMs })
        return { key: present(findKey(tx, prefix), 'a revoked key stays'), changed: true }
      })
      if (changed) append({ nowMs, kind: 'key.revoked', subject: key.organizationId, detail: { prefix } })
      return key
    },
    deleteInstance: ({ instance, organization }: { instance: Instance; organization: Organization }) => {
      const repeated = instance.desired === 'absent'
      deps.deleteInstance(instance, organization)
      if (!repeated) {
        const detail = { slug: organization.slug, name: instance.name }
        append({ nowMs: clock.nowMs(), kind: 'instance.operator_delete', subject: instance.id, detail })
      }
      return instanceByReference(directory.db, instance.id)
    },
  }
}

const mintAttemptsMax = 8

function bytesResponse(body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>): Response {
  return new Response(body, { headers: { 'content-type': 'application/octet-stream' } })
}

/** Chunked, until the client goes away. */
function stream(dir: string, from: { tailBytes: number; signal: AbortSignal }): ReadableStream<Uint8Array> {
  const cancelled = new AbortController()
  const signal = AbortSignal.any([from.signal, cancelled.signal])
  const chunks = followConsole(dir, { tailBytes: from.tailBytes, signal })
  return new ReadableStream<Uint8Array>({
    pull: async controller => {
      const { done, value } = await chunks.next()
      if (done) controller.close()
      else controller.enqueue(value)
    },
    cancel: () => cancelled.abort(),
  })
}
