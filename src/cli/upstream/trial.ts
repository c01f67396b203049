// Tries a model server for the configuration: its URL, key and authority, its models, one short request, its price.
// Effects: the terminal, requests to the server, reads files.

import { allowedText } from '../../config/parse.ts'
import type { Config } from '../../config/schema.ts'
import type { Engine } from '../../config/upstream/kinds.ts'
import { UpstreamConfig } from '../../config/upstream/upstream.ts'
import { InputFault } from '../../terminal/exit.ts'
import { KIB, MIB, readTextInput } from '../../terminal/input-file.ts'
import { oneLine } from '../../terminal/render.ts'
import type { Run } from '../operator-run.ts'
import { readServer, type ServerFacts, tryModel } from './engine.driver.ts'
import { type ModelPrice, type NewUpstream, upstreamName } from './entry.ts'
import { checkReach } from './reach.driver.ts'

export type ServerOptions = {
  readonly engine?: Engine
  readonly model?: string
  readonly name?: string
  readonly embeddings?: boolean
  readonly keyFile?: string
  readonly caFile?: string
  readonly contextTokens?: number
}

export type PriceOptions = { readonly priceIn?: string; readonly priceOut?: string; readonly free?: boolean }

export type TriedUpstream = Omit<NewUpstream, 'price'> & { readonly tookMs: number }

/** Throws Fault invalid_request, api.unreachable or upstream_failed if the server cannot be used. */
export async function triedUpstream(
  run: Run,
  config: Config,
  given: string,
  options: ServerOptions,
): Promise<TriedUpstream> {
  const url = checkedUrl(given)
  const { upstreams } = config.inference
  const twin = upstreams.find(upstream => upstream.url.replace(/\/+$/, '') === url)
  if (twin !== undefined) {
    throw new InputFault(`upstream ${twin.name} has this URL already`, {
      param: 'url',
      remedy: `add the model to \`models\` of ${twin.name} in the configuration; or run \`strongroom upstream rm ${twin.name}\` first`,
    })
  }
  await checkReach(config, url)
  const server = { url, engine: options.engine ?? null, key: keyIn(options.keyFile), ca: authorityIn(options.caFile) }
  const facts = await readServer(server)
  const model = chosenModel(facts, options.model)
  await run.hint(`trying ${url}: ${facts.engine}, one short request to ${oneLine(model.id)}`)
  const use = options.embeddings === true ? 'embeddings' : 'completions'
  const tookMs = await tryModel({ ...server, engine: facts.engine }, { model: model.id, use })
  const contextTokens = options.contextTokens ?? model.contextTokens
  await run.hint(`it answers in ${(tookMs / 1000).toFixed(1)} s; context: ${contextTokens ?? 'not reported'}`)
  await warnOfKind(run, facts)
  return {
    name:
      options.name ??
      upstreamName(
        url,
        upstreams.map(({ name }) => name),
      ),
    url,
    engine: facts.engine,
    model: model.id,
    isEmbedding: use === 'embeddings' || facts.engine === 'text-embeddings-inference',
    contextTokens,
    keyFile: options.keyFile ?? null,
    caFile: options.caFile ?? null,
    tookMs,
  }
}

function checkedUrl(text: string): string {
  const url = text.replace(/\/+$/, '')
  const { pattern = '', maxLength = 0 } = UpstreamConfig.properties.url
  if (new RegExp(pattern).test(url) && url.length <= maxLength && URL.canParse(url)) return url
  throw new InputFault(
    `${JSON.stringify(text)} is not allowed; allowed: ${allowedText(UpstreamConfig.properties.url)}`,
    {
      param: 'url',
      remedy: 'give it like https://10.0.0.5:8000/v1; an API key goes into a file (--key-file)',
    },
  )
}

