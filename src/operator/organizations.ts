// Organizations in the admin interface. Effects: the store. A change commits in the directory; its event follows in
// this host's journal.

import { type Static, Type } from '@sinclair/typebox'
import { Elysia, t } from 'elysia'
import { iso } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { newUuid } from '../base/ids.ts'
import {
  AdminOrganization,
  AdminOrganizationCreate,
  AdminOrganizationList,
  Slug,
  slugProblem,
} from '../contract/admin/admin.ts'
import { AdminBudgetSet } from '../contract/admin/key-terms.ts'
import { AdminQuotaSet, NO_QUOTAS } from '../contract/admin/organizations/quotas.ts'
import type { HeldBudgets } from '../fleet/hosts/fleet-admin.ts'
import type { DirectoryDb } from '../store/db.ts'
import { countFailedInstances } from '../store/directory/instance-failures.query.ts'
import { listKeys } from '../store/directory/key.query.ts'
import {
  findOrganization,
  insertOrganization,
  listOrganizations,
  setOrganizationBudget,
  setOrganizationQuotas,
  setOrganizationStatus,
} from '../store/directory/organization.query.ts'
import type { Organization } from '../store/directory/organization.table.ts'
import { monthOf } from '../store/directory/usage/periods.ts'
import { prepareMonthSum } from '../store/directory/usage/usage-month.query.ts'
import { noteEvent } from '../store/ledger/event.query.ts'
import { budgetTerms, budgetView, checkPriced } from './budget.ts'
import type { AdminDeps, ReadBody } from './deps.ts'
import { putInForce } from './in-force.ts'

type OrganizationsDeps = Pick<AdminDeps, 'store' | 'clock' | 'log' | 'random' | 'gateway' | 'fleet' | 'unpricedModels'>

export const bySlug = Type.Object({ slug: Slug })

export function organizationRoutes(deps: OrganizationsDeps, readBody: ReadBody) {
  const { db } = deps.store.directory
  const view = async (organization: Organization) => {
    const nowMs = deps.clock.nowMs()
    const held = await deps.fleet.held({ month: monthOf(nowMs), organizationId: organization.id })
    return organizationView(db, organization, { nowMs, held })
  }
  return new Elysia({ normalize: false })
    .get('/organizations', async ({ query }) => ({ organizations: await listAll(deps, query) }), {
      query: Type.Object({ deleted: t.Boolean({ default: false }) }),
      response: AdminOrganizationList,
    })
    .post(
      '/organizations',
      async ({ body, set }) => {
        set.status = 201
        return await view(await createOrganization(deps, body.slug))
      },
      { body: AdminOrganizationCreate, parse: readBody, response: { 201: AdminOrganization } },
    )
    .get('/organizations/:slug', ({ params }) => view(organizationBySlug(db, params.slug)), {
      params: bySlug,
      response: AdminOrganization,
    })
    .post(
      '/organizations/:slug/budget',
      async ({ params, body }) => await view(await setBudget(deps, params.slug, body)),
      {
        params: bySlug,
        body: AdminBudgetSet,
        parse: readBody,
        response: AdminOrganization,
      },
    )
    .post(
      '/organizations/:slug/quotas',
      async ({ params, body }) => await view(await setQuotas(deps, params.slug, body)),
      { params: bySlug, body: AdminQuotaSet, parse: readBody, response: AdminOrganization },
    )
    .post('/organizations/:slug/suspend', async ({ params }) => view(await setStatus(deps, params.slug, 'suspended')), {
      params: bySlug,
      response: AdminOrganization,
    })
    .post('/organizations/:slug/resume', async ({ params }) => view(await setStatus(deps, params.slug, 'active')), {
      params: bySlug,
      response: AdminOrganization,
    })
}

async function listAll(
  { store, clock, fleet }: OrganizationsDeps,
  query: Parameters<typeof listOrganizations>[1],
): Promise<AdminOrganization[]> {
  const nowMs = clock.nowMs()
  const held = await fleet.held({ month: monthOf(nowMs), organizationId: null })
  const { db } = store.directory
  return listOrganizations(db, query).map(organization => organizationView(db, organization, { nowMs, held }))
}

/** Returns the organization. Throws Fault not_found. */
export function organizationBySlug(db: DirectoryDb, slug: string): Organization {
  const organization = findOrganization(db, slug)
  if (organization === null) throw new Fault('not_found', `there is no organization ${slug}`, { param: 'organization' })
  return organization
}

/** Returns an organization that is not being deleted. Faults: not_found, conflict. */
export function presentOrganization(db: DirectoryDb, slug: string): Organization {
  const organization = organizationBySlug(db, slug)
  if (organization.deletingAtMs === null) return organization
  const state = organization.deletedAtMs === null ? 'is being deleted' : 'was deleted'
  throw new Fault('conflict', `organization ${slug} ${state}; it gets nothing new`, { param: 'organization' })
}

