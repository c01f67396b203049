// Converts the chunks of a chat to events of the Responses API. Pure; holds one stream's state. Schemas: OpenAI's
// published API description, ResponseStreamEvent.
//
// Reasoning and messages end when another item begins. Calls end with the response, because engines may interleave
// their pieces. The last events of an item and of the response repeat its text, so the stream keeps it, within a bound.

import type { GatewayError } from '../../../contract/http/inference.ts'
import { UpstreamFault } from '../../failure.ts'
import type { JsonObject } from '../../json-text.ts'
import type { CallForm, DialectStream, DialectStreamOptions } from '../../openai/dialect.ts'
import { COMMENT_PING, sseEvent } from '../../openai/sse.ts'
import type { Usage } from '../../openai/usage.ts'
import { type CallPiece, type ChatDelta, readChunk } from '../chat-answer.ts'
import { namedEvent, paddedEvent } from '../events.ts'
import type { ResponseForm } from './request.ts'
import {
  callItem,
  compactionOf,
  formOf,
  type ItemStatus,
  incompleteReasonOf,
  itemId,
  itemOf,
  type MessagePart,
  type OutputItem,
  partOf,
  type ResponseState,
  responseOf,
} from './response.ts'

type TextKind = 'reasoning' | MessagePart['kind']

/** Event names and members of each kind of item. */
const TEXT_EVENTS = {
  reasoning: { name: 'response.reasoning_text', field: 'text' },
  text: { name: 'response.output_text', field: 'text' },
  refusal: { name: 'response.refusal', field: 'refusal' },
} as const satisfies Record<TextKind, { name: string; field: string }>

type OpenPart = { readonly kind: TextKind; text: string; readonly logprobs: JsonObject[] }
type TextItem = { readonly kind: 'reasoning' | 'message'; readonly id: string; readonly parts: OpenPart[] }
type CallItem = {
  readonly kind: 'call'
  /** Only a plain function gets its arguments in pieces. */
  readonly form: CallForm
  readonly id: string
  readonly callId: string
  args: string
}

/** Number of pings per event, which repeats the response's format and so may be long. */
const pingsPerEvent = 6
/** Number of pieces of a summary per ping, because a client sees none of the pieces. */
const piecesPerPing = 32

export class ResponsesStream implements DialectStream {
  readonly end = sseEvent('[DONE]')
  readonly #form: ResponseForm
  readonly #options: DialectStreamOptions
  readonly #items: (TextItem | CallItem)[] = []
  /** The unfinished text item, and its index in the output; null if there is none. */
  #open: { readonly item: TextItem; readonly at: number } | null = null
  /** Indices of the calls in the output, by their index in the chat. */
  readonly #calls = new Map<number, number>()
  #keptChars = 0
  #eventCount = 0
  #pingCount = 0
  #finishReason: string | null = null
  /** Text of a compaction so far; its only item comes at the end. */
  #summary = ''
  #summaryPieces = 0

  constructor(form: ResponseForm, options: DialectStreamOptions) {
    this.#form = form
    this.#options = options
  }

  push(chunk: string): string {
    let text = this.#eventCount === 0 ? this.#begin() : ''
    for (const delta of readChunk(chunk)) text += this.#take(delta)
    return text
  }

