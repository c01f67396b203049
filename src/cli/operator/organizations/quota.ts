// strongroom org quota: limits of one organization instead of the configured ones. Effects: requests to the daemon.

import { AdminOrganization } from '../../../contract/admin/admin.ts'
import type { OrganizationQuotas } from '../../../contract/admin/organizations/quotas.ts'
import { countOption, nullFor, orWord } from '../../../terminal/options.ts'
import type { Paint } from '../../../terminal/render.ts'
import { type Command, path } from '../../operator-run.ts'

type Count = number | 'default'
type QuotaOptions = {
  readonly instances?: Count
  readonly createsPerDay?: Count
  readonly builds?: Count
  readonly buildsPerDay?: Count
  readonly memoryMib?: Count
}

const count = (least: number, most: number) => orWord('default', countOption(least, most))

export function addQuota(org: Command, text: (organization: AdminOrganization, paint: Paint) => string): void {
  org
    .command('quota')
    .description('limit one organization otherwise than configured; options that are left out stay unchanged')
    .argument('<slug>', 'organization')
    .option('--instances <n>', 'instances that are not terminated, or `default`: as configured', count(0, 100_000))
    .option('--creates-per-day <n>', 'instances created within 24 hours, or `default`', count(1, 1_000_000))
    .option('--builds <n>', 'unfinished builds and reserved build VMs, or `default`', count(0, 100_000))
    .option('--builds-per-day <n>', 'builds within 24 hours, or `default`', count(1, 1_000_000))
    .option('--memory-mib <n>', 'memory of all its VMs, or `default`: no limit', count(0, 67_108_864))
    .examples(
      'strongroom org quota acme --instances 5 --memory-mib 16384',
      'strongroom org quota acme --creates-per-day default',
    )
    .runs(async (run, slug: string, options: QuotaOptions) => {
      // JSON leaves out what is undefined.
      const body = {
        instances: nullFor('default', options.instances),
        creates_per_day: nullFor('default', options.createsPerDay),
        builds: nullFor('default', options.builds),
        builds_per_day: nullFor('default', options.buildsPerDay),
        memory_mib: nullFor('default', options.memoryMib),
      }
      const request = { method: 'POST', path: path`/organizations/${slug}/quotas`, body } as const
      await run.show({ ...request, response: AdminOrganization }, text)
    })
}

/** Quotas as rows; an organization without any has none. */
export function quotaFields(quotas: OrganizationQuotas): [string, string][] {
  const rows: [string, number | null][] = [
    ['instances at most', quotas.instances],
    ['creates a day', quotas.creates_per_day],
    ['builds at most', quotas.builds],
    ['builds a day', quotas.builds_per_day],
    ['memory at most', quotas.memory_mib],
  ]
  return rows.flatMap(([name, most]): [string, string][] =>
    most === null ? [] : [[name, name === 'memory at most' ? `${most} MiB` : String(most)]],
  )
}
