// strongroom gateway key: keys of the gateway. strongroom metrics: Prometheus text. Effects: requests to the daemon.

import type { Static } from '@sinclair/typebox'
import { AdminGatewayKey, AdminGatewayKeyCreated, AdminGatewayKeyList } from '../../contract/admin/admin.ts'
import { type UserBudget, userBudgetText } from '../../contract/admin/user-budget.ts'
import type { KeyRules } from '../../contract/key-rules.ts'
import {
  aliasOption,
  budgetTokensMax,
  countOption,
  namesOption,
  nullFor,
  orWord,
  userBudgetOption,
} from '../../terminal/options.ts'
import { dash, fields, oneLine, type Paint, table, timeText } from '../../terminal/render.ts'
import { addNewKey } from '../new-key.ts'
import { type Command, path } from '../operator-run.ts'
import { budgetFields, budgetText } from './budget.ts'
import { addUsage } from './gateway-usage.ts'
import { checkedRegistration, keyWords, makerText, mintedHint, nameOption, registrationArgument } from './key-maker.ts'

type CreateOptions = {
  readonly name?: string
  readonly requestsPerMinute?: number
  readonly tokensPerMinute?: number
  readonly concurrency?: number
  readonly expires?: string
  readonly models?: string[]
  readonly alias?: Aliases
  readonly budgetUsd?: string
  readonly budgetTokens?: number
  readonly budgetDayUsd?: string
  readonly budgetDayTokens?: number
  readonly budgetWeekUsd?: string
  readonly budgetWeekTokens?: number
  readonly userBudget?: UserBudget
}

type Aliases = NonNullable<KeyRules['aliases']>

type SetOptions = {
  readonly requestsPerMinute?: number | 'default'
  readonly tokensPerMinute?: number | 'default'
  readonly concurrency?: number | 'default'
  readonly expires?: string
  readonly models?: string[] | 'all'
  readonly budgetUsd?: string
  readonly budgetTokens?: number | 'none'
  readonly budgetDayUsd?: string
  readonly budgetDayTokens?: number | 'none'
  readonly budgetWeekUsd?: string
  readonly budgetWeekTokens?: number | 'none'
  readonly userBudget?: UserBudget | 'none'
  readonly alias?: Aliases
  /** False with --no-aliases. */
  readonly aliases: boolean
}

export function addGateway(program: Command): void {
  const gateway = program
    .command('gateway')
    .description('the inference gateway: keys and usage')
    .examples('strongroom gateway key create acme', 'strongroom gateway key list acme')
  const key = gateway
    .command('key')
    .description('keys of the inference gateway: new (by clients), add, create, set, list, revoke')
    .examples(
      'strongroom gateway key new --key-file key.txt',
      'strongroom gateway key add acme LINE',
      'strongroom gateway key list acme',
    )
  addNewKey(key, 'gw')
  addAdd(key)
  addCreate(key)
  addSet(key)
  addUsage(gateway)

  key
    .command('list')
    .description('list the gateway keys of an organization, including those of its instances and revoked ones')
    .argument('<org>', 'slug of the organization')
    .examples('strongroom gateway key list acme')
    .runs(async (run, slug: string) => {
      await run.show(
        {
          path: path`/organizations/${slug}/gateway-keys`,
          response: AdminGatewayKeyList,
        },
        listText,
      )
    })

  key
    .command('revoke')
    .description('revoke a gateway key; no effect if already revoked')
    .argument('<prefix>', 'the 8 characters after `gw_`')
    .examples('strongroom gateway key revoke k3v9x2ab')
    .runs(async (run, prefix: string) => {
      await run.show(
        {
          method: 'POST',
          path: path`/gateway-keys/${prefix}/revoke`,
          response: AdminGatewayKey,
        },
        keyText,
      )
    })
}

export function addMetrics(program: Command): void {
  program
    .command('metrics')
    .description('print all metrics in the text format of Prometheus')
    .examples('strongroom metrics', 'strongroom metrics --json')
    .runs(async run => {
      const decoder = new TextDecoder()
      let text = ''
      for await (const chunk of run.client().stream({ path: '/metrics' })) {
        text += decoder.decode(chunk, { stream: true })
      }
      await run.result({ metrics: text }, text)
    })
}

