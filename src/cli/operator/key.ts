// strongroom key: API keys of organizations. Effects: requests to the daemon.

import { type Command, Option } from 'commander'
import { AdminKey, AdminKeyCreated, AdminKeyList } from '../../contract/admin/admin.ts'
import { type Cli, helpText, path, runOf } from '../cli.ts'
import { fields, type Paint, table, timeText } from '../render.ts'

export function addKey(program: Command, cli: Cli): void {
  const key = program
    .command('key')
    .description('API keys: create, list, revoke')
    .addHelpText('after', helpText('strongroom key create acme', 'strongroom key list acme'))

  key
    .command('create')
    .description('create an API key and print it, alone on stdout; it is not shown again')
    .argument('<org>', 'slug of the organization')
    .addOption(new Option('--scope <scope>', 'what the key allows').choices(['write', 'read']).default('write'))
    .addHelpText('after', helpText('strongroom key create acme > acme.key', 'strongroom key create acme --scope read'))
    .action(async (slug: string, options: { scope: string }, command: Command) => {
      const run = runOf(cli, command)
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
    .addHelpText('after', helpText('strongroom key list acme'))
    .action(async (slug: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const found = await run.client().request({ path: path`/organizations/${slug}/keys`, response: AdminKeyList })
      await run.result(found, listText(found.keys, run.paint))
    })

  key
    .command('revoke')
    .description('revoke a key; no effect if already revoked')
    .argument('<prefix>', 'the 8 characters after `ca_`')
    .addHelpText('after', helpText('strongroom key revoke k3v9x2ab'))
    .action(async (prefix: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const revoked = await run
        .client()
        .request({ method: 'POST', path: path`/keys/${prefix}/revoke`, response: AdminKey })
      await run.result(revoked, keyText(revoked, run.paint))
    })
}

function stateOf(key: AdminKey): string {
  return key.revoked_at === null ? 'active' : 'revoked'
}

function keyText(key: AdminKey, paint: Paint): string {
  return fields(
    [
      ['prefix', key.prefix],
      ['organization', key.organization],
      ['scope', key.scope],
      ['state', paint.word(stateOf(key))],
      ['created', key.created_at],
      ['last used', key.last_used_at ?? 'never'],
      ['revoked', key.revoked_at ?? 'no'],
    ],
    paint,
  )
}

function listText(keys: readonly AdminKey[], paint: Paint): string {
  const rows = keys.map(key => [
    key.prefix,
    key.scope,
    paint.word(stateOf(key)),
    timeText(key.created_at),
    timeText(key.last_used_at),
    timeText(key.revoked_at),
  ])
  return table(['PREFIX', 'SCOPE', 'STATE', 'CREATED', 'LAST USED', 'REVOKED'], rows, paint)
}