  /** Returns a comment or, now and then, an event: Codex gives up after five minutes without an event. */
  ping(): string {
    const isEvent = this.#pingCount % pingsPerEvent === 0
    this.#pingCount += 1
    if (this.#eventCount === 0) return this.#begin()
    return isEvent ? this.#inProgress('response.in_progress') : COMMENT_PING
  }

  finish(usage: Usage): string {
    const incompleteReason = incompleteReasonOf(this.#finishReason)
    const status = incompleteReason === null ? 'completed' : 'incomplete'
    const ended = (output: JsonObject[]) => {
      const { head, echo, keep } = this.#form
      const response = responseOf(head, echo, { status, output, usage, incompleteReason, error: null })
      keep?.(response)
      return this.#event(`response.${status}`, { response })
    }
    if (this.#form.isCompaction) {
      const item = itemOf(compactionOf(this.#summary, this.#form.head), status)
      const events = ['response.output_item.added', 'response.output_item.done']
      return events.map(name => this.#event(name, { output_index: 0, item })).join('') + ended([item])
    }
    let text = this.#items.length === 0 ? this.#openPart('text').text : ''
    text += this.#endText(status)
    for (const at of this.#calls.values()) text += this.#endCall(at, this.#statusAt(at, status))
    const output = this.#items.map((item, at) =>
      itemOf(this.#closed(item, this.#statusAt(at, status)), this.#statusAt(at, status)),
    )
    return text + ended(output)
  }

  /** Returns the events of a failure. Leaves the output out, because it was not checked to its end. */
  fail({ error }: GatewayError): string {
    const state = { status: 'failed', output: [], usage: null, incompleteReason: null, error } as const
    const failed = this.#lifecycle('response.failed', state)
    const { code, message, param } = error
    return failed + this.#event('error', { code, message, param, error })
  }

  #begin(): string {
    return this.#inProgress('response.created') + this.#inProgress('response.in_progress')
  }

  #inProgress(name: string): string {
    return this.#lifecycle(name, {
      status: 'in_progress',
      output: [],
      usage: null,
      incompleteReason: null,
      error: null,
    })
  }

  #take({ reasoning, content, refusal, logprobs, pieces, finishReason }: ChatDelta): string {
    if (this.#form.isCompaction) return this.#addSummary(content, finishReason)
    let text = ''
    if (reasoning !== '') text += this.#addText('reasoning', reasoning, [])
    if (content !== '') text += this.#addText('text', content, logprobs)
    if (refusal !== '') text += this.#addText('refusal', refusal, [])
    for (const piece of pieces) text += this.#addPiece(piece)
    this.#finishReason ??= finishReason
    return text
  }

  /** Now and then returns a ping, because the API has no event for pieces of a summary. */
  #addSummary(content: string, finishReason: string | null): string {
    this.#keep(content)
    this.#summary += content
    this.#finishReason ??= finishReason
    this.#summaryPieces += 1
    return this.#summaryPieces % piecesPerPing === 0 ? this.ping() : ''
  }

  /** Returns the status of an item: only the last one can be cut off. */
  #statusAt(at: number, status: ItemStatus): ItemStatus {
    return at === this.#items.length - 1 ? status : 'completed'
  }

  #addText(kind: TextKind, delta: string, logprobs: readonly JsonObject[]): string {
    const { text, part, place } = this.#openPart(kind)
    const fields = kind === 'text' ? { delta, logprobs } : { delta }
    this.#keep(logprobs.length === 0 ? delta : JSON.stringify(fields))
    part.text += delta
    part.logprobs.push(...logprobs)
    const name = `${TEXT_EVENTS[kind].name}.delta`
    return (
      text + paddedEvent(name, this.#json(name, { ...place, ...fields }), [delta, logprobs], this.#options.obfuscate)
    )
  }

  /** Returns the part for text of this kind, and the events that open it. */
  #openPart(kind: TextKind) {
    const itemKind = kind === 'reasoning' ? 'reasoning' : 'message'
    let text = this.#open !== null && this.#open.item.kind !== itemKind ? this.#endText('completed') : ''
    if (this.#open === null) {
      const at = this.#items.length
      const item: TextItem = { kind: itemKind, id: itemId(itemKind, this.#form.head, at), parts: [] }
      this.#items.push(item)
      this.#open = { item, at }
      text += this.#event('response.output_item.added', {
        output_index: at,
        item: itemOf(this.#closed(item, 'in_progress'), 'in_progress'),
      })
    }
    const { item, at } = this.#open
    const last = item.parts.at(-1)
    const part = last?.kind === kind ? last : { kind, text: '', logprobs: [] }
    if (part !== last) {
      if (last !== undefined) text += this.#endPart(this.#open, last)
      item.parts.push(part)
    }
    const place = { item_id: item.id, output_index: at, content_index: item.parts.length - 1 }
    if (part !== last) text += this.#event('response.content_part.added', { ...place, part: jsonOf(part) })
    return { text, part, place }
  }