/** Creates an organization. Faults: invalid_request, conflict. */
async function createOrganization(
  { store, clock, log, random }: OrganizationsDeps,
  slug: string,
): Promise<Organization> {
  const problem = slugProblem(slug)
  if (problem !== null) throw new Fault('invalid_request', `slug ${JSON.stringify(slug)} ${problem}`, { param: 'slug' })
  const { directory, ledger } = store
  const id = newUuid(random)
  const nowMs = clock.nowMs()
  if (!(await directory.change(tx => insertOrganization(tx, { id, slug, nowMs })))) {
    const { deletedAtMs } = organizationBySlug(directory.db, slug)
    const why =
      deletedAtMs === null
        ? 'exists already'
        : `was deleted at ${iso(deletedAtMs)}; host names, receipts and bills name it, so no other gets its slug: choose another`
    throw new Fault('conflict', `organization ${slug} ${why}`, { param: 'slug' })
  }
  noteEvent(ledger.db, log, { nowMs, kind: 'organization.created', subject: id, detail: { slug } })
  return organizationBySlug(directory.db, slug)
}

/** Sets the status. Idempotent; only a change causes an event. Throws Fault not_found. */
async function setStatus(deps: OrganizationsDeps, slug: string, status: Organization['status']): Promise<Organization> {
  const { store, clock, log } = deps
  const { organization, isChanged } = await store.directory.change(tx => {
    const before = presentOrganization(tx, slug)
    if (before.status === status) return { organization: before, isChanged: false }
    setOrganizationStatus(tx, { slug, status })
    return { organization: organizationBySlug(tx, slug), isChanged: true }
  })
  const kind = status === 'active' ? 'organization.resumed' : 'organization.suspended'
  if (isChanged) {
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), kind, subject: organization.id, detail: { slug } })
  }
  await putInForce(deps)
  return organization
}

/** Sets the budget. Only a change causes an event. Throws Fault not_found. */
async function setBudget(
  deps: OrganizationsDeps,
  slug: string,
  asked: Static<typeof AdminBudgetSet>,
): Promise<Organization> {
  const { store, clock, log } = deps
  checkPriced(asked, { models: null, unpriced: deps.unpricedModels })
  const { organization, isChanged } = await store.directory.change(tx => {
    const before = presentOrganization(tx, slug)
    const budget = budgetTerms(asked, before)
    const { budgetNanoUsd, budgetTokens, shortBudgets } = before
    const isChanged = JSON.stringify(budget) !== JSON.stringify({ budgetNanoUsd, budgetTokens, shortBudgets })
    if (isChanged) setOrganizationBudget(tx, slug, budget)
    return { organization: organizationBySlug(tx, slug), isChanged }
  })
  if (isChanged) {
    const event = { kind: 'organization.budget_changed', subject: organization.id, detail: { slug, ...asked } }
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), ...event })
  }
  await putInForce(deps)
  return organization
}

/** Sets quotas. Only a change causes an event. VMs that exist stay. Faults: not_found, conflict. */
async function setQuotas({ store, clock, log }: OrganizationsDeps, slug: string, asked: AdminQuotaSet) {
  const { organization, isChanged } = await store.directory.change(tx => {
    const before = presentOrganization(tx, slug)
    const quotas = { ...NO_QUOTAS, ...before.quotas, ...asked }
    const isChanged = JSON.stringify(quotas) !== JSON.stringify({ ...NO_QUOTAS, ...before.quotas })
    if (isChanged) setOrganizationQuotas(tx, slug, quotas)
    return { organization: organizationBySlug(tx, slug), isChanged }
  })
  if (isChanged) {
    const event = { kind: 'organization.quotas_changed', subject: organization.id, detail: { slug, ...asked } }
    noteEvent(store.ledger.db, log, { nowMs: clock.nowMs(), ...event })
  }
  return organization
}

type Viewed = { readonly nowMs: number; readonly held: HeldBudgets }

function organizationView(db: DirectoryDb, organization: Organization, { nowMs, held }: Viewed): AdminOrganization {
  const monthSum = prepareMonthSum(db)
  const failed = countFailedInstances(db, organization.id)
  const sumOf = (month: string) => monthSum({ organizationId: organization.id, keyPrefix: '', month })
  return {
    slug: organization.slug,
    status: stateOf(organization),
    created_at: iso(organization.createdAtMs),
    instances_living: organization.livingCount - failed,
    instances_failed: failed,
    keys_active: listKeys(db, organization.id).filter(key => key.revokedAtMs === null).length,
    quotas: { ...NO_QUOTAS, ...organization.quotas },
    ...budgetView(organization, { nowMs, sumOf }, held(organization.id)),
  }
}

/** Returns the status for operators: a deletion comes before a suspension. */
export function stateOf({ status, deletingAtMs, deletedAtMs }: Organization): AdminOrganization['status'] {
  if (deletedAtMs !== null) return 'deleted'
  return deletingAtMs === null ? status : 'deleting'
}
