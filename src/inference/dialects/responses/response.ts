// Builds objects of the Responses API from a chat completion. Pure. Schemas: OpenAI's published API description,
// Response and OutputItem.

import { resultOr } from '../../../base/result-or.ts'
import type { GatewayError } from '../../../contract/http/inference.ts'
import { UpstreamFault } from '../../failure.ts'
import { isObject, type JsonObject } from '../../json-text.ts'
import type { CallForm, ClientCallKind, KeptResponse, RequestEcho, ResponseHead } from '../../openai/dialect.ts'
import { calledInput } from '../../openai/engines/custom-tools.ts'
import { cachedTokensOf, type Usage } from '../../openai/usage.ts'
import { type ChatAnswer, readCompletion } from '../chat-answer.ts'
import { CLIENT_CALLS } from './client-calls.ts'
import { encodeSummary } from './compaction.ts'
import { itemIdOf } from './earlier.ts'
import { encodeReasoning } from './reasoning.ts'
import type { ResponseForm } from './request.ts'

export type MessagePart =
  | { readonly kind: 'text'; readonly text: string; readonly logprobs: readonly JsonObject[] }
  | { readonly kind: 'refusal'; readonly text: string }

export type OutputItem =
  /** `isIncluded`: whether the item has its text in `encrypted_content` too. */
  | { readonly kind: 'reasoning'; readonly id: string; readonly text: string; readonly isIncluded: boolean }
  | { readonly kind: 'message'; readonly id: string; readonly parts: readonly MessagePart[] }
  | { readonly kind: 'compaction'; readonly id: string; readonly text: string }
  | {
      readonly kind: 'call'
      readonly id: string
      readonly callId: string
      readonly namespace: string | null
      readonly name: string
      readonly args: string
    }
  /** A call of a custom tool with a text. */
  | {
      readonly kind: 'custom'
      readonly id: string
      readonly callId: string
      readonly namespace: string | null
      readonly name: string
      readonly input: string
    }
  /** A call of a tool that the client runs. `args`: null for one that has just begun. */
  | {
      readonly kind: ClientCallKind
      readonly id: string
      readonly callId: string
      readonly args: JsonObject | null
    }

export type ItemStatus = 'in_progress' | 'completed' | 'incomplete'

const ID_TAGS = { reasoning: 'rs', message: 'msg', call: 'fc', custom: 'ctc', compaction: 'cmp' } as const

/** Builds the id of an output item. `at`: its index in the output. */
export function itemId(kind: OutputItem['kind'], { id }: ResponseHead, at: number): string {
  const tag = kind in CLIENT_CALLS ? CLIENT_CALLS[kind as ClientCallKind].tag : ID_TAGS[kind as keyof typeof ID_TAGS]
  return itemIdOf(tag, id, at)
}

/** Returns the item in the form of `output`. */
export function itemOf(item: OutputItem, status: ItemStatus): JsonObject {
  const { id } = item
  switch (item.kind) {
    case 'reasoning':
      return {
        id,
        type: 'reasoning',
        status,
        summary: [],
        content: item.text === '' ? [] : [{ type: 'reasoning_text', text: item.text }],
        ...(item.isIncluded && item.text !== '' ? { encrypted_content: encodeReasoning(item.text) } : {}),
      }
    case 'message':
      return { id, type: 'message', status, role: 'assistant', content: item.parts.map(partOf) }
    case 'compaction':
      return { id, type: 'compaction', encrypted_content: encodeSummary(item.text) }
    case 'call':
      return { id, type: 'function_call', status, ...calledOf(item), arguments: item.args }
    case 'custom':
      return { id, type: 'custom_tool_call', status, ...calledOf(item), input: item.input }
    default:
      return { id, type: item.kind, status, call_id: item.callId, ...CLIENT_CALLS[item.kind].fieldsOf(item.args ?? {}) }
  }
}

function calledOf({ callId, namespace, name }: OutputItem & { readonly kind: 'call' | 'custom' }): JsonObject {
  return { call_id: callId, ...(namespace === null ? {} : { namespace }), name }
}

/** Returns the form of a call's item. */
export function formOf(name: string, tools: ResponseForm['tools']): CallForm {
  return tools.get(name) ?? { kind: 'call', namespace: null, name }
}

/**
 * Returns the whole item of a call; null if its arguments were cut off, because half of them is
 * unusable. A custom tool gets broken arguments as its text. UpstreamFault bad_arguments for a tool
 * that the client runs: its item has fields, and no place for such a text.
 */
export function callItem(
  form: CallForm,
  {
    id,
    callId,
    args,
    isCut,
  }: { readonly id: string; readonly callId: string; readonly args: string; readonly isCut: boolean },
): OutputItem | null {
  if (form.kind === 'call') return { ...form, kind: 'call', id, callId, args }
  if (form.kind === 'custom') {
    const input = calledInput(args, isCut)
    return input === null ? null : { ...form, kind: 'custom', id, callId, input }
  }
  const given = objectIn(args)
  if (given === null && !isCut) throw new UpstreamFault('bad_arguments')
  return given === null ? null : { kind: form.kind, id, callId, args: given }
}

