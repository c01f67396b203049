// Answers of engines made into OpenAI's: what the schema requires is filled in, what it does not know is dropped, the rest refused. Pure.
// Schemas: OpenAI's published API description, CreateChatCompletionResponse and CreateCompletionResponse.

import type { Tokens } from '../types.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import { type GatewayRequest, isObject, type JsonObject } from './request.ts'
import type { SchemaCheck } from './schema-check.ts'

/** What an answer is called and held to. */
export type AnswerPlan = {
  readonly request: GatewayRequest
  /** The gateway's own: an upstream's ids say what it is. */
  readonly id: string
  readonly createdS: number
  readonly schema: SchemaCheck | null
}

export type Answer = {
  readonly body: JsonObject
  readonly tokens: Tokens | null
  /** For an estimate where there are no tokens; 0 where there are. */
  readonly textChars: number
}

/** A whole answer. UpstreamFault. */
export function parseAnswer(text: string, plan: AnswerPlan): Answer {
  const value = parseText(text)
  const { request } = plan
  if (!isObject(value) || !Array.isArray(value.choices)) throw malformed()
  if (value.choices.length !== request.choiceCount) throw malformed()
  const choices = value.choices.map((choice, at) => {
    if (!isObject(choice)) throw malformed()
    const index = choice.index ?? at
    if (index !== at) throw malformed()
    if (request.operation === 'text_completion') {
      if (typeof choice.text !== 'string') throw malformed()
      return {
        index,
        text: choice.text,
        logprobs: textLogprobs(choice.logprobs),
        finish_reason: finishOf(choice.finish_reason, 'text_completion'),
      }
    }
    const message = messageOf(choice.message, plan)
    const reason = finishOf(choice.finish_reason, 'chat')
    const calls = message.tool_calls?.length ?? 0
    checkTools(plan, { calls, reason })
    checkFormat(plan, { content: message.content ?? '', calls, reason, refused: message.refusal !== null })
    return { index, message, logprobs: chatLogprobs(choice.logprobs), finish_reason: namedFinish(reason, calls) }
  })
  const usage = usageOf(value.usage)
  const body = {
    id: plan.id,
    object: request.operation === 'chat' ? 'chat.completion' : 'text_completion',
    created: plan.createdS,
    model: request.model,
    choices,
    ...(usage === null ? {} : { usage }),
  }
  return { body, tokens: tokensOf(usage), textChars: usage === null ? charsOf(choices) : 0 }
}

function charsOf(choices: readonly ({ readonly text: string } | { readonly message: Message })[]): number {
  return choices.reduce(
    (sum, choice) => sum + ('text' in choice ? choice.text : JSON.stringify(choice.message)).length,
    0,
  )
}

export type Usage = { prompt_tokens: number; completion_tokens: number; total_tokens: number } & JsonObject

export function tokensOf(usage: Usage | null): Tokens | null {
  return usage === null ? null : { prompt: usage.prompt_tokens, completion: usage.completion_tokens }
}

/** Null when there is none. UpstreamFault when it is nonsense: money hangs on it. */
export function usageOf(usage: unknown): Usage | null {
  if (usage === undefined || usage === null) return null
  if (!isObject(usage)) throw malformed()
  const prompt = countOf(usage.prompt_tokens)
  const completion = countOf(usage.completion_tokens ?? 0)
  const cached = isObject(usage.prompt_tokens_details) ? usage.prompt_tokens_details.cached_tokens : undefined
  const reasoning = isObject(usage.completion_tokens_details)
    ? usage.completion_tokens_details.reasoning_tokens
    : undefined
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    ...(isCount(cached) ? { prompt_tokens_details: { cached_tokens: cached } } : {}),
    ...(isCount(reasoning) ? { completion_tokens_details: { reasoning_tokens: reasoning } } : {}),
  }
}

/** UpstreamFault malformed. */
export function parseText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed()
  }
}

type ToolCall = { id: string; type: 'function'; function: { name: string; arguments: string } }
type Message = { role: 'assistant'; content: string | null; refusal: string | null; tool_calls?: ToolCall[] }

function messageOf(message: unknown, plan: AnswerPlan): Message {
  if (!isObject(message)) throw malformed()
  if (message.role !== undefined && message.role !== 'assistant') throw malformed()
  const calls = message.tool_calls ?? []
  if (!Array.isArray(calls)) throw malformed()
  return {
    role: 'assistant',
    content: textOrNull(message.content),
    refusal: textOrNull(message.refusal),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map((call, at) => toolCallOf(call, at, plan)) }),
  }
}

