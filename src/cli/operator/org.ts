// strongroom org: organizations, which own instances and keys. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { AdminOrganization, AdminOrganizationList, slugProblem } from '../../contract/admin/admin.ts'
import { AdminDeletion } from '../../contract/admin/deletion.ts'
import { budgetTokensMax, countOption, nullFor, orWord } from '../../terminal/options.ts'
import { bytesText, fields, type Paint, table, timeText } from '../../terminal/render.ts'
import { type Command, path, type Run } from '../operator-run.ts'
import { budgetFields } from './budget.ts'
import { addQuota, quotaFields } from './organizations/quota.ts'

type BudgetOptions = {
  readonly usd?: string
  readonly tokens?: number | 'none'
  readonly dayUsd?: string
  readonly dayTokens?: number | 'none'
  readonly weekUsd?: string
  readonly weekTokens?: number | 'none'
}

export function addOrg(program: Command): void {
  const org = program
    .command('org')
    .description('organizations: create, list, show, budget, quota, suspend, resume, delete')
    .examples('strongroom org create acme', 'strongroom org list')

  org
    .command('create')
    .description('create an organization; its slug becomes part of every host name')
    .argument('<slug>', 'lowercase letters, digits and hyphens; at most 32 characters')
    .examples('strongroom org create acme')
    .runs(async (run, slug: string) => {
      const wrong = slugProblem(slug)
      if (wrong !== null) throw new Fault('invalid_request', `slug ${JSON.stringify(slug)} ${wrong}`, { param: 'slug' })
      await run.show(
        {
          method: 'POST',
          path: '/organizations',
          body: { slug },
          response: AdminOrganization,
        },
        organizationText,
      )
      await run.hint(`Register a key that it made (strongroom key new) with: strongroom key add ${slug} LINE`)
      await run.hint(`Or mint one on this host with: strongroom key create ${slug}`)
    })

  org
    .command('list')
    .description('list organizations')
    .option('--deleted', 'include deleted ones, whose records and usage are kept')
    .examples('strongroom org list', 'strongroom org list --json')
    .runs(async (run, { deleted }: { deleted?: boolean }) => {
      await run.show({ path: '/organizations', query: { deleted }, response: AdminOrganizationList }, listText)
    })

  addDelete(org)
  addQuota(org, organizationText)

  org
    .command('budget')
    .description('change the budgets of all gateway keys together by month, day or week (UTC); others stay unchanged')
    .argument('<slug>', 'organization')
    .option('--usd <amount>', 'US dollars in a calendar month, like 250 or 12.50, or `none`')
    .option('--tokens <n>', 'tokens in a calendar month, or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .option('--day-usd <amount>', 'US dollars in a day, or `none`')
    .option('--day-tokens <n>', 'tokens in a day, or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .option('--week-usd <amount>', 'US dollars in a week from Monday, or `none`')
    .option('--week-tokens <n>', 'tokens in a week, or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .examples('strongroom org budget acme --usd 250', 'strongroom org budget acme --tokens none --day-usd 20')
    .runs(async (run, slug: string, options: BudgetOptions) => {
      const body = {
        budget_usd: nullFor('none', options.usd),
        budget_tokens: nullFor('none', options.tokens),
        budget_day_usd: nullFor('none', options.dayUsd),
        budget_day_tokens: nullFor('none', options.dayTokens),
        budget_week_usd: nullFor('none', options.weekUsd),
        budget_week_tokens: nullFor('none', options.weekTokens),
      }
      await item(run, { method: 'POST', path: path`/organizations/${slug}/budget`, body })
    })

  for (const { name, method, suffix, description } of ONE) {
    org
      .command(name)
      .description(description)
      .argument('<slug>', 'organization')
      .examples(`strongroom org ${name} acme`)
      .runs(async (run, slug: string) => {
        await item(run, { method, path: `${path`/organizations/${slug}`}${suffix}` })
      })
  }
}

function addDelete(org: Command): void {
  org
    .command('delete')
    .description('delete an organization and revoke its keys; with --force also end its instances and builds')
    .argument('<slug>', 'organization; its slug is never used again')
    .option('--force', 'also end its running instances and builds')
    .option('--dry-run', 'print what would be deleted, and change nothing')
    .examples('strongroom org delete acme --dry-run', 'strongroom org delete acme --force')
    .runs(async (run, slug: string, { force = false, dryRun = false }: { force?: boolean; dryRun?: boolean }) => {
      const found = dryRun
        ? await run.show({ path: path`/organizations/${slug}/deletion`, response: AdminDeletion }, deletionText)
        : await run.show(
            { method: 'DELETE', path: path`/organizations/${slug}`, query: { force }, response: AdminDeletion },
            deletionText,
          )
      if (found.deleting_at !== null && found.deleted_at === null)
        await run.hint(`It goes on by itself; see how far it is: strongroom org delete ${slug} --dry-run`)
    })
}

function deletionText(plan: AdminDeletion, paint: Paint): string {
  const names = (list: readonly string[]) => (list.length === 0 ? 'none' : `${list.length}: ${list.join(', ')}`)
  const state =
    plan.deleted_at !== null
      ? `deleted at ${plan.deleted_at}`
      : plan.deleting_at === null
        ? 'not asked for; this is what it would do'
        : `accepted at ${plan.deleting_at}; waits for ${plan.waits_for.join(', ') || 'its last look'}`
  return fields(paint, [
    ['slug', plan.slug],
    ['deletion', state],
    ['instances', `${names(plan.instances)}; they and their names end, with --force`],
    ['builds', `${names(plan.builds)}; cancelled, with --force`],
    ['build VMs', `${plan.reserved_vms} reserved; they end when they expire`],
    ['build files', `${bytesText(plan.build_file_bytes)}; removed`],
    ['keys', `${plan.keys_active} of A and C, ${plan.gateway_keys_active} of the gateway; revoked at once`],
    ['records', `${plan.records} of terminated instances; kept for instances.retention_days`],
    ['usage', 'kept; `strongroom gateway usage` shows it'],
    ['slug after', 'never used again: names, receipts and bills contain it'],
  ])
}

/** Commands on one organization. Suspending or resuming it again has no effect. */
const ONE = [
  { name: 'show', method: 'GET', suffix: '', description: 'show one organization' },
  {
    name: 'suspend',
    method: 'POST',
    suffix: '/suspend',
    description: 'refuse the keys of an organization until it is resumed; its instances keep running',
  },
  {
    name: 'resume',
    method: 'POST',
    suffix: '/resume',
    description: 'accept the keys of a suspended organization again',
  },
] as const

async function item(run: Run, request: { method: 'GET' | 'POST'; path: string; body?: unknown }): Promise<void> {
  await run.show({ ...request, response: AdminOrganization }, organizationText)
}

function organizationText(organization: AdminOrganization, paint: Paint): string {
  return fields(paint, [
    ['slug', organization.slug],
    ['status', paint.word(organization.status)],
    ['created', organization.created_at],
    ['instances', String(organization.instances_living)],
    ['keys', String(organization.keys_active)],
    ...quotaFields(organization.quotas),
    ...budgetFields(organization),
  ])
}

function listText({ organizations }: Static<typeof AdminOrganizationList>, paint: Paint): string {
  const rows = organizations.map(row => [
    row.slug,
    paint.word(row.status),
    String(row.instances_living),
    String(row.keys_active),
    timeText(row.created_at),
  ])
  return table(paint, ['SLUG', 'STATUS', 'INSTANCES', 'KEYS', 'CREATED'], rows)
}
