// strongroom key: API keys of organizations. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { Option } from 'commander'
import { AdminKey, AdminKeyCreated, AdminKeyList } from '../../contract/admin/admin.ts'
import { dash, fields, type Paint, table, timeText } from '../../terminal/render.ts'
import { addNewKey } from '../new-key.ts'
import { type Command, path } from '../operator-run.ts'
import { checkedRegistration, keyWords, makerText, mintedHint, nameOption, registrationArgument } from './key-maker.ts'

type CreateOptions = { readonly scope: string; readonly name?: string }

export function addKey(program: Command): void {
  const key = program
    .command('key')
    .description('API keys: new (by clients), add, create, list, revoke')
    .examples('strongroom key new --key-file key.txt', 'strongroom key add acme LINE', 'strongroom key list acme')
  addNewKey(key, 'ca')

  key
    .command('add')
    .description('register an API key that its client made; this host never has the key')
    .argument('<org>', 'slug of the organization')
    .argument(...registrationArgument('ca'))
    .addOption(nameOption())
    .addOption(scopeOption())
    .examples(`strongroom key add acme ca_k3v9x2ab_sha256_${'0f'.repeat(32)} --name ci`)
    .runs(async (run, slug: string, registration: string, options: CreateOptions) => {
      const added = await run.client().request({
        method: 'POST',
        path: path`/organizations/${slug}/keys/add`,
        body: { registration: checkedRegistration('ca', registration), ...options },
        response: AdminKey,
      })
      await run.result(added, keyText(added, run.paint))
      await run.hint(`Revoke it with: strongroom key revoke ${added.prefix}`)
    })

  key
    .command('create')
    .description('mint an API key on this host and print it, alone on stdout; it is not shown again')
    .argument('<org>', 'slug of the organization')
    .addOption(nameOption())
    .addOption(scopeOption())
    .examples('strongroom key create acme --name ci > acme.key', 'strongroom key create acme --scope read')
    .runs(async (run, slug: string, options: CreateOptions) => {
      const created = await run.client().request({
        method: 'POST',
        path: path`/organizations/${slug}/keys`,
        body: options,
        response: AdminKeyCreated,
      })
      await run.result(created, `${created.key}\n`)
      await run.hint(
        `Key ${keyWords(created)} of ${slug}, scope ${created.scope}. It is not kept and cannot be shown again.`,
      )
      await run.hint(mintedHint('strongroom key new'))
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

function scopeOption(): Option {
  return new Option('--scope <scope>', 'what the key allows').choices(['write', 'read']).default('write')
}

function stateOf(key: AdminKey): string {
  return key.revoked_at === null ? 'active' : 'revoked'
}

function keyText(key: AdminKey, paint: Paint): string {
  return fields(paint, [
    ['prefix', key.prefix],
    ['name', dash(key.name)],
    ['organization', key.organization],
    ['scope', key.scope],
    ['state', paint.word(stateOf(key))],
    ['made by', makerText(key)],
    ['created', key.created_at],
    ['last used', key.last_used_at ?? 'never'],
    ['revoked', key.revoked_at ?? 'no'],
  ])
}

function listText({ keys }: Static<typeof AdminKeyList>, paint: Paint): string {
  const rows = keys.map(key => [
    key.prefix,
    dash(key.name),
    key.scope,
    paint.word(stateOf(key)),
    makerText(key),
    timeText(key.created_at),
    timeText(key.last_used_at),
    timeText(key.revoked_at),
  ])
  return table(paint, ['PREFIX', 'NAME', 'SCOPE', 'STATE', 'MADE BY', 'CREATED', 'LAST USED', 'REVOKED'], rows)
}
