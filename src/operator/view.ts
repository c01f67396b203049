// Records as the admin interface shows them. Effects: reads the store.

import { present } from '../base/assert.ts'
import { iso, isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { AdminEvent, AdminInstance, AdminKey, AdminOrganization } from '../contract/admin.ts'
import type { DirectoryDb, Store } from '../store/db.ts'
import {
  countLiving,
  findInstance,
  instanceById,
  listChangesOverlapping,
  listInstances,
} from '../store/directory/instance.query.ts'
import type { Instance, InstanceChange } from '../store/directory/instance.table.ts'
import { listKeys } from '../store/directory/key.query.ts'
import type { Key } from '../store/directory/key.table.ts'
import { findOrganization, listOrganizations, organizationById } from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { listEvents } from '../store/ledger/event.query.ts'
import type { Event } from '../store/ledger/event.table.ts'

export type VmSummary = { readonly state: string; readonly address: string | null }
export type OwnedInstance = { readonly instance: Instance; readonly organization: Organization }

export function createAdminView(deps: {
  store: Pick<Store, 'directory' | 'ledger'>
  vm: (vmId: string) => VmSummary | null
}) {
  const { db } = deps.store.directory
  const instance = (owned: OwnedInstance): AdminInstance => {
    const { vmId } = owned.instance
    const summary = vmId === null ? null : deps.vm(vmId)
    return instanceView(owned, vmId === null || summary === null ? null : { id: vmId, ...plain(summary) })
  }
  return {
    instance,
    organization: (organization: Organization): AdminOrganization => ({
      slug: organization.slug,
      status: organization.status,
      created_at: iso(organization.createdAtMs),
      instances_living: countLiving(db, organization.id),
      keys_active: listKeys(db, organization.id).filter(key => key.revokedAtMs === null).length,
    }),
    key: keyView,
    keyAlone: (key: Key): AdminKey =>
      keyView(key, present(organizationById(db, key.organizationId), 'a key has an organization')),
    /** Of one organization, or of all where `slug` is null. */
    instances: (slug: string | null): AdminInstance[] => {
      const organizations = slug === null ? listOrganizations(db) : [organizationBySlug(db, slug)]
      return organizations.flatMap(organization =>
        listInstances(db, organization.id).map(row => instance({ instance: row, organization })),
      )
    },
    /** What is known to have happened to an instance and its VM: status changes and journal, oldest first, the newest `limit`. */
    events: ({ instance: row }: OwnedInstance, limit: number): AdminEvent[] => {
      const subjects = row.vmId === null ? [row.id] : [row.id, row.vmId]
      const journal = subjects.flatMap(subject => listEvents(deps.store.ledger.db, { subject, limit })).map(eventView)
      const changes = listChangesOverlapping(db, { organizationId: row.organizationId, fromMs: 0 })
        .filter(change => change.instanceId === row.id)
        .map(changeView)
      return [...changes, ...journal].sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0)).slice(-limit)
    },
  }
}

/** Fault not_found. */
export function organizationBySlug(db: DirectoryDb, slug: string): Organization {
  const organization = findOrganization(db, slug)
  if (organization === null) throw new Fault('not_found', `there is no organization ${slug}`, { param: 'organization' })
  return organization
}

/** By id, `slug/name`, or a name that only one organization uses. Faults: not_found, invalid_request (ambiguous). */
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
  const named = listOrganizations(db).flatMap(organization => {
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

function plain({ state, address }: VmSummary): { state: string; address: string | null } {
  return { state, address }
}

function instanceView({ instance, organization }: OwnedInstance, vm: AdminInstance['vm']): AdminInstance {
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
    egress_observed_at: isoOrNull(instance.egressObservedAtMs),
    egress_block_applied_at: isoOrNull(instance.egressBlockAppliedAtMs),
    created_at: iso(instance.createdAtMs),
    ready_at: isoOrNull(instance.readyAtMs),
    terminated_at: isoOrNull(instance.terminatedAtMs),
    vm,
  }
}

function keyView(key: Key, organization: Organization): AdminKey {
  return {
    prefix: key.prefix,
    organization: organization.slug,
    scope: key.scope,
    created_at: iso(key.createdAtMs),
    last_used_at: isoOrNull(key.lastUsedAtMs),
    revoked_at: isoOrNull(key.revokedAtMs),
  }
}

function eventView({ id, atMs, kind, subject, detail }: Event): AdminEvent {
  return { id, at: iso(atMs), kind, subject, detail }
}

/** A status change in the shape of an event; the two logs number theirs apart. */
function changeView({ id, atMs, status, instanceId }: InstanceChange): AdminEvent {
  return { id, at: iso(atMs), kind: `status.${status}`, subject: instanceId, detail: {} }
}