function objectIn(args: string): JsonObject | null {
  const value: unknown = resultOr(() => JSON.parse(args.trim() === '' ? '{}' : args), null)
  return isObject(value) ? value : null
}

export function partOf(part: MessagePart): JsonObject {
  if (part.kind === 'refusal') return { type: 'refusal', refusal: part.text }
  return { type: 'output_text', text: part.text, annotations: [], logprobs: part.logprobs }
}

/** State of a response, apart from its request. */
export type ResponseState = {
  readonly status: 'in_progress' | 'completed' | 'incomplete' | 'failed'
  readonly output: readonly JsonObject[]
  readonly usage: Usage | null
  readonly incompleteReason: string | null
  readonly error: GatewayError['error'] | null
}

/** Returns why an ended response is incomplete; null if it is complete. */
export function incompleteReasonOf(finishReason: string | null): string | null {
  if (finishReason === 'length') return 'max_output_tokens'
  return finishReason === 'content_filter' ? 'content_filter' : null
}

export function responseOf(head: ResponseHead, echo: RequestEcho, state: ResponseState): KeptResponse {
  const { format, ...settings } = echo
  return {
    id: `resp_${head.id}`,
    object: 'response',
    created_at: head.createdS,
    status: state.status,
    background: false,
    error: state.error === null ? null : { code: state.error.code, message: state.error.message },
    incomplete_details: state.incompleteReason === null ? null : { reason: state.incompleteReason },
    instructions: null,
    max_tool_calls: null,
    model: head.model,
    output: state.output,
    text: { format },
    tools: [],
    truncation: 'disabled',
    usage: state.usage === null ? null : usageOf(state.usage),
    ...settings,
  }
}

/** Builds the response of a checked chat completion. */
export function wholeResponse(
  completion: JsonObject,
  usage: Usage,
  { head, echo, tools, isCompaction, includesReasoning, keep }: ResponseForm,
): JsonObject {
  const answer = readCompletion(completion)
  const incompleteReason = incompleteReasonOf(answer.finishReason)
  const status = incompleteReason === null ? 'completed' : 'incomplete'
  const items = isCompaction
    ? [compactionOf(answer.content, head)]
    : itemsOf(answer, { head, tools, includesReasoning })
  // Only the last item can be cut off.
  const output = items.map((item, at) => itemOf(item, at === items.length - 1 ? status : 'completed'))
  const response = responseOf(head, echo, { status, output, usage, incompleteReason, error: null })
  // A summary that was cut short replaces nothing.
  if (!isCompaction || status === 'completed') keep?.(response)
  return response
}

/**
 * Returns the response of the endpoint for compactions. UpstreamFault no_summary, because that response cannot be
 * `incomplete`.
 */
export function compactionResponse({ id, created_at, status, output, usage }: JsonObject): JsonObject {
  if (status !== 'completed') throw new UpstreamFault('no_summary')
  return { id, object: 'response.compaction', created_at, output, usage }
}

/**
 * Returns the only item of a compaction. Throws UpstreamFault no_summary if there is no text, because the client would
 * lose its whole conversation.
 */
export function compactionOf(summary: string, head: ResponseHead): OutputItem {
  if (summary.trim() === '') throw new UpstreamFault('no_summary')
  return { kind: 'compaction', id: itemId('compaction', head, 0), text: summary }
}

/** Returns the items of an answer. A response without anything has one empty message. */
function itemsOf(
  { reasoning, content, refusal, calls, logprobs, finishReason }: ChatAnswer,
  { head, tools, includesReasoning }: Pick<ResponseForm, 'head' | 'tools' | 'includesReasoning'>,
): OutputItem[] {
  const items: OutputItem[] = []
  const id = (kind: OutputItem['kind']) => itemId(kind, head, items.length)
  if (reasoning !== '') {
    items.push({ kind: 'reasoning', id: id('reasoning'), text: reasoning, isIncluded: includesReasoning })
  }
  const parts: MessagePart[] = []
  if (content !== '') parts.push({ kind: 'text', text: content, logprobs })
  if (refusal !== '') parts.push({ kind: 'refusal', text: refusal })
  if (parts.length === 0 && calls.length === 0) parts.push({ kind: 'text', text: '', logprobs: [] })
  if (parts.length > 0) items.push({ kind: 'message', id: id('message'), parts })
  for (const { id: callId, name, args } of calls) {
    const form = formOf(name, tools)
    const item = callItem(form, { id: id(form.kind), callId, args, isCut: finishReason === 'length' })
    if (item !== null) items.push(item)
  }
  return items
}

function usageOf(usage: Usage) {
  const { prompt_tokens, completion_tokens, total_tokens, completion_tokens_details: details } = usage
  return {
    input_tokens: prompt_tokens,
    input_tokens_details: { cached_tokens: cachedTokensOf(usage) },
    output_tokens: completion_tokens,
    output_tokens_details: { reasoning_tokens: isObject(details) ? (details.reasoning_tokens ?? 0) : 0 },
    total_tokens,
  }
}
