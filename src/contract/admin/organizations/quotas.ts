// Quotas of an organization in the admin interface and in the store. Pure.

import { Closed, OrNull } from '../../forms.ts'
import { type Static, Type } from '../../type.ts'

const Quota = (minimum: number, maximum: number, description: string) =>
  OrNull(Type.Integer({ minimum, maximum }), { description })

/** The operator's limits for one organization. Null if the configured limit applies. */
export const OrganizationQuotas = Closed({
  instances: Quota(0, 100_000, 'Instances that are not terminated; instead of capacity.instances_per_organization_max'),
  creates_per_day: Quota(1, 1_000_000, 'Instances created within 24 hours; instead of instances.creates_per_day_max'),
  builds: Quota(0, 100_000, 'Unfinished builds and reserved build VMs; instead of builds.per_organization_max'),
  builds_per_day: Quota(1, 1_000_000, 'Builds within 24 hours; instead of builds.per_day_max'),
  memory_mib: Quota(
    0,
    67_108_864,
    'Memory of the VMs of instances that are not terminated, unfinished builds and reserved build VMs; no limit without',
  ),
})
export type OrganizationQuotas = Static<typeof OrganizationQuotas>
export type QuotaName = keyof OrganizationQuotas

export const NO_QUOTAS: OrganizationQuotas = {
  instances: null,
  creates_per_day: null,
  builds: null,
  builds_per_day: null,
  memory_mib: null,
}

/** Omitted fields stay unchanged. */
export const AdminQuotaSet = Type.Partial(OrganizationQuotas)
export type AdminQuotaSet = Static<typeof AdminQuotaSet>
