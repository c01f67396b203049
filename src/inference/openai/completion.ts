// Converts an engine's whole completion into OpenAI's: fills in required fields, drops unknown ones, refuses invalid
// ones. Pure. Schemas: OpenAI's published API description, CreateChatCompletionResponse and CreateCompletionResponse.

import type { TokensSource } from '../../store/directory/usage/usage.table.ts'
import { UpstreamFault } from '../failure.ts'
import { isObject, type JsonObject } from '../json-text.ts'
import { reportedFault } from '../refusal.ts'
import type { Tokens } from '../types.ts'
import { type CompletionPlan, checkFormat, checkToolChoice, publicFinishReason, toolCallId } from './completion-plan.ts'
import { type CustomCall, calledInput, customCall } from './engines/custom-tools.ts'
import {
  argumentsOf,
  calledTool,
  callsOf,
  checkStrictArguments,
  contentOf,
  inOrder,
  isErrorDocument,
  parseFinishReason,
} from './engines/deviations.ts'
import { chatLogprobs, textLogprobs } from './logprobs.ts'
import { isNone, malformed, parseUpstreamJson, reasoningOf, stringOrNull } from './upstream-json.ts'
import { isPlausible, parseUsage, tokensOf, type Usage, type UsageBounds, usageOf, withoutCached } from './usage.ts'

export type Completion = {
  readonly body: JsonObject
  /** The usage behind `tokens`. */
  readonly usage: Usage
  /** The upstream's counts; an estimate if they are missing or implausible. */
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
  /** Finish reason of each choice as sent to the client. */
  readonly finishReasons: readonly string[]
  /** Contents that remain to be checked against the strict schema of response_format. */
  readonly contents: readonly string[]
}

/** Bounds that judge the upstream's counts, and the estimate that replaces missing or impossible ones. */
export type TokenCounts = {
  readonly bounds: UsageBounds
  readonly promptEstimate: number
  /** Whether clients see how many tokens the engine had in its cache. */
  readonly showsCached: boolean
}

/** Parses and converts a completion. Throws UpstreamFault; a charged fault contains its cost. */
export function parseCompletion(text: string, plan: CompletionPlan, counts: TokenCounts): Completion {
  const { request } = plan
  const value = parseUpstreamJson(text)
  if (!isObject(value)) throw malformed()
  if (isErrorDocument(value)) throw reportedFault(value)
  if (!Array.isArray(value.choices)) throw malformed()
  if (value.choices.length !== request.choiceCount) throw malformed()
  const contents: string[] = []
  const found = inOrder(value.choices)
  const parsed = parseUsage(value.usage)
  const given = parsed === null || counts.showsCached ? parsed : withoutCached(parsed)
  const usage = given !== null && isPlausible(given, counts.bounds, Buffer.byteLength(text)) ? given : null
  const tokens = usage === null ? estimateOf(found, counts.promptEstimate) : tokensOf(usage)
  const choices = chargeable(tokens, () =>
    found.map((choice, at) =>
      request.operation === 'chat' ? chatChoice(choice, at, { plan, contents }) : textChoice(choice, at),
    ),
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

/** Runs `work`. If it fails with a charged failure, adds these tokens as its cost. */
function chargeable<T>(tokens: Tokens, work: () => T): T {
  try {
    return work()
  } catch (error) {
    throw error instanceof UpstreamFault ? error.charged(tokens) : error
  }
}

/** Estimates one token per four characters of the choices' JSON. */
function estimateOf(choices: readonly unknown[], prompt: number): Tokens {
  return { prompt, completion: Math.ceil(JSON.stringify(choices.map(takeChoiceText)).length / 4) }
}

function takeChoiceText(choice: unknown): unknown {
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
    finish_reason: parseFinishReason(finish_reason, 'text_completion', 0),
  }
}

type ChatParts = { readonly plan: CompletionPlan; readonly contents: string[] }

function chatChoice(choice: JsonObject, index: number, { plan, contents }: ChatParts): ChatChoice {
  const message = parseMessage(choice.message ?? choice.delta, plan)
  const callCount = message.tool_calls?.length ?? 0
  const ending = {
    callCount,
    finishReason: parseFinishReason(choice.finish_reason, 'chat', callCount),
    content: message.content ?? '',
    isRefused: message.refusal !== null,
  }
  checkToolChoice(plan, ending)
  const isCut = ending.finishReason === 'length'
  for (const { function: called } of message.tool_calls ?? []) {
    if (!isCut && plan.request.strictTools.has(called.name)) checkStrictArguments(called.arguments)
  }
  const content = checkFormat(plan, ending)
  if (content !== null) contents.push(content)
  return {
    index,
    message: withCustomCalls(message, plan.request, isCut),
    logprobs: chatLogprobs(choice.logprobs),
    finish_reason: publicFinishReason(ending),
  }
}

type FunctionCall = { id: string; type: 'function'; function: { name: string; arguments: string } }
type ToolCall = FunctionCall | CustomCall
type Message = {
  role: 'assistant'
  content: string | null
  refusal: string | null
  reasoning_content?: string
  reasoning?: string
  tool_calls?: ToolCall[]
}

function withCustomCalls(message: Message, { customTools }: CompletionPlan['request'], isCut: boolean): Message {
  if (customTools.size === 0 || message.tool_calls === undefined) return message
  const calls = message.tool_calls.map((call): ToolCall => {
    const { name, arguments: args } = call.function
    return customTools.has(name) ? customCall(call.id, name, calledInput(args, isCut) ?? '') : call
  })
  return { ...message, tool_calls: calls }
}

function parseMessage(message: unknown, plan: CompletionPlan): Message {
  if (!isObject(message)) throw malformed()
  if (!isNone(message.role) && message.role !== 'assistant') throw malformed()
  const { content, reasoning } = contentOf(message.content)
  const parsed: Message = { role: 'assistant', content, refusal: stringOrNull(message.refusal) }
  if (reasoning !== '') parsed.reasoning_content = reasoning
  Object.assign(parsed, reasoningOf(message))
  const calls = callsOf(message)
  if (calls.length === 0) return parsed
  const ids = new Set<unknown>()
  parsed.tool_calls = calls.map((call, at) => parseToolCall(call, at, { plan, ids }))
  return parsed
}

/** Converts one call. `ids`: ids of the calls before it. */
function parseToolCall(
  { id, function: called }: JsonObject,
  at: number,
  { plan, ids }: { readonly plan: CompletionPlan; readonly ids: Set<unknown> },
): ToolCall {
  if (!isObject(called) || typeof called.name !== 'string') throw malformed()
  const name = calledTool(called.name, plan.request)
  const publicId = toolCallId(ids.has(id) ? null : id, at, plan)
  ids.add(id)
  // Clients parse the arguments as JSON.
  return { id: publicId, type: 'function', function: { name, arguments: argumentsOf(called.arguments) || '{}' } }
}
