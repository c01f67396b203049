// Instances of all organizations in the admin interface, with their events and consoles. Effects: the store, reads
// console files.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import {
  type AdminEvent,
  AdminEventList,
  AdminInstance,
  AdminInstanceList,
  consoleTailBytesMax,
  eventCountMax,
  InstanceReference,
} from '../contract/admin/admin.ts'
import { AdminInstanceQuery, listedCountDefault, listedCountMax } from '../contract/admin/instance-query.ts'
import { egressLimitBytes } from '../contract/http/instance.ts'
import { followConsole, readConsole } from '../host/qemu/console.ts'
import type { DirectoryDb, LedgerDb } from '../store/db.ts'
import { attestedKeyOf } from '../store/directory/attestation.query.ts'
import {
  findInstance,
  instanceById,
  listChangesOverlapping,
  searchInstances,
} from '../store/directory/instance.query.ts'
import type { Instance, InstanceChange } from '../store/directory/instance.table.ts'
import { listOrganizations, organizationById } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { egressOf } from '../store/ledger/egress.query.ts'
import { listEvents, noteEvent } from '../store/ledger/event.query.ts'
import type { Event } from '../store/ledger/event.table.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import type { AdminDeps } from './deps.ts'
import { organizationBySlug } from './organizations.ts'

export type InstancesDeps = Pick<AdminDeps, 'store' | 'clock' | 'log' | 'deleteInstance' | 'vm' | 'consoleDir'>

export type OwnedInstance = { readonly instance: Instance; readonly organization: Organization }

export function instanceRoutes(deps: InstancesDeps) {
  const { db } = deps.store.directory
  const find = (reference: string) => instanceByReference(db, reference)
  const byReference = Type.Object({ ref: InstanceReference })
  return new Elysia({ normalize: false })
    .get('/instances', async ({ query }) => await list(deps, query), {
      query: AdminInstanceQuery,
      response: AdminInstanceList,
    })
    .get(
      '/instance',
      async ({ query }) => {
        await refreshEgress(deps, find(query.ref).organization.id)
        return instanceView(deps, find(query.ref))
      },
      { query: byReference, response: AdminInstance },
    )
    .delete('/instance', async ({ query }) => instanceView(deps, await remove(deps, find(query.ref))), {
      query: byReference,
      response: AdminInstance,
    })
    .get('/instance/events', ({ query }) => ({ events: eventsOf(deps, find(query.ref), query.limit) }), {
      query: Type.Object({
        ref: InstanceReference,
        limit: t.Integer({ default: eventCountMax, minimum: 1, maximum: eventCountMax }),
      }),
      response: AdminEventList,
    })
    .get(
      '/instance/console',
      async ({ query, request }) => {
        const { vmId } = find(query.ref).instance
        if (vmId === null) throw new Fault('conflict', 'the instance has no VM now, so there is no console')
        const dir = deps.consoleDir(vmId)
        if (!query.follow) return bytesResponse(Uint8Array.from(await readConsole(dir, query.tail)))
        return bytesResponse(streamConsole(dir, { tailBytes: query.tail, signal: request.signal }))
      },
      {
        query: Type.Object({
          ref: InstanceReference,
          tail: t.Integer({ minimum: 0, maximum: consoleTailBytesMax }),
          follow: t.Boolean({ default: false }),
        }),
      },
    )
}

/**
 * Finds an instance by id, `slug/name`, or a name that only one organization uses. Faults: not_found, invalid_request
 * (ambiguous).
 */
export function instanceByReference(db: DirectoryDb, reference: string): OwnedInstance {
  const [slug = '', name] = reference.split('/')
  if (name !== undefined) {
    const organization = organizationBySlug(db, slug)
    const instance = findInstance(db, { organizationId: organization.id, name })
    if (instance === null) throw unknownInstance(reference)
    return { instance, organization }
  }
  const byId = instanceById(db, reference)
  if (byId !== null) {
    const organization = present(organizationById(db, byId.organizationId), 'an instance has an organization')
    return { instance: byId, organization }
  }
  const named = listOrganizations(db, { deleted: true }).flatMap(organization => {
    const instance = findInstance(db, { organizationId: organization.id, name: reference })
    return instance === null ? [] : [{ instance, organization }]
  })
  const [only] = named
  if (only === undefined) throw unknownInstance(reference)
  if (named.length > 1) {
    const choices = named.map(({ organization }) => `${organization.slug}/${reference}`).join(' or ')
    const message = `${named.length} organizations have an instance ${reference}; write ${choices}`
    throw new Fault('invalid_request', message, { param: 'instance' })
  }
  return only
}

function unknownInstance(reference: string): Fault {
  return new Fault('not_found', `there is no instance ${reference}`, { param: 'instance' })
}

async function refreshEgress({ store }: InstancesDeps, organizationId: string | null): Promise<void> {
  await store.directory.refreshSamples('instance_egress', organizationId)
}

/** Lists instances. Faults: not_found (the organization), invalid_request. */
async function list(deps: InstancesDeps, query: AdminInstanceQuery): Promise<AdminInstanceList> {
  const { db } = deps.store.directory
  const limit = query.limit === undefined ? listedCountDefault : Number(query.limit)
  if (limit < 1 || limit > listedCountMax) throw wrong('limit', `must be a number from 1 to ${listedCountMax}`)
  const createdFromMs = query.since === undefined ? null : Date.parse(query.since)
  if (Number.isNaN(createdFromMs)) throw wrong('since', 'must be a time like 2026-11-25T00:00:00Z')
  const only = query.organization === undefined ? null : organizationBySlug(db, query.organization)
  const organizations = new Map(
    (only === null ? listOrganizations(db, { deleted: true }) : [only]).map(row => [row.id, row]),
  )
  const organizationId = only?.id ?? null
  await refreshEgress(deps, organizationId)
  const found = searchInstances(db, {
    organizationId,
    status: query.status ?? null,
    nameBegins: query.name ?? null,
    createdFromMs,
    // One more than the limit shows whether there are more.
    limit: limit + 1,
  })
  const newest = newestWithin(found.slice(-limit))
  const shown = newest.map(instance => {
    const organization = present(organizations.get(instance.organizationId), 'an instance has an organization')
    return instanceView(deps, { instance, organization })
  })
  return { instances: shown, more: found.length > newest.length }
}

