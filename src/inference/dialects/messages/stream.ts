// Converts the chunks of a chat to events of the Messages API. Pure; holds one stream's state.
//
// Blocks follow each other. A call ends when another block begins and its arguments are complete. If an engine begins
// another block earlier, it interleaves its calls; then the other blocks wait for the end of the stream.

import type { GatewayError } from '../../../contract/http/inference.ts'
import { UpstreamFault } from '../../failure.ts'
import type { JsonObject } from '../../json-text.ts'
import type { DialectStream, DialectStreamOptions, ResponseHead } from '../../openai/dialect.ts'
import type { Usage } from '../../openai/usage.ts'
import { type CallPiece, type ChatDelta, readChunk } from '../chat-answer.ts'
import { namedEvent, paddedEvent } from '../events.ts'
import { errorDocument, inputOf, messageOf, messageUsage, stopReasonOf, unsigned } from './response.ts'

/** `call`: the call's index in the chat, and its arguments so far. */
type OpenBlock = { readonly kind: 'thinking' | 'text' } | { readonly kind: 'call'; readonly call: number; args: string }

/** A block that waits for the end of the stream, with its whole text. */
type WaitingBlock =
  | { readonly kind: 'thinking' | 'text'; held: string }
  | { readonly kind: 'call'; readonly call: number; readonly start: CallStart; held: string }

type CallStart = NonNullable<CallPiece['start']>

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
  readonly #waiting: WaitingBlock[] = []
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

  ping(): string {
    return namedEvent('ping', '{"type":"ping"}')
  }

  finish(usage: Usage): string {
    const delta = { stop_reason: stopReasonOf(this.#finishReason, this.#isRefused), stop_sequence: null }
    return event('message_delta', { delta, usage: messageUsage(usage) })
  }

  fail(error: GatewayError): string {
    return namedEvent('error', JSON.stringify(errorDocument(error)))
  }

  /** Prompt tokens are known only at the end, so the second-to-last event carries them. */
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
    for (const block of this.#waiting) {
      text += this.#close() + this.#start(block.kind === 'call' ? startOf(block.start) : STARTS[block.kind])
      this.#open = block.kind === 'call' ? { kind: 'call', call: block.call, args: block.held } : { kind: block.kind }
      if (block.held !== '') text += this.#delta(block.kind, block.held)
    }
    return text + this.#close()
  }

  /** Reports whether blocks other than the open one must wait, because pieces of its call may follow. */
  #isHeld(): boolean {
    const open = this.#open
    if (this.#waiting.length > 0) return true
    return open?.kind === 'call' && (open.args === '' || inputOf(open.args) === null)
  }

  #waitWithText(kind: 'thinking' | 'text', piece: string): string {
    this.#noteKept(piece)
    const last = this.#waiting.at(-1)
    if (last?.kind === kind) last.held += piece
    else this.#waiting.push({ kind, held: piece })
    return ''
  }

  #waitWithPiece({ index, start, args }: CallPiece): string {
    this.#noteKept(args)
    if (start !== null) this.#waiting.push({ kind: 'call', call: index, start, held: args })
    else {
      const block = this.#waiting.findLast(item => item.kind === 'call' && item.call === index)
      if (block !== undefined) block.held += args
      else if (args.trim() !== '') throw new UpstreamFault('malformed')
    }
    return ''
  }

  #noteKept(piece: string): void {
    this.#keptChars += piece.length
    if (this.#keptChars > this.#options.keptCharsMax) throw new UpstreamFault('too_large')
  }

  #addText(kind: 'thinking' | 'text', piece: string): string {
    let text = ''
    if (this.#open?.kind !== kind) {
      if (this.#isHeld()) return this.#waitWithText(kind, piece)
      text += this.#close() + this.#start(STARTS[kind])
      this.#open = { kind }
    }
    return text + this.#delta(kind, piece)
  }

  #addPiece(piece: CallPiece): string {
    const { index, start, args } = piece
    let text = ''
    const isOpen = this.#open?.kind === 'call' && this.#open.call === index
    if (!isOpen && this.#isHeld()) return this.#waitWithPiece(piece)
    if (start !== null) {
      text += this.#close() + this.#start(startOf(start))
      this.#open = { kind: 'call', call: index, args: '' }
    }
    const open = this.#open
    if (args === '') return text
    if (open?.kind !== 'call' || open.call !== index) throw new UpstreamFault('malformed')
    this.#noteKept(args)
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

  #close(): string {
    const open = this.#open
    if (open === null) return ''
    this.#open = null
    const index = this.#blockCount - 1
    const delta = { type: 'signature_delta', signature: unsigned }
    const signature = open.kind === 'thinking' ? event('content_block_delta', { index, delta }) : ''
    return signature + event('content_block_stop', { index })
  }
}

function startOf({ id, name }: CallStart): JsonObject {
  return { type: 'tool_use', id, name, input: {} }
}

function event(name: string, fields: JsonObject): string {
  return namedEvent(name, JSON.stringify({ type: name, ...fields }))
}
