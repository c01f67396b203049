// The chunks of a chat as events of the Messages API. Pure; holds one stream's state.
//
// Blocks follow each other, so a call ends when another block begins; a piece for an ended block breaks the stream.

import type { GatewayError } from '../../../contract/http/inference.ts'
import { UpstreamFault } from '../../failure.ts'
import type { JsonObject } from '../../json-text.ts'
import type { DialectStream, DialectStreamOptions, ResponseHead } from '../../openai/dialect.ts'
import type { Usage } from '../../openai/usage.ts'
import { type CallPiece, type ChatDelta, readChunk } from '../chat-answer.ts'
import { namedEvent, paddedEvent } from '../events.ts'
import { errorDocument, inputOf, messageOf, messageUsage, stopReasonOf } from './response.ts'

/** `call`: the call's index in the chat, and its arguments so far. */
type OpenBlock = { readonly kind: 'thinking' | 'text' } | { readonly kind: 'call'; readonly call: number; args: string }

const DELTAS = {
  thinking: (thinking: string) => ({ type: 'thinking_delta', thinking }),
  text: (text: string) => ({ type: 'text_delta', text }),
  call: (json: string) => ({ type: 'input_json_delta', partial_json: json }),
} as const satisfies Record<OpenBlock['kind'], (piece: string) => JsonObject>

const STARTS = {
  thinking: { type: 'thinking', thinking: '', signature: '' },
  text: { type: 'text', text: '' },
} as const

export class MessagesStream implements DialectStream {
  readonly end = namedEvent('message_stop', '{"type":"message_stop"}')
  readonly #head: ResponseHead
  readonly #options: DialectStreamOptions
  #isBegun = false
  #open: OpenBlock | null = null
  /** Blocks that have begun. */
  #blockCount = 0
  #keptChars = 0
  #isRefused = false
  #finishReason: string | null = null

  constructor(head: ResponseHead, options: DialectStreamOptions) {
    this.#head = head
    this.#options = options
  }

  push(chunk: string): string {
    let text = this.#isBegun ? '' : this.#begin()
    for (const delta of readChunk(chunk)) text += this.#take(delta)
    return text
  }

  finish(usage: Usage): string {
    const delta = { stop_reason: stopReasonOf(this.#finishReason, this.#isRefused), stop_sequence: null }
    return event('message_delta', { delta, usage: messageUsage(usage) })
  }

  fail(error: GatewayError): string {
    return namedEvent('error', JSON.stringify(errorDocument(error)))
  }

  /** Prompt tokens are known only at the end: the last event but one has them. */
  #begin(): string {
    this.#isBegun = true
    return event('message_start', { message: messageOf(this.#head, { content: [], stopReason: null, usage: null }) })
  }

  #take({ reasoning, content, refusal, pieces, finishReason }: ChatDelta): string {
    let text = ''
    if (reasoning !== '') text += this.#addText('thinking', reasoning)
    if (content !== '') text += this.#addText('text', content)
    if (refusal !== '') {
      this.#isRefused = true
      text += this.#addText('text', refusal)
    }
    for (const piece of pieces) text += this.#addPiece(piece)
    if (finishReason === null) return text
    this.#finishReason = finishReason
    return text + this.#close()
  }

  #addText(kind: 'thinking' | 'text', piece: string): string {
    let text = ''
    if (this.#open?.kind !== kind) {
      text += this.#close() + this.#start(STARTS[kind])
      this.#open = { kind }
    }
    return text + this.#delta(kind, piece)
  }

  #addPiece({ index, start, args }: CallPiece): string {
    let text = ''
    if (start !== null) {
      text += this.#close() + this.#start({ type: 'tool_use', id: start.id, name: start.name, input: {} })
      this.#open = { kind: 'call', call: index, args: '' }
    }
    const open = this.#open
    if (args === '') return text
    if (open?.kind !== 'call' || open.call !== index) throw new UpstreamFault('malformed')
    this.#keptChars += args.length
    if (this.#keptChars > this.#options.keptCharsMax) throw new UpstreamFault('too_large')
    open.args += args
    return text + this.#delta('call', args)
  }

  #start(block: JsonObject): string {
    const index = this.#blockCount
    this.#blockCount += 1
    return event('content_block_start', { index, content_block: block })
  }

  #delta(kind: OpenBlock['kind'], piece: string): string {
    const name = 'content_block_delta'
    const data = JSON.stringify({ type: name, index: this.#blockCount - 1, delta: DELTAS[kind](piece) })
    return paddedEvent(name, data, [piece], this.#options.obfuscate)
  }

  /** The arguments of a call that was not cut off must be a valid input of a tool. */
  #close(): string {
    const open = this.#open
    if (open === null) return ''
    this.#open = null
    if (open.kind === 'call' && this.#finishReason !== 'length') inputOf(open.args)
    return event('content_block_stop', { index: this.#blockCount - 1 })
  }
}

function event(name: string, fields: JsonObject): string {
  return namedEvent(name, JSON.stringify({ type: name, ...fields }))
}
