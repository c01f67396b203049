// The text of the configuration file with one upstream more or less. No effects.

import { outsideEntry } from '../../attest/receipt/outside.ts'
import { canonicalJson, type Plain } from '../../base/canonical-json.ts'
import { servedModels } from '../../config/checks/worker.ts'
import { changesTo, editToml, inlineToml, type Setting, settingsOf } from '../../config/edit.ts'
import { appendEntry, removeEntry } from '../../config/edit-list.ts'
import { type ConfigProblem, parseConfig } from '../../config/parse.ts'
import type { Config } from '../../config/schema.ts'
import type { Engine } from '../../config/upstream/kinds.ts'

export type NewUpstream = {
  readonly name: string
  readonly url: string
  readonly engine: Engine
  readonly model: string
  readonly isEmbedding: boolean
  /** Null if unknown. */
  readonly contextTokens: number | null
  readonly keyFile: string | null
  readonly caFile: string | null
  /** Null if the file has a price for the model. */
  readonly price: ModelPrice | null
}

/** US dollars for a million tokens, as text. */
export type ModelPrice = { readonly prompt: string; readonly completion: string }

export type EditVerdict =
  | {
      readonly ok: true
      readonly text: string
      readonly config: Config
      /** One line for each change. */
      readonly changes: readonly string[]
    }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] }

const upstreamsPath = ['inference', 'upstreams']
const pricesPath = ['inference', 'prices']
const offeredPath = ['instances', 'inference_models']

type Source = { readonly text: string; readonly config: Config; readonly file: string }

/** Adds an upstream, its price if it has none, and its model to those of instances. */
export function withUpstream(source: Source, upstream: NewUpstream): EditVerdict {
  const { config } = source
  const entry = entryOf(upstream)
  const price = upstream.price && {
    model: upstream.model,
    prompt_usd_per_million: upstream.price.prompt,
    completion_usd_per_million: upstream.price.completion,
  }
  const offered = upstream.isEmbedding ? null : offeredWith(config, upstream.model)
  let text = appendEntry(source.text, upstreamsPath, entry)
  // The first entry may not fit the form of the file; then the verdict has the reason.
  if (price !== null && settingsOf(text) !== null) text = appendEntry(text, pricesPath, price)
  const { inference } = config
  return verdictOf(text, source, {
    upstreams: [...inference.upstreams.map(({ name }) => name), upstream.name],
    prices: [...inference.prices.map(({ model }) => model), ...(price === null ? [] : [price.model])],
    offered,
    changes: [
      `[[inference.upstreams]] ${fieldsText(entry)}`,
      ...(price === null ? [] : [`[[inference.prices]] ${fieldsText(price)}`]),
    ],
  })
}

/** Removes an upstream, and its models from those of instances if nothing else serves them. Prices stay. */
export function withoutUpstream(source: Source, name: string): EditVerdict {
  const { config } = source
  const { inference } = config
  const index = inference.upstreams.findIndex(upstream => upstream.name === name)
  const rest = inference.upstreams.toSpliced(index, 1)
  const served = servedModels({ ...config, inference: { ...inference, upstreams: rest } })
  const models = inference.upstreams[index]?.models ?? []
  const gone = models.filter(model => !served.has(model))
  const left = config.instances.inference_models.filter(model => !gone.includes(model))
  return verdictOf(removeEntry(source.text, upstreamsPath, index), source, {
    upstreams: rest.map(upstream => upstream.name),
    prices: inference.prices.map(({ model }) => model),
    // The list must have an entry.
    offered: left.length === 0 || left.length === config.instances.inference_models.length ? null : left,
    changes: [`[[inference.upstreams]] ${name} is removed`],
  })
}

/** `offered`: the new list of models for instances; null if it stays. */
type Expected = {
  readonly upstreams: readonly string[]
  readonly prices: readonly string[]
  readonly offered: readonly string[] | null
  readonly changes: readonly string[]
}

/** The edited text must parse, and differ from the former in what was requested alone. */
function verdictOf(edited: string, { file, config: before }: Source, expected: Expected): EditVerdict {
  const settings: Setting[] = expected.offered === null ? [] : [{ path: offeredPath, value: expected.offered }]
  const text = settingsOf(edited) === null ? edited : editToml(edited, changesTo(edited, settings))
  const verdict = parseConfig(text, file)
  if (!verdict.ok) return verdict
  const { config } = verdict
  const isExpected =
    JSON.stringify(config.inference.upstreams.map(({ name }) => name)) === JSON.stringify(expected.upstreams) &&
    JSON.stringify(config.inference.prices.map(({ model }) => model)) === JSON.stringify(expected.prices) &&
    canonicalJson(restOf(config)) === canonicalJson(restOf(before)) &&
    JSON.stringify(config.instances.inference_models) ===
      JSON.stringify(expected.offered ?? before.instances.inference_models)
  if (!isExpected) {
    const message = 'cannot be changed here by a program, in the form that it has; edit the file'
    return { ok: false, problems: [{ file, line: 1, field: upstreamsPath.join('.'), message }] }
  }
  const offered = settings.map(({ path, value }) => `${path.join('.')} = ${inlineToml(value)}`)
  return { ok: true, text, config, changes: [...expected.changes, ...offered] }
}

/** All that neither command changes. */
function restOf({ inference, instances, ...config }: Config): Plain {
  const rest: object = {
    ...config,
    inference: { ...inference, upstreams: [], prices: [] },
    instances: { ...instances, inference_models: [] },
  }
  return rest as Plain
}

/** Fields with their default are left out. */
function entryOf({ name, url, engine, model, isEmbedding, contextTokens, keyFile, caFile }: NewUpstream) {
  return {
    name,
    url,
    engine,
    models: [model],
    ...(isEmbedding ? { embedding_models: [model] } : {}),
    ...(contextTokens === null ? {} : { context_tokens: contextTokens }),
    ...(keyFile === null ? {} : { key_file: keyFile }),
    ...(caFile === null ? {} : { ca_file: caFile }),
  }
}

function fieldsText(entry: object): string {
  return Object.entries(entry)
    .map(([name, value]) => `${name} = ${inlineToml(value)}`)
    .join(', ')
}

/** The models of instances with this one behind them; models that nothing serves are left out. Null if unchanged. */
function offeredWith(config: Config, model: string): string[] | null {
  const { inference_models: present, inference_base_url: elsewhere } = config.instances
  // Instances use another gateway.
  if (elsewhere !== '' || present.includes(model)) return null
  const served = servedModels(config)
  return [...present.filter(name => served.has(name)), model]
}

/** `rack-7=https://10.0.0.5:8000`, as clients and owners allow it. */
export function allowedEntry({ name, url }: Pick<NewUpstream, 'name' | 'url'>): string {
  return outsideEntry(name, url)
}

const nameCharsMax = 63

/** A name for this URL that no other upstream has: its first label, or its address with hyphens. */
export function upstreamName(url: string, taken: readonly string[]): string {
  const { hostname } = new URL(url)
  const isName = /[a-z]/i.test(hostname) && !hostname.startsWith('[')
  const base = (isName ? (hostname.split('.')[0] ?? '') : hostname)
    .toLowerCase()
    .replaceAll(/[^a-z0-9-]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, nameCharsMax - 4)
  const first = base === '' ? 'upstream' : base
  const used = new Set([...taken, 'built-in'])
  for (let at = 1; ; at += 1) {
    const name = at === 1 ? first : `${first}-${at}`
    if (!used.has(name)) return name
  }
}
