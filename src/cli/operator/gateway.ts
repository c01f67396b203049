// strongroom gateway key: keys of the inference gateway. strongroom metrics: what Prometheus reads.

import { type Command, InvalidArgumentError } from 'commander'
import { AdminGatewayKey, AdminGatewayKeyCreated, AdminGatewayKeyList } from '../../contract/admin.ts'
import { type Cli, helpText, path, runOf } from '../cli.ts'
import { dash, fields, type Paint, table, timeText } from '../render.ts'

type CreateOptions = {
  readonly requestsPerMinute?: number
  readonly tokensPerMinute?: number
  readonly concurrency?: number
  readonly expires?: string
}

export function addGateway(program: Command, cli: Cli): void {
  const gateway = program
    .command('gateway')
    .description('the inference gateway: its keys')
    .addHelpText('after', helpText('strongroom gateway key create acme', 'strongroom gateway key list acme'))
  const key = gateway
    .command('key')
    .description('keys of the inference gateway: create, list, revoke')
    .addHelpText('after', helpText('strongroom gateway key create acme', 'strongroom gateway key list acme'))
  addCreate(key, cli)

  key
    .command('list')
    .description('list the gateway keys of an organization, those of its instances and revoked ones included')
    .argument('<org>', 'slug of the organization')
    .addHelpText('after', helpText('strongroom gateway key list acme'))
    .action(async (slug: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const answer = await run.client().ask({
        path: path`/organizations/${slug}/gateway-keys`,
        answer: AdminGatewayKeyList,
      })
      await run.result(answer, listText(answer.keys, run.paint))
    })

  key
    .command('revoke')
    .description('refuse a gateway key from now on; doing it twice is fine')
    .argument('<prefix>', 'the 8 characters behind `gw_`')
    .addHelpText('after', helpText('strongroom gateway key revoke k3v9x2ab'))
    .action(async (prefix: string, _options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const revoked = await run.client().ask({
        method: 'POST',
        path: path`/gateway-keys/${prefix}/revoke`,
        answer: AdminGatewayKey,
      })
      await run.result(revoked, keyText(revoked, run.paint))
    })
}

export function addMetrics(program: Command, cli: Cli): void {
  program
    .command('metrics')
    .description('print all metrics in the text format of Prometheus')
    .addHelpText('after', helpText('strongroom metrics', 'strongroom metrics --json'))
    .action(async (_options: unknown, command: Command) => {
      const run = runOf(cli, command)
      const decoder = new TextDecoder()
      let text = ''
      for await (const chunk of run.client().stream({ path: '/metrics' })) {
        text += decoder.decode(chunk, { stream: true })
      }
      await run.result({ metrics: text }, text)
    })
}

function addCreate(key: Command, cli: Cli): void {
  key
    .command('create')
    .description('make a gateway key and print it, alone on stdout, this one time')
    .argument('<org>', 'slug of the organization')
    .option('--requests-per-minute <n>', 'limit of requests (default: as configured)', countUpTo(1_000_000))
    .option('--tokens-per-minute <n>', 'limit of tokens (default: as configured)', countUpTo(1_000_000_000))
    .option('--concurrency <n>', 'limit of requests under way (default: as configured)', countUpTo(65_536))
    .option('--expires <date>', 'day or time in UTC at which it ends (default: never)')
    .addHelpText(
      'after',
      helpText(
        'strongroom gateway key create acme > acme.key',
        'strongroom gateway key create acme --requests-per-minute 60 --expires 2027-01-31',
      ),
    )
    .action(async (slug: string, options: CreateOptions, command: Command) => {
      const run = runOf(cli, command)
      const created = await run.client().ask({
        method: 'POST',
        path: path`/organizations/${slug}/gateway-keys`,
        body: {
          requests_per_minute: options.requestsPerMinute ?? null,
          tokens_per_minute: options.tokensPerMinute ?? null,
          concurrency_max: options.concurrency ?? null,
          expires_at: options.expires ?? null,
        },
        answer: AdminGatewayKeyCreated,
      })
      await run.result(created, `${created.key}\n`)
      await run.hint(`Gateway key ${created.prefix} of ${slug}. It is not kept and cannot be shown again.`)
      await run.hint(`Revoke it with: strongroom gateway key revoke ${created.prefix}`)
    })
}

function countUpTo(most: number): (text: string) => number {
  return text => {
    const count = /^[0-9]{1,10}$/.test(text) ? Number(text) : 0
    if (count < 1 || count > most) throw new InvalidArgumentError(`It must be a whole number from 1 to ${most}.`)
    return count
  }
}

function keyText(key: AdminGatewayKey, paint: Paint): string {
  const limit = (count: number | null) => (count === null ? 'as configured' : String(count))
  return fields(
    [
      ['prefix', key.prefix],
      ['organization', key.organization],
      ['instance', dash(key.instance)],
      ['state', paint.word(key.state)],
      ['requests per minute', limit(key.requests_per_minute)],
      ['tokens per minute', limit(key.tokens_per_minute)],
      ['concurrency', limit(key.concurrency_max)],
      ['created', key.created_at],
      ['expires', key.expires_at ?? 'never'],
      ['last used', key.last_used_at ?? 'never'],
      ['revoked', key.revoked_at ?? 'no'],
    ],
    paint,
  )
}

function listText(keys: readonly AdminGatewayKey[], paint: Paint): string {
  const rows = keys.map(key => [
    key.prefix,
    paint.word(key.state),
    dash(key.requests_per_minute),
    dash(key.tokens_per_minute),
    dash(key.concurrency_max),
    timeText(key.expires_at),
    timeText(key.last_used_at),
    dash(key.instance),
  ])
  return table(
    ['PREFIX', 'STATE', 'REQUESTS/MIN', 'TOKENS/MIN', 'CONCURRENT', 'EXPIRES', 'LAST USED', 'INSTANCE'],
    rows,
    paint,
  )
}
