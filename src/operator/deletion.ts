// Deletion of an organization in the admin interface: its plan, and its acceptance. Effects: the store. removal.ts does
// the rest.

import { Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { isoOrNull } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { AdminDeletion } from '../contract/admin/deletion.ts'
import type { DirectoryDb } from '../store/db.ts'
import { beginDeletion, type Remains, remainsOf } from '../store/directory/deletion.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import type { AdminDeps } from './deps.ts'
import { putInForce } from './in-force.ts'
import { bySlug, organizationBySlug } from './organizations.ts'
import { waitsFor } from './removal.ts'

type DeletionDeps = Pick<AdminDeps, 'store' | 'clock' | 'log' | 'gateway' | 'removeOrganization'>

/** Maximum number of names in a message; the plan lists all. No share: limits one message. */
const shownCountMax = 5

export function deletionRoutes(deps: DeletionDeps) {
  const { db } = deps.store.directory
  return new Elysia({ normalize: false })
    .get('/organizations/:slug/deletion', ({ params }) => deletionView(db, organizationBySlug(db, params.slug)), {
      params: bySlug,
      response: AdminDeletion,
    })
    .delete('/organizations/:slug', ({ params, query }) => remove(deps, params.slug, query.force), {
      params: bySlug,
      query: Type.Object({ force: t.Boolean({ default: false }) }),
      response: AdminDeletion,
    })
}

/**
 * Accepts the deletion. Idempotent; the time of the first acceptance stays. Faults: not_found, conflict (something
 * runs, and not `isForced`).
 */
async function remove(deps: DeletionDeps, slug: string, isForced: boolean): Promise<AdminDeletion> {
  const { store, clock, log } = deps
  const nowMs = clock.nowMs()
  const { organization, isChanged } = await store.directory.change(tx => {
    const before = organizationBySlug(tx, slug)
    if (before.deletingAtMs !== null) return { organization: before, isChanged: false }
    const running = runningText(remainsOf(tx, before.id))
    if (running !== null && !isForced) {
      const message = `organization ${slug} still has ${running}; \`strongroom org delete ${slug} --force\` ends them, --dry-run shows the plan`
      throw new Fault('conflict', message, { param: 'slug' })
    }
    beginDeletion(tx, { id: before.id, nowMs })
    return { organization: organizationBySlug(tx, slug), isChanged: true }
  })
  if (isChanged) {
    const event = { kind: 'organization.deletion_accepted', subject: organization.id, detail: { slug } }
    noteEvent(store.ledger.db, log, { nowMs, ...event })
  }
  deps.removeOrganization(organization.id)
  await putInForce(deps)
  return deletionView(store.directory.db, organizationBySlug(store.directory.db, slug))
}

/** Describes what runs; null if nothing does. */
function runningText(remains: Remains): string | null {
  const { instances, builds, reservedVms } = remains
  const names = instances.filter(isRunning).map(({ name }) => name)
  const parts = [
    names.length === 0 ? [] : [`${counted(names.length, 'instance')} (${listed(names)})`],
    builds.length === 0 ? [] : [`${counted(builds.length, 'build')} (${listed(builds)})`],
    reservedVms === 0 ? [] : [counted(reservedVms, 'reserved build VM')],
  ].flat()
  return parts.length === 0 ? null : parts.join(', ')
}

function isRunning({ status }: Remains['instances'][number]): boolean {
  return status === 'provisioning' || status === 'ready'
}

function counted(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? '' : 's'}`
}

function listed(names: readonly string[]): string {
  const rest = names.length - shownCountMax
  return [...names.slice(0, shownCountMax), ...(rest > 0 ? [`${rest} more`] : [])].join(', ')
}

function deletionView(db: DirectoryDb, organization: Organization): AdminDeletion {
  const remains = remainsOf(db, organization.id)
  const { slug, deletingAtMs, deletedAtMs } = organization
  return {
    slug,
    deleting_at: isoOrNull(deletingAtMs),
    deleted_at: isoOrNull(deletedAtMs),
    instances: remains.instances.map(({ name }) => name),
    builds: [...remains.builds],
    reserved_vms: remains.reservedVms,
    keys_active: remains.keysActive,
    gateway_keys_active: remains.gatewayKeysActive,
    build_file_bytes: remains.buildBytes,
    records: remains.records,
    waits_for: waitsFor(remains),
  }
}
