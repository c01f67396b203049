// A whole completion of an engine made into OpenAI's: required fields are filled in, unknown ones dropped, invalid ones refused. Pure.
// Schemas: OpenAI's published API description, CreateChatCompletionResponse and CreateCompletionResponse.

import type { Tokens } from '../types.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import {
  type CompletionPlan,
  checkFormat,
  checkToolChoice,
  parseFinishReason,
  publicFinishReason,
  toolCallId,
} from './completion-plan.ts'
import { isObject, type JsonObject } from './json-text.ts'
import { chatLogprobs, textLogprobs } from './logprobs.ts'
import { malformed, parseUpstreamJson, stringOrNull } from './upstream-json.ts'
import { parseUsage, tokensOf } from './usage.ts'

export type Completion = {
  readonly body: JsonObject
  /** Null when the upstream did not count. */
  readonly tokens: Tokens | null
  /** For an estimate where there are no tokens; 0 where there are. */
  readonly textChars: number
  /** Contents that the strict schema of response_format is still to be checked against. */
  readonly contents: readonly string[]
}

/** UpstreamFault. */
export function parseCompletion(text: string, plan: CompletionPlan): Completion {
  const { request } = plan
  const value = parseUpstreamJson(text)
  if (!isObject(value) || !Array.isArray(value.choices)) throw malformed()
  if (value.choices.length !== request.choiceCount) throw malformed()
  const contents: string[] = []
  const choices = value.choices.map((choice, at) => {
    if (!isObject(choice) || (choice.index ?? at) !== at) throw malformed()
    return request.operation === 'chat' ? chatChoice(choice, at, { plan, contents }) : textChoice(choice, at)
  })
  const usage = parseUsage(value.usage)
  const body = {
    id: plan.id,
    object: request.operation === 'chat' ? 'chat.completion' : 'text_completion',
    created: plan.createdS,
    model: request.model,
    choices,
    ...(usage === null ? {} : { usage }),
  }
  return usage === null
    ? { body, tokens: null, textChars: textCharsOf(choices), contents }
    : { body, tokens: tokensOf(usage), textChars: 0, contents }
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
type Message = { role: 'assistant'; content: string | null; refusal: string | null; tool_calls?: ToolCall[] }

function parseMessage(message: unknown, plan: CompletionPlan): Message {
  if (!isObject(message)) throw malformed()
  if (message.role !== undefined && message.role !== 'assistant') throw malformed()
  const calls = message.tool_calls ?? []
  if (!Array.isArray(calls)) throw malformed()
  return {
    role: 'assistant',
    content: stringOrNull(message.content),
    refusal: stringOrNull(message.refusal),
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

function textCharsOf(choices: readonly (TextChoice | ChatChoice)[]): number {
  return choices.reduce(
    (sum, choice) => sum + ('text' in choice ? choice.text : JSON.stringify(choice.message)).length,
    0,
  )
}