function addAdd(key: Command): void {
  const add = key
    .command('add')
    .description('register a gateway key that its client made; this host never has the key')
    .argument('<org>', 'slug of the organization')
    .argument(...registrationArgument('gw'))
  addTerms(add)
    .examples(`strongroom gateway key add acme gw_k3v9x2ab_sha256_${'0f'.repeat(32)} --expires 2027-01-31`)
    .runs(async (run, slug: string, registration: string, options: CreateOptions) => {
      const added = await run.client().request({
        method: 'POST',
        path: path`/organizations/${slug}/gateway-keys/add`,
        body: { ...termsOf(options), registration: checkedRegistration('gw', registration) },
        response: AdminGatewayKey,
      })
      await run.result(added, keyText(added, run.paint))
      await run.hint(`Revoke it with: strongroom gateway key revoke ${added.prefix}`)
    })
}

function addTerms(command: Command): Command {
  return command
    .addOption(nameOption())
    .option('--requests-per-minute <n>', 'most requests per minute (default: as configured)', countOption(1, 1_000_000))
    .option('--tokens-per-minute <n>', 'most tokens per minute (default: as configured)', countOption(1, 1_000_000_000))
    .option('--concurrency <n>', 'most requests at the same time (default: as configured)', countOption(1, 65_536))
    .option('--expires <date>', 'day or time in UTC at which the key expires (default: never)')
    .option('--models <ids>', 'models that it may use, separated by commas (default: all)', namesOption)
    .option('--alias <name=model>', 'a name that its clients may send for a model; repeatable', aliasOption)
    .option('--budget-usd <amount>', 'US dollars in a calendar month (UTC), like 12.50 (default: no limit)')
    .option('--budget-tokens <n>', 'tokens in a calendar month (default: no limit)', countOption(0, budgetTokensMax))
    .option('--budget-day-usd <amount>', 'US dollars in a day (default: no limit)')
    .option('--budget-day-tokens <n>', 'tokens in a day (default: no limit)', countOption(0, budgetTokensMax))
    .option('--budget-week-usd <amount>', 'US dollars in a week from Monday (default: no limit)')
    .option('--budget-week-tokens <n>', 'tokens in a week (default: no limit)', countOption(0, budgetTokensMax))
    .option('--user-budget <budget>', userBudgetHelp, userBudgetOption)
}

const userBudgetHelp =
  'budget of each end user: dollars/day, week or month, then [,end users][,required], like 5/month,200'

function termsOf(options: CreateOptions) {
  return {
    // JSON leaves out what is undefined.
    name: options.name,
    requests_per_minute: options.requestsPerMinute ?? null,
    tokens_per_minute: options.tokensPerMinute ?? null,
    concurrency_max: options.concurrency ?? null,
    expires_at: options.expires ?? null,
    models: options.models ?? null,
    aliases: options.alias ?? null,
    budget_usd: options.budgetUsd ?? null,
    budget_tokens: options.budgetTokens ?? null,
    budget_day_usd: options.budgetDayUsd,
    budget_day_tokens: options.budgetDayTokens,
    budget_week_usd: options.budgetWeekUsd,
    budget_week_tokens: options.budgetWeekTokens,
    user_budget: options.userBudget,
  }
}

function addCreate(key: Command): void {
  const create = key
    .command('create')
    .description('mint a gateway key on this host and print it, alone on stdout; it is not shown again')
    .argument('<org>', 'slug of the organization')
  addTerms(create)
    .examples(
      'strongroom gateway key create acme --name ci > acme.key',
      'strongroom gateway key create acme --requests-per-minute 60 --expires 2027-01-31',
      'strongroom gateway key create acme --models llama-70b,tiny --alias gpt-4o=llama-70b',
    )
    .runs(async (run, slug: string, options: CreateOptions) => {
      const created = await run.client().request({
        method: 'POST',
        path: path`/organizations/${slug}/gateway-keys`,
        body: termsOf(options),
        response: AdminGatewayKeyCreated,
      })
      await run.result(created, `${created.key}\n`)
      await run.hint(`Gateway key ${keyWords(created)} of ${slug}. It is not kept and cannot be shown again.`)
      await run.hint(mintedHint('strongroom gateway key new'))
      await run.hint(`Revoke it with: strongroom gateway key revoke ${created.prefix}`)
    })
}

