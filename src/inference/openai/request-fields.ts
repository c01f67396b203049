// Request fields that an upstream gets: OpenAI's and a few per engine, all bounded. Pure. Fault invalid_request.
//
// Only the fields named here are sent, because engines have others that read another caller's prompt cache, pick its
// slot, fetch URLs, or keep the engine busy for minutes.

import type { Engine } from '../../config/upstream/kinds.ts'
import { invalidField, isObject, type JsonObject } from '../json-text.ts'
import type { CompletionOperation } from '../types.ts'
import { CONSTRAINT_FIELDS } from './engines/constraints.ts'

/** Returns the requirement that the value breaks, in words; null if it breaks none. */
type Check = (value: unknown) => string | null

type FieldRule = {
  readonly operations: readonly CompletionOperation[]
  readonly engines: readonly Engine[] | 'all'
  /** Null if the field is checked where the gateway uses it. */
  readonly check: Check | null
}

const stopsMax = 16
const stopCharsMax = 1024
const biasesMax = 1024
const templateFieldsMax = 16
const textCharsMax = 256
export const tokensMaxMax = 16_777_216

const CHAT: readonly CompletionOperation[] = ['chat']
const TEXT: readonly CompletionOperation[] = ['text_completion']
const BOTH: readonly CompletionOperation[] = ['chat', 'text_completion']
const SERVERS: readonly Engine[] = ['vllm', 'sglang']
const SAMPLERS: readonly Engine[] = ['llama-server', 'vllm', 'sglang']

const openAi = (operations: readonly CompletionOperation[], check: Check | null): FieldRule => ({
  operations,
  engines: 'all',
  check,
})
const extra = (engines: readonly Engine[], check: Check): FieldRule => ({ operations: BOTH, engines, check })

/** Field with the client's own salt of its prompt cache, with vLLM's name. */
export const cacheSaltField = 'cache_salt'

/** Reports whether the engine separates prompts of different salts, or caches none. */
export function isCacheKeptApart(engine: Engine): boolean {
  return engine !== 'openai'
}

/** The fields that may be sent. Engines do not have OpenAI's `store`, `metadata` and `service_tier`. */
const FIELDS: ReadonlyMap<string, FieldRule> = new Map(
  Object.entries({
    model: openAi(BOTH, null),
    messages: openAi(CHAT, null),
    prompt: openAi(TEXT, null),
    stream: openAi(BOTH, null),
    stream_options: openAi(BOTH, null),
    tools: openAi(CHAT, null),
    tool_choice: openAi(CHAT, null),
    parallel_tool_calls: openAi(CHAT, flag()),
    response_format: openAi(CHAT, null),
    n: openAi(BOTH, null),
    max_tokens: openAi(BOTH, integer(1, tokensMaxMax)),
    max_completion_tokens: openAi(CHAT, integer(1, tokensMaxMax)),
    temperature: openAi(BOTH, number(0, 2)),
    top_p: openAi(BOTH, number(0, 1)),
    presence_penalty: openAi(BOTH, number(-2, 2)),
    frequency_penalty: openAi(BOTH, number(-2, 2)),
    stop: openAi(BOTH, stop),
    seed: openAi(BOTH, integer(-(2 ** 63), 2 ** 63)),
    logit_bias: openAi(BOTH, logitBias),
    logprobs: openAi(BOTH, logprobs),
    top_logprobs: openAi(CHAT, integer(0, 20)),
    echo: openAi(TEXT, flag()),
    suffix: openAi(TEXT, value => (typeof value === 'string' ? null : 'must be a string.')),
    user: openAi(BOTH, word(textCharsMax)),
    reasoning_effort: openAi(CHAT, word(16)),
    top_k: extra(SAMPLERS, integer(-1, 1000)),
    min_p: extra(SAMPLERS, number(0, 1)),
    typical_p: extra(['llama-server'], number(0, 1)),
    repeat_penalty: extra(['llama-server'], number(0.1, 2)),
    repetition_penalty: extra(SERVERS, number(0.1, 2)),
    skip_special_tokens: extra(SERVERS, flag()),
    include_reasoning: extra(['vllm'], flag()),
    separate_reasoning: extra(['sglang'], flag()),
    // The upstream gets a salt that the gateway derives from it.
    [cacheSaltField]: { operations: BOTH, engines: [], check: cacheSaltProblem },
    chat_template_kwargs: { operations: CHAT, engines: SAMPLERS, check: templateFields },
    // Each engine gets its own form.
    ...Object.fromEntries(CONSTRAINT_FIELDS.map(name => [name, { operations: BOTH, engines: [], check: null }])),
  } satisfies Record<string, FieldRule>),
)

