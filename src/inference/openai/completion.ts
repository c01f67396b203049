// Converts an engine's whole completion into OpenAI's: fills in required fields, drops unknown ones, refuses invalid
// ones. Pure. Schemas: OpenAI's published API description, CreateChatCompletionResponse and CreateCompletionResponse.

import type { TokensSource } from '../../store/directory/usage/usage.table.ts'
import { UpstreamFault } from '../failure.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import type { Tokens } from '../types.ts'
import {
  type CompletionPlan,
  checkFormat,
  checkToolChoice,
  parseFinishReason,
  publicFinishReason,
  toolCallId,
} from './completion-plan.ts'
import { chatLogprobs, textLogprobs } from './logprobs.ts'
import { malformed, parseUpstreamJson, reasoningOf, stringOrNull } from './upstream-json.ts'
import { isPlausible, parseUsage, tokensOf, type Usage, type UsageBounds, usageOf, withoutCached } from './usage.ts'

export type Completion = {
  readonly body: JsonObject
  /** The usage behind `tokens`. */
  readonly usage: Usage
  /** As the upstream counted them; an estimate where it did not, or where its count cannot be. */
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  /** Finish reason of each choice as the client sees it. */
  readonly finishReasons: readonly string[]
  /** Contents that the strict schema of response_format is still to be checked against. */
  readonly contents: readonly string[]
}

/** Bounds that judge the upstream's counts, and the estimate that replaces missing or impossible ones. */
export type TokenCounts = {
  readonly bounds: UsageBounds
  readonly promptEstimate: number
  /** Whether clients see how many tokens the engine had in its cache. */
  readonly showsCached: boolean
}

/** UpstreamFault; a charged fault holds its cost. */
export function parseCompletion(text: string, plan: CompletionPlan, counts: TokenCounts): Completion {
  const { request } = plan
  const value = parseUpstreamJson(text)
  if (!isObject(value) || !Array.isArray(value.choices)) throw malformed()
  if (value.choices.length !== request.choiceCount) throw malformed()
  const contents: string[] = []
  const found: readonly unknown[] = value.choices
  const parsed = parseUsage(value.usage)
  const given = parsed === null || counts.showsCached ? parsed : withoutCached(parsed)
  const usage = given !== null && isPlausible(given, counts.bounds, Buffer.byteLength(text)) ? given : null
  const tokens = usage === null ? estimateOf(found, counts.promptEstimate) : tokensOf(usage)
  const choices = chargeable(tokens, () =>
    found.map((choice, at) => {
      if (!isObject(choice) || (choice.index ?? at) !== at) throw malformed()
      return request.operation === 'chat' ? chatChoice(choice, at, { plan, contents }) : textChoice(choice, at)
    }),
  )
  const body = {
    id: plan.id,
    object: request.operation === 'chat' ? 'chat.completion' : 'text_completion',
    created: plan.createdS,
    model: request.model,
    choices,
    ...(usage === null ? {} : { usage }),
  }
  const tokensSource = usage !== null ? 'reported' : given === null ? 'estimated' : 'implausible'
  const finishReasons = choices.map(choice => choice.finish_reason)
  return { body, usage: usage ?? usageOf(tokens), tokens, tokensSource, finishReasons, contents }
}

/** A failure of `work` that is charged has cost these tokens. */
function chargeable<T>(tokens: Tokens, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof UpstreamFault ? error.charged(tokens) : error
  }
}

/** Four characters of the choices' JSON make a token. */
function estimateOf(choices: readonly unknown[], prompt: number): Tokens {
  return { prompt, completion: Math.ceil(JSON.stringify(choices.map(textOf)).length / 4) }
}

function textOf(choice: unknown): unknown {
  return isObject(choice) ? (choice.text ?? choice.message) : null
}

type TextChoice = { index: number; text: string; logprobs: JsonObject | null; finish_reason: string }
type ChatChoice = { index: number; message: Message; logprobs: JsonObject | null; finish_reason: string }

function textChoice({ text, logprobs, finish_reason }: JsonObject, index: number): TextChoice {
  if (typeof text !== 'string') throw malformed()
  return {
    index,
    text,
    logprobs: textLogprobs(logprobs),
    finish_reason: parseFinishReason(finish_reason, 'text_completion'),
  }
}

type ChatParts = { readonly plan: CompletionPlan; readonly contents: string[] }

function chatChoice(choice: JsonObject, index: number, { plan, contents }: ChatParts): ChatChoice {
  const message = parseMessage(choice.message, plan)
  const ending = {
    callCount: message.tool_calls?.length ?? 0,
    finishReason: parseFinishReason(choice.finish_reason, 'chat'),
    content: message.content ?? '',
    isRefused: message.refusal !== null,
  }
  checkToolChoice(plan, ending)
  const content = checkFormat(plan, ending)
  if (content !== null) contents.push(content)
  return {
    index,
    message,
    logprobs: chatLogprobs(choice.logprobs),
    finish_reason: publicFinishReason(ending),
  }
}

type ToolCall = { id: string; type: 'function'; function: { name: string; arguments: string } }
type Message = {
  role: 'assistant'
  content: string | null
  refusal: string | null
  reasoning_content?: string
  reasoning?: string
  tool_calls?: ToolCall[]
}

function parseMessage(message: unknown, plan: CompletionPlan): Message {
  if (!isObject(message)) throw malformed()
  if (message.role !== undefined && message.role !== 'assistant') throw malformed()
  const calls = message.tool_calls ?? []
  if (!Array.isArray(calls)) throw malformed()
  return {
    role: 'assistant',
    content: stringOrNull(message.content),
    refusal: stringOrNull(message.refusal),
    ...reasoningOf(message),
    ...(calls.length === 0 ? {} : { tool_calls: calls.map((call, at) => parseToolCall(call, at, plan)) }),
  }
}

function parseToolCall(call: unknown, at: number, plan: CompletionPlan): ToolCall {
  if (!isObject(call) || !isObject(call.function)) throw malformed()
  const { name, arguments: args } = call.function
  if (typeof name !== 'string' || typeof args !== 'string') throw malformed()
  if (!plan.request.tools.has(name)) throw new UpstreamFault('wrong_tool')
  return { id: toolCallId(call.id, at, plan), type: 'function', function: { name, arguments: args } }
}
