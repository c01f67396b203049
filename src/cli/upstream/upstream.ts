// strongroom upstream: own model servers of the gateway: add one after a trial, list, remove. Effects: requests to the
// server, the configuration file, the service.

import { Option } from 'commander'
import { isRecord } from '../../base/json.ts'
import { configFileDefault } from '../../config/load.ts'
import { ENGINES } from '../../config/upstream/kinds.ts'
import { ignoreProxyVariables } from '../../linux/net/outgoing.ts'
import { InputFault } from '../../terminal/exit.ts'
import { countOption } from '../../terminal/options.ts'
import { dash, oneLine, type Paint, table } from '../../terminal/render.ts'
import { readConfigText } from '../config-write.driver.ts'
import type { Command, Run } from '../operator-run.ts'
import { type ChangeOptions, type ConfigSource, changeUpstreams } from './change.ts'
import { afterAdd, afterChange } from './effects.plan.ts'
import { contextTokensMax } from './engine.plan.ts'
import { allowedEntry, type ModelPrice, withoutUpstream, withUpstream } from './entry.ts'
import { type PriceOptions, priceOf, type ServerOptions, triedUpstream } from './trial.ts'

type AddOptions = ChangeOptions & ServerOptions & PriceOptions

export function addUpstream(program: Command): void {
  const upstream = program
    .command('upstream')
    .description('own model servers that the gateway sends prompts to: add, ls, rm')
    .examples('strongroom upstream add https://10.0.0.5:8000/v1 --model llama-70b --free', 'strongroom upstream ls')
  const add = upstream
    .command('add')
    .description('try a model server, write it and its price into the configuration, and put both in force')
    .argument('<url>', 'base URL of an OpenAI-compatible server, up to and including /v1')
    .addOption(new Option('--engine <kind>', 'kind of server (default: as it reports itself)').choices(ENGINES))
    .option('--model <id>', 'model that it serves (default: its only one)')
    .option('--name <name>', 'name in logs and receipts, which clients see (default: made of the URL)')
    .option('--embeddings', 'the model makes embeddings or ranks documents, not completions')
    .option('--key-file <file>', 'absolute path of a file with the API key that the server requires')
    .option('--ca-file <file>', 'absolute path of the PEM certificates of the authority that signed its certificate')
    .option(
      '--context-tokens <n>',
      'context size, prompt and completion (default: as it reports)',
      countOption(1, contextTokensMax),
    )
    .option('--price-in <usd>', 'US dollars for a million prompt tokens, like 0.50')
    .option('--price-out <usd>', 'US dollars for a million completion tokens')
    .option('--free', 'the model costs nothing, so a budget in dollars does not stop it')
  addChangeOptions(add)
    .examples(
      'strongroom upstream add http://10.0.0.5:8000/v1 --engine vllm --model llama-70b --price-in 0.50 --price-out 1.50',
      'strongroom upstream add https://llm.example/v1 --key-file /etc/strongroom/llm.key --model gpt-large --free',
    )
    .runs((run, url: string, options: AddOptions) => addServer(run, url, options))
  upstream
    .command('ls')
    .description('list the upstreams of the configuration, with models, context size and price')
    .examples('strongroom upstream ls', 'strongroom upstream ls --json')
    .runs(list)
  const remove = upstream
    .command('rm')
    .description('remove an upstream from the configuration; prices of its models stay')
    .argument('<name>', 'as `strongroom upstream ls` prints it')
  addChangeOptions(remove)
    .examples('strongroom upstream rm rack-7')
    .runs((run, name: string, options: ChangeOptions) => removeServer(run, name, options))
}

function addChangeOptions(command: Command): Command {
  return command
    .option('--yes', 'do not ask, even if instances then send no prompt until their owners accept the change')
    .option('--dry-run', 'try it, and print what would change; change nothing')
    .option('--no-restart', 'write the file alone; the service takes it at its next start')
}

async function readSource(run: Run): Promise<ConfigSource> {
  const { file, config } = await run.config()
  const path = file ?? configFileDefault
  return { text: readConfigText(path), config, file: path }
}

async function addServer(run: Run, url: string, options: AddOptions): Promise<void> {
  ignoreProxyVariables()
  const source = await readSource(run)
  const { tookMs, ...tried } = await triedUpstream(run, source.config, url, options)
  const price = await priceOf(run, source, tried.model, options)
  const entry = allowedEntry(tried)
  const verdict = withUpstream(source, { ...tried, price })
  const changed = await changeUpstreams(run, source, { verdict, accept: [entry], options })
  if (changed === null || !verdict.ok) return
  const next = afterAdd({ ...tried, entry, isFree: isFree(price) }, verdict.config, changed.gateway)
  const { name, model, engine, contextTokens } = tried
  const document = {
    ...{ ok: true, file: source.file, name, model, engine, context_tokens: contextTokens, took_ms: tookMs },
    ...{ changes: changed.changes, workload_sha256: changed.gateway?.workloadSha256 ?? null, next },
  }
  const lines = next.map(line => `- ${oneLine(line)}\n`).join('')
  await run.result(document, `The gateway sends prompts for ${oneLine(model)} to ${name}.\n${lines}`)
}

async function removeServer(run: Run, name: string, options: ChangeOptions): Promise<void> {
  const source = await readSource(run)
  const names = source.config.inference.upstreams.map(upstream => upstream.name)
  if (!names.includes(name)) {
    throw new InputFault(`there is no upstream ${JSON.stringify(name)}`, {
      param: 'name',
      remedy: names.length === 0 ? 'the configuration has none' : `choose one of ${names.join(', ')}`,
    })
  }
  const verdict = withoutUpstream(source, name)
  const changed = await changeUpstreams(run, source, { verdict, accept: [], options })
  if (changed === null || !verdict.ok) return
  const next = afterChange(verdict.config, changed.gateway, [])
  await run.result(
    { ok: true, file: source.file, name, changes: changed.changes, next },
    `Upstream ${name} is removed.\n${next.map(line => `- ${oneLine(line)}\n`).join('')}`,
  )
}

function isFree(price: ModelPrice | null): boolean {
  return price !== null && Number(price.prompt) === 0 && Number(price.completion) === 0
}

async function list(run: Run): Promise<void> {
  const { config } = await readSource(run)
  const { upstreams, prices } = config.inference
  const rows = upstreams.map(upstream => ({
    name: upstream.name,
    url: upstream.url,
    engine: upstream.engine,
    models: upstream.models,
    context_tokens: upstream.context_tokens === 0 ? null : upstream.context_tokens,
    prices: upstream.models.map(model => prices.find(price => price.model === model) ?? null),
  }))
  await run.result({ upstreams: rows }, () => listText(rows, run.paint))
}

type Row = {
  readonly name: string
  readonly url: string
  readonly engine: string
  readonly models: readonly string[]
  readonly context_tokens: number | null
  readonly prices: readonly unknown[]
}

function listText(rows: readonly Row[], paint: Paint): string {
  if (rows.length === 0) return 'the configuration has no upstream: strongroom upstream add URL\n'
  const lines = rows.map(({ name, url, engine, models, context_tokens, prices }) => [
    name,
    url,
    engine,
    oneLine(models.join(', ')),
    dash(context_tokens),
    prices.map(priceText).join(', '),
  ])
  return table(paint, ['NAME', 'URL', 'ENGINE', 'MODELS', 'CONTEXT', 'USD A MILLION IN/OUT'], lines)
}

function priceText(price: unknown): string {
  if (!isRecord(price)) return 'no price'
  return `${price.prompt_usd_per_million}/${price.completion_usd_per_million}`
}