/**
 * Size of a list in bytes, below what the console and the command line accept. Tenants choose their public keys, of
 * 8 KiB at most. No share: limits each list.
 */
const listedBytesMax = 16_777_216
/** Bytes of a row without the texts below. */
const rowBytes = 1_024

/** Returns the newest instances, the oldest first, whose texts fit into a list. */
function newestWithin(found: readonly Instance[]): readonly Instance[] {
  let sizeBytes = 0
  const excess = found.findLastIndex(({ publicKey, failureMessage }) => {
    // Escapes take more than a byte.
    sizeBytes += rowBytes + 2 * (Buffer.byteLength(publicKey) + Buffer.byteLength(failureMessage ?? ''))
    return sizeBytes > listedBytesMax
  })
  return found.slice(excess + 1)
}

function wrong(param: string, why: string): Fault {
  return new Fault('invalid_request', `${param} ${why}`, { param })
}

/** Deletes an instance. Calls the service each time; only the first deletion causes an event. */
async function remove(
  { store, clock, log, deleteInstance }: InstancesDeps,
  owned: OwnedInstance,
): Promise<OwnedInstance> {
  const { instance, organization } = owned
  const isRepeated = instance.desired === 'absent'
  await deleteInstance(instance, organization)
  if (!isRepeated) {
    const detail = { slug: organization.slug, name: instance.name }
    const nowMs = clock.nowMs()
    noteEvent(store.ledger.db, log, { nowMs, kind: 'instance.operator_delete', subject: instance.id, detail })
  }
  return instanceByReference(store.directory.db, instance.id)
}

/** Returns the newest `limit` status changes and journal events of an instance and its VM, oldest first. */
function eventsOf({ store }: InstancesDeps, { instance }: OwnedInstance, limit: number): AdminEvent[] {
  const subjects = instance.vmId === null ? [instance.id] : [instance.id, instance.vmId]
  const journal = subjects.flatMap(subject => listEvents(store.ledger.db, { subject, limit })).map(eventView)
  const changes = listChangesOverlapping(store.directory.db, { organizationId: instance.organizationId, fromMs: 0 })
    .filter(change => change.instanceId === instance.id)
    .map(changeView)
  return [...changes, ...journal].sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)).slice(-limit)
}

function bytesResponse(body: Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>): Response {
  return new Response(body, { headers: { 'content-type': 'application/octet-stream' } })
}

/** Streams the console in chunks, until the client leaves. */
function streamConsole(dir: string, from: { tailBytes: number; signal: AbortSignal }): ReadableStream<Uint8Array> {
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

export function instanceView({ vm, store }: InstancesDeps, { instance, organization }: OwnedInstance): AdminInstance {
  return {
    id: instance.id,
    organization: organization.slug,
    name: instance.name,
    hostname: instance.hostname,
    status: instance.status,
    agent: instance.agent,
    public_key: instance.publicKey,
    inference_mode: instance.inferenceMode,
    inference_model: instance.inferenceModel,
    failure_code: instance.failureCode,
    failure_message: instance.failureMessage,
    terminated_reason: instance.terminatedReason,
    egress_bytes: instance.egressBytes,
    egress_limit_bytes: limitOf(store.ledger.db, instance.vmId),
    egress_observed_at: isoOrNull(instance.egressObservedAtMs),
    egress_block_applied_at: isoOrNull(instance.egressBlockAppliedAtMs),
    rescue_bytes: instance.vmId === null ? null : (egressOf(store.ledger.db, instance.vmId)?.rescueBytes ?? 0),
    created_at: iso(instance.createdAtMs),
    ready_at: isoOrNull(instance.readyAtMs),
    attested_at: isoOrNull(attestedKeyOf(store.directory.db, instance.id)?.attestedAtMs ?? null),
    terminated_at: isoOrNull(instance.terminatedAtMs),
    vm: vmView(vm, instance.vmId),
  }
}

/** Returns the limit; null without a VM, because the limit belongs to the VM. */
function limitOf(db: LedgerDb, vmId: string | null): number | null {
  const vm = vmId === null ? null : vmById(db, vmId)
  return vm === null ? null : (vm.egressLimitBytes ?? egressLimitBytes)
}

/** Returns the VM; null if there is none, or the engine has no such VM. */
export function vmView(vm: InstancesDeps['vm'], id: string | null): AdminInstance['vm'] {
  const summary = id === null ? null : vm(id)
  // Copies single fields, because the engine's own view contains more.
  if (id === null || summary === null) return null
  const { state, address, addressV6 } = summary
  return { id, state, address, address_v6: addressV6 }
}

function eventView({ id, atMs, kind, subject, detail }: Event): AdminEvent {
  return { id, at: iso(atMs), kind, subject, detail }
}

/** Returns a status change in the form of an event. Its number belongs to another sequence than the journal's. */
function changeView({ id, atMs, status, instanceId }: InstanceChange): AdminEvent {
  return { id, at: iso(atMs), kind: `status.${status}`, subject: instanceId, detail: {} }
}