  #endText(status: ItemStatus): string {
    const open = this.#open
    if (open === null) return ''
    this.#open = null
    const { item, at } = open
    const last = item.parts.at(-1)
    const text = last === undefined ? '' : this.#endPart(open, last)
    return (
      text +
      this.#event('response.output_item.done', { output_index: at, item: itemOf(this.#closed(item, status), status) })
    )
  }

  /** Ends the item's last part. */
  #endPart({ item, at }: { readonly item: TextItem; readonly at: number }, part: OpenPart): string {
    const place = { item_id: item.id, output_index: at, content_index: item.parts.length - 1 }
    const { name, field } = TEXT_EVENTS[part.kind]
    const logprobs = part.kind === 'text' ? { logprobs: part.logprobs } : {}
    return (
      this.#event(`${name}.done`, { ...place, [field]: part.text, ...logprobs }) +
      this.#event('response.content_part.done', { ...place, part: jsonOf(part) })
    )
  }

  #addPiece({ index, start, args }: CallPiece): string {
    this.#keep(args)
    let text = ''
    if (start !== null) {
      text += this.#endText('completed')
      const at = this.#items.length
      const form = formOf(start.name, this.#form.tools)
      const id = itemId(form.kind, this.#form.head, at)
      const item: CallItem = { kind: 'call', form, id, callId: start.id, args: '' }
      this.#items.push(item)
      this.#calls.set(index, at)
      text += this.#event('response.output_item.added', { output_index: at, item: itemOf(begun(item), 'in_progress') })
    }
    const at = this.#calls.get(index)
    const item = at === undefined ? undefined : this.#items[at]
    if (item?.kind !== 'call' || args === '') return text
    item.args += args
    if (item.form.kind !== 'call') return text
    const name = 'response.function_call_arguments.delta'
    const json = this.#json(name, { item_id: item.id, output_index: at, delta: args })
    return text + paddedEvent(name, json, [args], this.#options.obfuscate)
  }

  #endCall(at: number, status: ItemStatus): string {
    const item = this.#items[at]
    if (item?.kind !== 'call') return ''
    const { form, id, args } = item
    const whole = this.#closed(item, status)
    const place = { item_id: id, output_index: at }
    const text =
      form.kind === 'call'
        ? this.#event('response.function_call_arguments.done', { ...place, name: form.name, arguments: args })
        : whole.kind === 'custom'
          ? this.#customInput(whole.input, place)
          : ''
    return text + this.#event('response.output_item.done', { output_index: at, item: itemOf(whole, status) })
  }

  #customInput(input: string, place: JsonObject): string {
    const name = 'response.custom_tool_call_input.delta'
    return (
      paddedEvent(name, this.#json(name, { ...place, delta: input }), [input], this.#options.obfuscate) +
      this.#event('response.custom_tool_call_input.done', { ...place, input })
    )
  }

  #closed(item: TextItem | CallItem, status: ItemStatus): OutputItem {
    return closed(item, status, this.#form.includesReasoning)
  }

  #keep(text: string): void {
    this.#keptChars += text.length
    if (this.#keptChars > this.#options.keptCharsMax) throw new UpstreamFault('too_large')
  }

  #lifecycle(name: string, state: ResponseState): string {
    return this.#event(name, { response: responseOf(this.#form.head, this.#form.echo, state) })
  }

  #event(name: string, fields: JsonObject): string {
    return namedEvent(name, this.#json(name, fields))
  }

  #json(type: string, fields: JsonObject): string {
    const sequence = this.#eventCount
    this.#eventCount += 1
    return JSON.stringify({ type, sequence_number: sequence, ...fields })
  }
}

function jsonOf({ kind, text, logprobs }: OpenPart): JsonObject {
  if (kind === 'reasoning') return { type: 'reasoning_text', text }
  return partOf(kind === 'text' ? { kind, text, logprobs } : { kind, text })
}

/** Returns the item of a call without its arguments, for a call that has just begun or was cut off. */
function begun({ form, id, callId }: CallItem): OutputItem {
  if (form.kind === 'call') return { ...form, kind: 'call', id, callId, args: '' }
  if (form.kind === 'custom') return { ...form, kind: 'custom', id, callId, input: '' }
  return { kind: form.kind, id, callId, args: null }
}

/** Returns the item with all of its text. UpstreamFault bad_arguments. */
function closed(item: TextItem | CallItem, status: ItemStatus, isIncluded: boolean): OutputItem {
  if (item.kind === 'call') {
    return callItem(item.form, { ...item, isCut: status === 'incomplete' }) ?? begun(item)
  }
  const { kind, id, parts } = item
  if (kind === 'reasoning') return { kind, id, text: parts.map(part => part.text).join(''), isIncluded } as const
  const given = parts.flatMap((part): MessagePart[] => {
    if (part.kind === 'reasoning') return []
    return [
      part.kind === 'text'
        ? { kind: part.kind, text: part.text, logprobs: part.logprobs }
        : { kind: part.kind, text: part.text },
    ]
  })
  return { kind, id, parts: given } as const
}
