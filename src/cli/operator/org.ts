// strongroom org: organizations, which own instances and keys. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import { AdminOrganization, AdminOrganizationList, slugProblem } from '../../contract/admin/admin.ts'
import { type Command, path, type Run } from '../cli.ts'
import { budgetTokensMax, countOption, nullFor, orWord } from '../options.ts'
import { fields, type Paint, table, timeText } from '../render.ts'
import { budgetFields } from './budget.ts'

export function addOrg(program: Command): void {
  const org = program
    .command('org')
    .description('organizations: create, list, show, budget, suspend, resume')
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
      await run.hint(`Give it a key with: strongroom key create ${slug}`)
    })

  org
    .command('list')
    .description('list organizations')
    .examples('strongroom org list', 'strongroom org list --json')
    .runs(async run => {
      await run.show({ path: '/organizations', response: AdminOrganizationList }, listText)
    })

  org
    .command('budget')
    .description('change what all gateway keys together may use in a calendar month (UTC); what is not named stays')
    .argument('<slug>', 'organization')
    .option('--usd <amount>', 'like 250 or 12.50, or `none`')
    .option('--tokens <n>', 'or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .examples('strongroom org budget acme --usd 250', 'strongroom org budget acme --tokens none')
    .runs(async (run, slug: string, { usd, tokens }: { usd?: string; tokens?: number | 'none' }) => {
      const body = { budget_usd: nullFor('none', usd), budget_tokens: nullFor('none', tokens) }
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

/** Commands on one organization. Suspending or resuming it again has no effect. */
const ONE = [
  { name: 'show', method: 'GET', suffix: '', description: 'show one organization' },
  {
    name: 'suspend',
    method: 'POST',
    suffix: '/suspend',
    description: 'refuse its keys until it is resumed; its instances keep running',
  },
  { name: 'resume', method: 'POST', suffix: '/resume', description: 'accept its keys again' },
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
