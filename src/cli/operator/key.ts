// strongroom key: API keys of organizations. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { Option } from 'commander'
import { AdminKey, AdminKeyCreated, AdminKeyList } from '../../contract/admin/admin.ts'
import { type Command, path } from '../cli.ts'
import { fields, type Paint, table, timeText } from '../render.ts'

export function addKey(program: Command): void {
  const key = program
    .command('key')
    .description('API keys: create, list, revoke')
    .examples('strongroom key create acme', 'strongroom key list acme')

  key
    .command('create')
    .description('create an API key and print it, alone on stdout; it is not shown again')
    .argument('<org>', 'slug of the organization')
    .addOption(new Option('--scope <scope>', 'what the key allows').choices(['write', 'read']).default('write'))
    .examples('strongroom key create acme > acme.key', 'strongroom key create acme --scope read')
    .runs(async (run, slug: string, options: { scope: string }) => {
      const created = await run.client().request({
        method: 'POST',
        path: path`/organizations/${slug}/keys`,
        body: { scope: options.scope },
        response: AdminKeyCreated,
      })
      await run.result(created, `${created.key}\n`)
      await run.hint(
        `Key ${created.prefix} of ${slug}, scope ${created.scope}. It is not kept and cannot be shown again.`,
      )
      await run.hint(`Revoke it with: strongroom key revoke ${created.prefix}`)
    })

  key
    .command('list')
    .description('list the keys of an organization, including revoked ones')
    .argument('<org>', 'slug of the organization')
    .examples('strongroom key list acme')
    .runs(async (run, slug: string) => {
      await run.show({ path: path`/organizations/${slug}/keys`, response: AdminKeyList }, listText)
    })

  key
    .command('revoke')
    .description('revoke a key; no effect if already revoked')
    .argument('<prefix>', 'the 8 characters after `ca_`')
    .examples('strongroom key revoke k3v9x2ab')
    .runs(async (run, prefix: string) => {
      await run.show({ method: 'POST', path: path`/keys/${prefix}/revoke`, response: AdminKey }, keyText)
    })
}

function stateOf(key: AdminKey): string {
  return key.revoked_at === null ? 'active' : 'revoked'
}

function keyText(key: AdminKey, paint: Paint): string {
  return fields(paint, [
    ['prefix', key.prefix],
    ['organization', key.organization],
    ['scope', key.scope],
    ['state', paint.word(stateOf(key))],
    ['created', key.created_at],
    ['last used', key.last_used_at ?? 'never'],
    ['revoked', key.revoked_at ?? 'no'],
  ])
}

function listText({ keys }: Static<typeof AdminKeyList>, paint: Paint): string {
  const rows = keys.map(key => [
    key.prefix,
    key.scope,
    paint.word(stateOf(key)),
    timeText(key.created_at),
    timeText(key.last_used_at),
    timeText(key.revoked_at),
  ])
  return table(paint, ['PREFIX', 'SCOPE', 'STATE', 'CREATED', 'LAST USED', 'REVOKED'], rows)
}