function addSet(key: Command): void {
  key
    .command('set')
    .description('change limits, expiry, models or aliases of a key; the others stay unchanged')
    .argument('<prefix>', 'the 8 characters after `gw_`')
    .option('--requests-per-minute <n>', 'or `default`: as configured', orWord('default', countOption(1, 1_000_000)))
    .option('--tokens-per-minute <n>', 'or `default`: as configured', orWord('default', countOption(1, 1_000_000_000)))
    .option('--concurrency <n>', 'or `default`: as configured', orWord('default', countOption(1, 65_536)))
    .option('--expires <date>', 'day or time in UTC, or `never`')
    .option('--models <ids>', 'separated by commas, replaces the former ones; or `all`', orWord('all', namesOption))
    .option('--alias <name=model>', 'replaces all former names; repeatable', aliasOption)
    .option('--budget-usd <amount>', 'US dollars in a calendar month (UTC), like 12.50, or `none`')
    .option(
      '--budget-tokens <n>',
      'tokens in a calendar month, or `none`',
      orWord('none', countOption(0, budgetTokensMax)),
    )
    .option('--budget-day-usd <amount>', 'US dollars in a day, or `none`')
    .option('--budget-day-tokens <n>', 'tokens in a day, or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .option('--budget-week-usd <amount>', 'US dollars in a week from Monday, or `none`')
    .option('--budget-week-tokens <n>', 'tokens in a week, or `none`', orWord('none', countOption(0, budgetTokensMax)))
    .option('--user-budget <budget>', 'of each end user, like 5/month,200, or `none`', orWord('none', userBudgetOption))
    .option('--no-aliases', 'remove all its names')
    .examples(
      'strongroom gateway key set k3v9x2ab --models llama-70b --alias gpt-4o=llama-70b',
      'strongroom gateway key set k3v9x2ab --tokens-per-minute default --no-aliases',
    )
    .runs(async (run, prefix: string, options: SetOptions) => {
      const { expires, models, alias, aliases } = options
      await run.show(
        {
          method: 'POST',
          path: path`/gateway-keys/${prefix}/terms`,
          // JSON leaves out what is undefined.
          body: {
            requests_per_minute: nullFor('default', options.requestsPerMinute),
            tokens_per_minute: nullFor('default', options.tokensPerMinute),
            concurrency_max: nullFor('default', options.concurrency),
            expires_at: nullFor('never', expires),
            models: nullFor('all', models),
            aliases: aliases ? alias : null,
            budget_usd: nullFor('none', options.budgetUsd),
            budget_tokens: nullFor('none', options.budgetTokens),
            budget_day_usd: nullFor('none', options.budgetDayUsd),
            budget_day_tokens: nullFor('none', options.budgetDayTokens),
            budget_week_usd: nullFor('none', options.budgetWeekUsd),
            budget_week_tokens: nullFor('none', options.budgetWeekTokens),
            user_budget: nullFor('none', options.userBudget),
          },
          response: AdminGatewayKey,
        },
        keyText,
      )
    })
}

function keyText(key: AdminGatewayKey, paint: Paint): string {
  const limit = (count: number | null) => (count === null ? 'as configured' : String(count))
  return fields(paint, [
    ['prefix', key.prefix],
    ['name', dash(key.name)],
    ['organization', key.organization],
    ['instance', dash(key.instance)],
    ['state', paint.word(key.state)],
    ['made by', makerText(key)],
    ['requests per minute', limit(key.requests_per_minute)],
    ['tokens per minute', limit(key.tokens_per_minute)],
    ['concurrency', limit(key.concurrency_max)],
    ['models', modelsText(key)],
    ['aliases', dash(key.aliases?.map(({ name, model }) => oneLine(`${name}=${model}`)).join('\n'))],
    ...budgetFields(key),
    ...(key.user_budget == null ? [] : [['each end user', userBudgetText(key.user_budget)] as const]),
    ['created', key.created_at],
    ['expires', key.expires_at ?? 'never'],
    ['last used', key.last_used_at ?? 'never'],
    ['revoked', key.revoked_at ?? 'no'],
  ])
}

function modelsText({ models }: AdminGatewayKey): string {
  if (models === null) return 'all'
  return models.length === 0 ? 'none' : oneLine(models.join(', '))
}

function listText({ keys }: Static<typeof AdminGatewayKeyList>, paint: Paint): string {
  const rows = keys.map(key => [
    key.prefix,
    dash(key.name),
    paint.word(key.state),
    makerText(key),
    dash(key.requests_per_minute),
    dash(key.tokens_per_minute),
    dash(key.concurrency_max),
    timeText(key.expires_at),
    timeText(key.last_used_at),
    dash(key.instance),
    modelsText(key),
    budgetText(key),
  ])
  return table(
    paint,
    [
      'PREFIX',
      'NAME',
      'STATE',
      'MADE BY',
      'REQUESTS/MIN',
      'TOKENS/MIN',
      'CONCURRENT',
      'EXPIRES',
      'LAST USED',
      'INSTANCE',
      'MODELS',
      'BUDGET',
    ],
    rows,
  )
}
