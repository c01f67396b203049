// Instance-hours in the admin interface, for billing. Effects: those of the function that sums them.

import type { Static } from '@sinclair/typebox'
import { Elysia } from 'elysia'
import {
  AdminInstanceHours,
  AdminInstanceHoursQuery,
  HOUR_GROUPS,
  type HourGroup,
  instanceHoursCsv,
} from '../contract/admin/organizations/instance-hours.ts'
import { usageDaysOf, usageGroupsOf } from '../contract/http/usage-rows.ts'
import { listOrganizations } from '../store/directory/organization.query.ts'
import type { AdminDeps } from './deps.ts'
import { organizationBySlug } from './organizations.ts'

type BillingDeps = Pick<AdminDeps, 'instanceHours'> & { readonly store: Pick<AdminDeps['store'], 'directory'> }
type Query = Static<typeof AdminInstanceHoursQuery>

export function billingRoutes(deps: BillingDeps) {
  return new Elysia({ normalize: false })
    .get('/billing/instance-hours', ({ query }) => exportHours(deps, query), {
      query: AdminInstanceHoursQuery,
      response: AdminInstanceHours,
    })
    .get(
      '/billing/instance-hours.csv',
      async ({ query }) => {
        const text = instanceHoursCsv(await exportHours(deps, query))
        return new Response(text, { headers: { 'content-type': 'text/csv; charset=utf-8' } })
      },
      { query: AdminInstanceHoursQuery },
    )
}

/** Sums the hours of a query. Faults: not_found, invalid_request (days, groups, rows, or records that are gone). */
async function exportHours({ store, instanceHours }: BillingDeps, query: Query): Promise<AdminInstanceHours> {
  const days = usageDaysOf(query)
  const by = usageGroupsOf<HourGroup>(query.by ?? 'organization,instance', HOUR_GROUPS)
  const { db } = store.directory
  const { organization: slug } = query
  const organizations = slug === undefined ? listOrganizations(db, { deleted: true }) : [organizationBySlug(db, slug)]
  return await instanceHours({ organizations, days, by })
}