/**
 * Throws Fault invalid_request with the field if a known field is out of bounds. As at OpenAI, null counts as absent.
 */
export function checkFields(operation: CompletionOperation, body: JsonObject): void {
  // An object made by JSON.parse inherits no names.
  for (const name in body) {
    const value = body[name]
    const rule = FIELDS.get(name)
    if (rule?.check == null || value === null || !rule.operations.includes(operation)) continue
    const problem = rule.check(value)
    if (problem !== null) throw invalidField(name, problem)
  }
}

/** Reports whether chat requests have the field. */
export function isChatField(name: string): boolean {
  return isEverSent(name, 'chat')
}

/** Reports whether an upstream of any engine gets the field. */
export function isEverSent(name: string, operation: CompletionOperation): boolean {
  return FIELDS.get(name)?.operations.includes(operation) === true
}

/** Reports whether an upstream of this engine gets the field. */
export function isSent(name: string, operation: CompletionOperation, engine: Engine): boolean {
  const rule = FIELDS.get(name)
  if (rule === undefined || !rule.operations.includes(operation)) return false
  return rule.engines === 'all' || rule.engines.includes(engine)
}

export function integer(min: number, max: number): Check {
  const problem = `must be a whole number from ${min} to ${max}.`
  return value =>
    typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max ? null : problem
}

function number(min: number, max: number): Check {
  const problem = `must be a number from ${min} to ${max}.`
  return value => (typeof value === 'number' && value >= min && value <= max ? null : problem)
}

function flag(): Check {
  return value => (typeof value === 'boolean' ? null : 'must be true or false.')
}

export function word(charsMax: number): Check {
  return value =>
    typeof value === 'string' && value.length <= charsMax ? null : `must be a string of at most ${charsMax} characters.`
}

export function cacheSaltProblem(value: unknown): string | null {
  const isGood = typeof value === 'string' && value !== '' && value.length <= textCharsMax
  return isGood ? null : `must be a string of 1 to ${textCharsMax} characters.`
}

function stop(value: unknown): string | null {
  const stops = Array.isArray(value) ? value : [value]
  const isGood = (item: unknown) => typeof item === 'string' && item !== '' && item.length <= stopCharsMax
  if (stops.length <= stopsMax && stops.every(isGood)) return null
  return `must be a string of at most ${stopCharsMax} characters, or a list of at most ${stopsMax} of those.`
}

function logitBias(value: unknown): string | null {
  const problem = `must map at most ${biasesMax} token ids to numbers from -100 to 100.`
  if (!isObject(value)) return problem
  const entries = Object.entries(value)
  const isGood = ([id, bias]: [string, unknown]) =>
    /^\d{1,9}$/.test(id) && typeof bias === 'number' && bias >= -100 && bias <= 100
  return entries.length <= biasesMax && entries.every(isGood) ? null : problem
}

/** Accepts a flag for chats, a count for text completions. */
function logprobs(value: unknown): string | null {
  const isCount = typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 5
  return typeof value === 'boolean' || isCount ? null : 'must be true or false, or a whole number from 0 to 5.'
}

function templateFields(value: unknown): string | null {
  const isGood = (item: unknown) =>
    typeof item === 'boolean' || typeof item === 'number' || (typeof item === 'string' && item.length <= textCharsMax)
  if (isObject(value) && Object.keys(value).length <= templateFieldsMax && Object.values(value).every(isGood))
    return null
  return `must be an object of at most ${templateFieldsMax} strings, numbers or flags.`
}
