// Reads the reports of an inference server: its kind, its models, its context size. Pure.

import { isRecord } from '../../base/json.ts'
import type { Engine } from '../../config/upstream/kinds.ts'

export type ListedModel = {
  readonly id: string
  /** Prompt and completion together; null if the list does not have it. */
  readonly contextTokens: number | null
}

export type ModelList = {
  /** Kind of server by its own words; null if they do not show it. */
  readonly engine: Engine | null
  readonly models: readonly ListedModel[]
}

/** Fields of an entry that hold the context size: vLLM and SGLang, OpenRouter, Groq, LM Studio. */
const CONTEXT_FIELDS = ['max_model_len', 'context_length', 'context_window', 'max_context_length'] as const
const ENGINE_BY_OWNER: Readonly<Record<string, Engine>> = {
  vllm: 'vllm',
  sglang: 'sglang',
  llamacpp: 'llama-server',
  openai: 'openai',
}
/** Largest context that the configuration allows. */
export const contextTokensMax = 16_777_216
const modelsMax = 4096

/** Reads the response of GET /v1/models; null if it is not such a list. */
export function modelListIn(value: unknown): ModelList | null {
  if (!isRecord(value) || !Array.isArray(value.data)) return null
  const entries = value.data.slice(0, modelsMax).filter(isRecord)
  const models = entries.flatMap(entry =>
    typeof entry.id === 'string' && entry.id !== '' ? [{ id: entry.id, contextTokens: contextIn(entry) }] : [],
  )
  const owner = entries.map(entry => entry.owned_by).find(name => typeof name === 'string')
  const engine =
    typeof owner === 'string' && Object.hasOwn(ENGINE_BY_OWNER, owner) ? (ENGINE_BY_OWNER[owner] ?? null) : null
  return { engine, models }
}

/** Reads the context size of one slot from the response of GET /props of llama-server; null if it has none. */
export function propsContextIn(value: unknown): number | null {
  const settings = isRecord(value) ? value.default_generation_settings : null
  return isRecord(settings) ? countOf(settings.n_ctx) : null
}

/** Reads the response of GET /info of text-embeddings-inference; null if it is not such a document. */
export function infoIn(value: unknown): ListedModel | null {
  if (!isRecord(value) || typeof value.model_id !== 'string') return null
  return { id: value.model_id, contextTokens: countOf(value.max_input_length) }
}

function contextIn(entry: Readonly<Record<string, unknown>>): number | null {
  return CONTEXT_FIELDS.map(name => countOf(entry[name])).find(count => count !== null) ?? null
}

function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= contextTokensMax ? value : null
}