function keyIn(path: string | undefined): string | null {
  if (path === undefined) return null
  const key = readTextInput({ path: absolute(path, 'key-file'), param: 'key-file', bytesMax: 8 * KIB }).trim()
  if (/^[\x21-\x7e]{1,4096}$/.test(key)) return key
  throw new InputFault(`${path} must hold one line of printable ASCII`, {
    param: 'key-file',
    remedy: 'write the key alone into the file',
  })
}

function authorityIn(path: string | undefined): string | null {
  return path === undefined ? null : readTextInput({ path: absolute(path, 'ca-file'), param: 'ca-file', bytesMax: MIB })
}

/** The daemon reads the file again at each start, from another working directory. */
function absolute(path: string, param: string): string {
  if (path.startsWith('/')) return path
  throw new InputFault(`--${param} ${JSON.stringify(path)} is not an absolute path`, {
    param,
    remedy: 'give the whole path; the service reads the file at each start',
  })
}

function chosenModel({ models }: ServerFacts, wanted: string | undefined) {
  const ids = models.map(({ id }) => oneLine(id)).slice(0, shownModelsMax)
  const list = `${ids.join(', ')}${models.length > ids.length ? `, and ${models.length - ids.length} more` : ''}`
  const [only] = models
  if (only === undefined) {
    throw new InputFault('the server lists no model', { param: 'url', remedy: 'load a model there first' })
  }
  const found = wanted === undefined ? only : models.find(({ id }) => id === wanted)
  if (found !== undefined && (wanted !== undefined || models.length === 1)) return found
  const message =
    wanted === undefined ? `the server serves several models: ${list}` : `the server does not serve ${wanted}: ${list}`
  throw new InputFault(message, { param: 'model', remedy: 'name one of them by --model' })
}

const shownModelsMax = 20

async function warnOfKind(run: Run, { engine, reportedEngine }: ServerFacts): Promise<void> {
  if (reportedEngine === null || reportedEngine === engine) return
  await run.hint(`the server calls itself ${reportedEngine}, and --engine is ${engine}`)
}

/** Null if the configuration has a price for the model. A budget in dollars would not count a model without one. */
export async function priceOf(
  run: Run,
  { config, file }: { readonly config: Config; readonly file: string },
  model: string,
  { priceIn, priceOut, free = false }: PriceOptions,
): Promise<ModelPrice | null> {
  const isGiven = priceIn !== undefined || priceOut !== undefined
  if (config.inference.prices.some(price => price.model === model)) {
    if (!isGiven && !free) return null
    throw new InputFault(`${file} has a price for ${model} already`, {
      param: free ? 'free' : 'price-in',
      remedy: 'leave out the price, or change it in the file',
    })
  }
  if (free && isGiven) {
    throw new InputFault('--free contradicts --price-in and --price-out', {
      param: 'free',
      remedy: 'give either the prices or --free',
    })
  }
  if (free) return { prompt: '0.00', completion: '0.00' }
  if (isGiven) return { prompt: usd('price-in', priceIn), completion: usd('price-out', priceOut) }
  const { ask } = run.io
  if (ask === undefined) {
    throw new InputFault(`${model} needs a price: without one a budget in dollars does not count it`, {
      param: 'price-in',
      remedy: 'add --price-in and --price-out (US dollars for a million tokens), or --free',
    })
  }
  const typed = async (text: string) =>
    (await ask(`US dollars for a million ${text} tokens [0.00]: `))?.trim() || '0.00'
  return { prompt: usd('price-in', await typed('prompt')), completion: usd('price-out', await typed('completion')) }
}

function usd(param: string, amount: string | undefined): string {
  if (amount !== undefined && /^(0|[1-9][0-9]{0,11})(\.[0-9]{1,6})?$/.test(amount)) return amount
  throw new InputFault(
    amount === undefined ? `--${param} is missing` : `--${param} ${JSON.stringify(amount)} is not an amount`,
    { param, remedy: 'give US dollars for a million tokens, like 0.50' },
  )
}
