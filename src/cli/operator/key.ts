// strongroom key: API keys of organizations.

import { type Command, Option } from 'commander'
import { AdminKey, AdminKeyCreated, AdminKeyList } from '../../contract/admin.ts'
import { type Cli, helpText, path, runOf } from '../cli.ts'
import { fields, type Paint, table, timeText } from '../render.ts'

export function addKey(program: Command, cli: Cli): void {
  const key = program
    .command('key')
    .description('API keys: create, list, revoke')
    .addHelpText('after', helpText('strongroom key create acme', 'strongroom key list acme'))

  key
    .command('create')
    .description('make an API key and print it, alone on stdout, this one time')
    .argument('<org>', 'slug of the organization')
    .addOption(new Option('--scope <scope>', 'what it may do').choices(['write', 'read']).default('write'))
    .addHelpText('after', helpText('strongroom key create acme > acme.key', 'strongroom key create acme --scope read'))
    .action(async (slug: string, options: { scope: string }, command: Command) => {
      const run = runOf(cli, command)
      const created = await run.client().ask({
        method: 'POST',
        path: path`/organizations/${slug}/keys`,
        body: { scope: options.scope },
        answer: AdminKeyCreated,
      })
      await run.result(created, `${created.key}\n`)
      await run.hint(
        `Key ${created.prefix} of ${slug}, scope ${created.scope}. It is not kept and cannot be shown again.`,
      )
      await run.hint(`Revoke it with: strongroom key revoke ${created.prefix}`)
    })

  key
    .command('list')
    .description('list the keys of an organization, revoked ones included')
    .argument('<org>', 'slug of the organization')
    .addHelpText('after', helpText('strongroom key list acme'))
    .action(async (slug: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const answer = await run.client().ask({ path: path`/organizations/${slug}/keys`, answer: AdminKeyList })
      await run.result(answer, listText(answer.keys, run.paint))
    })

  key
    .command('revoke')
    .description('refuse a key from now on; doing it twice is fine')
    .argument('<prefix>', 'the 8 characters behind `ca_`')
    .addHelpText('after', helpText('strongroom key revoke k3v9x2ab'))
    .action(async (prefix: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const revoked = await run.client().ask({ method: 'POST', path: path`/keys/${prefix}/revoke`, answer: AdminKey })
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