function toolCallOf(call: unknown, at: number, plan: AnswerPlan): ToolCall {
  if (!isObject(call) || !isObject(call.function)) throw malformed()
  const { name, arguments: args } = call.function
  if (typeof name !== 'string' || typeof args !== 'string') throw malformed()
  if (!plan.request.tools.has(name)) throw new UpstreamFault('wrong_tool')
  return { id: callId(call.id, at, plan), type: 'function', function: { name, arguments: args } }
}

/** Some engines leave it out; clients answer a call by it. */
export function callId(id: unknown, at: number, plan: Pick<AnswerPlan, 'id'>): string {
  return typeof id === 'string' && /^[\x21-\x7e]{1,256}$/.test(id) ? id : `call_${plan.id.slice(-12)}_${at}`
}

type Ending = { readonly calls: number; readonly reason: string }

/** A call where one must be. An answer that was cut by its length or a filter is let pass, as OpenAI does. */
export function checkTools(plan: AnswerPlan, ending: Ending): void {
  const { kind } = plan.request.toolChoice
  if (ending.calls > 0 || ending.reason === 'length' || ending.reason === 'content_filter') return
  if (kind === 'named' || kind === 'required') throw new UpstreamFault('wrong_tool')
}

/** What response_format promises holds for answers that ended by themselves, without a refusal and without calls. */
export function checkFormat(plan: AnswerPlan, ending: Ending & { content: string; refused: boolean }): void {
  const { format } = plan.request
  if (format.kind === 'text' || ending.reason !== 'stop' || ending.calls > 0 || ending.refused) return
  let value: unknown
  try {
    value = JSON.parse(ending.content)
  } catch {
    throw new UpstreamFault('not_json')
  }
  if (format.kind === 'json_object' && !isObject(value)) throw new UpstreamFault('not_json')
  if (plan.schema !== null && !plan.schema(value)) throw new UpstreamFault('schema_violated')
}

/** With calls it is never a mere stop, whichever the engine says. */
export function namedFinish(reason: string, calls: number): string {
  return calls > 0 && reason === 'stop' ? 'tool_calls' : reason
}

const CHAT_ENDINGS = new Set(['stop', 'length', 'tool_calls', 'content_filter'])
const TEXT_ENDINGS = new Set(['stop', 'length', 'content_filter'])

export function finishOf(reason: unknown, operation: GatewayRequest['operation']): string {
  const endings = operation === 'chat' ? CHAT_ENDINGS : TEXT_ENDINGS
  if (typeof reason !== 'string' || !endings.has(reason)) throw malformed()
  return reason
}

export function textOrNull(value: unknown): string | null {
  if (value === undefined || value === null) return null
  if (typeof value !== 'string') throw malformed()
  return value
}

type TokenLogprob = { token: string; logprob: number; bytes: unknown[] | null }

export function chatLogprobs(logprobs: unknown): JsonObject | null {
  if (logprobs === undefined || logprobs === null) return null
  if (!isObject(logprobs)) throw malformed()
  return { content: tokenLogprobs(logprobs.content), refusal: tokenLogprobs(logprobs.refusal) }
}

function tokenLogprobs(list: unknown): JsonObject[] | null {
  if (list === undefined || list === null) return null
  if (!Array.isArray(list)) throw malformed()
  return list.map(entry => {
    const tops = isObject(entry) ? (entry.top_logprobs ?? []) : null
    if (!Array.isArray(tops)) throw malformed()
    return { ...tokenLogprob(entry), top_logprobs: tops.map(tokenLogprob) }
  })
}

function tokenLogprob(entry: unknown): TokenLogprob {
  if (!isObject(entry) || typeof entry.token !== 'string' || typeof entry.logprob !== 'number') throw malformed()
  const bytes = entry.bytes ?? null
  if (bytes !== null && !(Array.isArray(bytes) && bytes.every(isCount))) throw malformed()
  return { token: entry.token, logprob: entry.logprob, bytes }
}

const LOGPROB_LISTS = {
  tokens: (item: unknown) => typeof item === 'string',
  token_logprobs: (item: unknown) => typeof item === 'number' || item === null,
  top_logprobs: (item: unknown) =>
    item === null || (isObject(item) && Object.values(item).every(value => typeof value === 'number')),
  text_offset: isCount,
} as const satisfies Record<string, (item: unknown) => boolean>

export function textLogprobs(logprobs: unknown): JsonObject | null {
  if (logprobs === undefined || logprobs === null) return null
  if (!isObject(logprobs)) throw malformed()
  const out: Record<string, unknown> = {}
  for (const [name, isItem] of Object.entries(LOGPROB_LISTS)) {
    const list = logprobs[name]
    if (list === undefined || list === null) continue
    if (!Array.isArray(list) || !list.every(isItem)) throw malformed()
    out[name] = list
  }
  return out
}

function countOf(value: unknown): number {
  if (!isCount(value)) throw malformed()
  return value
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}

export function malformed(): UpstreamFault {
  return new UpstreamFault('malformed')
}
