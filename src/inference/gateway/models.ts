// GET /v1/models: the models that the gateway serves. Pure.

import { Fault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import type { GatewayModel, GatewayModelList } from '../../contract/http/inference.ts'
import { type KeyRules, modelNames, type OfferedModels, offeredModels, resolveModel } from '../../contract/key-rules.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import { invalidField } from '../json-text.ts'
import type { Cost } from '../metering/price.ts'
import type { UpstreamTarget } from '../upstream/target.ts'

export type ModelUse = 'completions' | 'embeddings'

/** `canaryPercent`: percentage of requests that the fallback answers in any case. */
export type Fallback = { readonly fallback: string; readonly canaryPercent?: number }

export type ServedModels = OfferedModels & {
  /** Models that only upstreams inside the attestation may answer. */
  readonly inside: ReadonlySet<string>
  /** Use of each model, by name. */
  readonly uses: ReadonlyMap<string, ModelUse>
  /** The fallback of each model, by the model's name. It answers if no upstream of the model does. */
  readonly fallbacks: ReadonlyMap<string, Fallback>
}

/**
 * Returns the served models. `inside`: names of the upstreams that the attestation covers. A fallback is dropped if it
 * leads outside of them, or to a model of another use, regardless of the settings.
 */
export function servedModels(
  upstreams: readonly Pick<UpstreamTarget, 'name' | 'models' | 'embeddingModels'>[],
  inside: ReadonlySet<string>,
  fallbacks: GatewaySettings['fallbacks'] = [],
): ServedModels {
  const uses = upstreams.flatMap(({ models, embeddingModels }) =>
    models.map(id => [id, embeddingModels.includes(id) ? 'embeddings' : 'completions'] as const),
  )
  const offered = offeredModels(upstreams.map(({ name, models }) => ({ models, isInside: inside.has(name) })))
  const useOf = new Map(uses)
  const isOutside = (model: string) => upstreams.some(({ name, models }) => models.includes(model) && !inside.has(name))
  const allowed = fallbacks.filter(
    ({ model, fallback }) =>
      useOf.get(model) === 'completions' &&
      useOf.get(fallback) === 'completions' &&
      (isOutside(model) || !isOutside(fallback)),
  )
  return {
    ...offered,
    inside: new Set([...offered.served].filter(model => !isOutside(model))),
    uses: useOf,
    fallbacks: new Map(allowed.map(({ model, ...fallback }) => [model, fallback])),
  }
}

type ModelQuery = { readonly rules: KeyRules; readonly name: string; readonly use: ModelUse }

/**
 * Returns the id of the model that a key means by a name. Faults: not_found; invalid_request for a model of another
 * use.
 */
export function requireModel(models: ServedModels, { rules, name, use }: ModelQuery): string {
  const id = resolveModel(rules, models, name)
  if (id === null) throw noSuchModel()
  const served = models.uses.get(id)
  if (served === use) return id
  throw invalidField(
    'model',
    served === 'embeddings'
      ? 'makes embeddings or ranks documents: use /v1/embeddings or /v1/rerank.'
      : 'makes completions: use /v1/chat/completions, or choose an embedding or rerank model.',
  )
}

/** Returns the model's fallback; null if it has none, or the key may not use it. */
function fallbackOf(models: ServedModels, rules: KeyRules, model: string): Fallback | null {
  const found = models.fallbacks.get(model)
  return found !== undefined && resolveModel(rules, models, found.fallback) === found.fallback ? found : null
}

/**
 * Returns the models that may answer, in the order in which they are tried. `draw` returns a number in [0, 1) for this
 * request; called only if there is a canary.
 */
export function modelsToTry(
  models: ServedModels,
  { rules, model }: { readonly rules: KeyRules; readonly model: string },
  draw: () => number,
): readonly [string, ...string[]] {
  const found = fallbackOf(models, rules, model)
  if (found === null) return [model]
  const isCanary = found.canaryPercent !== undefined && draw() * 100 < found.canaryPercent
  return isCanary ? [found.fallback, model] : [model, found.fallback]
}

/** The models that a key may use, under all names that the key has for them. */
export type ModelCatalog = {
  /** Returns the JSON of the list. */
  readonly listText: (rules: KeyRules) => string
  /** Returns the JSON of one model by its name in the path, percent-encoded or not; null for an unknown one. */
  readonly textOf: (item: string, rules: KeyRules) => string | null
}

type CatalogFacts = {
  readonly created: number
  readonly ownedBy: string
  readonly upstreams: readonly Pick<UpstreamTarget, 'models' | 'contextTokens'>[]
  /** Returns the current prices. */
  readonly cost: () => Cost
}

export function createModelCatalog(
  models: ServedModels,
  { created, ownedBy, upstreams, cost }: CatalogFacts,
): ModelCatalog {
  /** Describes a model under the name that the key has for it. */
  const modelOf = (name: string, rules: KeyRules): GatewayModel => {
    const id = resolveModel(rules, models, name) ?? name
    const pricing = pricingOf(id, cost())
    const context = contextOf(upstreams.filter(upstream => upstream.models.includes(id)))
    return {
      id: name,
      object: 'model',
      created,
      owned_by: ownedBy,
      ...(context === null ? {} : { context_length: context }),
      ...(pricing === null ? {} : { pricing }),
    }
  }
  return {
    listText: rules => {
      const data = modelNames(rules, models).map(name => modelOf(name, rules))
      const list: GatewayModelList = { object: 'list', data }
      return JSON.stringify(list)
    },
    textOf: (item, rules) => {
      const name = [decoded(item), item].find(text => text !== null && resolveModel(rules, models, text) !== null)
      return name === undefined || name === null ? null : JSON.stringify(modelOf(name, rules))
    },
  }
}

/** Returns the minimum over all upstreams, because any of them may get the request; null if one has no value. */
function contextOf(upstreams: readonly Pick<UpstreamTarget, 'contextTokens'>[]): number | null {
  let least: number | null = null
  for (const { contextTokens } of upstreams) {
    if (contextTokens === null) return null
    least = Math.min(least ?? contextTokens, contextTokens)
  }
  return least
}

/** A million tokens cost a whole number of micro-dollars, so one costs at most twelve decimals. */
const million = 1_000_000

function pricingOf(model: string, cost: Cost): NonNullable<GatewayModel['pricing']> | null {
  const prompt = cost(model, { prompt: million, completion: 0 })
  const completion = cost(model, { prompt: 0, completion: million })
  if (prompt === 0n && completion === 0n) return null
  const cached = cost(model, { prompt: million, completion: 0, cached: million })
  return {
    prompt: usdOfToken(prompt),
    completion: usdOfToken(completion),
    ...(cached === prompt ? {} : { input_cache_read: usdOfToken(cached) }),
  }
}

/** Returns the price of one token in dollars, as a decimal. `nanoUsd`: price of a million tokens. */
function usdOfToken(nanoUsd: bigint): string {
  const [whole, fraction] = [nanoUsd / 10n ** 15n, nanoUsd % 10n ** 15n]
  const digits = fraction.toString().padStart(15, '0').replace(/0+$/, '')
  return digits === '' ? `${whole}` : `${whole}.${digits}`
}

/** Decodes the text; null if it is not percent-encoded UTF-8. */
function decoded(item: string): string | null {
  return resultOr(() => decodeURIComponent(item), null)
}

/** Returns Fault not_found. */
export function noSuchModel(): Fault {
  return new Fault(
    'not_found',
    'This key cannot use a model with that name. GET /v1/models lists the models it can use.',
  )
}
