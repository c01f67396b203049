// One request and its response, between a program and the upstream. Effects: both connections.
//
// Strictly in turn: the next request of a program is read after the whole response. So a response never belongs to
// another request, whatever program or upstream send.

import { messageOf } from '../../base/fault.ts'
import {
  type Framing,
  isUnencoded,
  lastChunk,
  readBody,
  requestFraming,
  responseFraming,
  writeChunk,
} from './http/body.codec.ts'
import type { Connection } from './http/connection.ts'
import {
  endToEnd,
  type Field,
  HttpProblem,
  headBytesMax,
  listOf,
  type RequestHead,
  type ResponseHead,
  readResponseHead,
  valuesOf,
  writeRequestHead,
  writeResponseHead,
} from './http/head.codec.ts'
import { Mask, maskIn } from './mask.ts'

export type Exchange = {
  readonly program: Connection
  /** Head of the request that the program sent. */
  readonly head: RequestHead
  /** Head that the upstream gets. */
  readonly prepared: RequestHead
  readonly upstreams: Upstreams
  /** Texts to mask in the response. */
  readonly forms: readonly Buffer[]
}

export type Upstreams = {
  /** An open connection without bytes in it, kept from an earlier exchange or `fresh`. Throws HttpProblem. */
  readonly take: (wanted: 'any' | 'fresh') => Promise<{ readonly connection: Connection; readonly isFresh: boolean }>
  /** Keeps the connection for the next exchange. */
  readonly keep: (connection: Connection) => void
}

export const headEnd: Uint8Array = Buffer.from('\r\n\r\n')

/**
 * Passes both on. Returns whether the program may send another request. Throws HttpProblem while the program has
 * received no byte of the response. Later throws an Error, and the caller closes both connections.
 */
export async function exchange({ program, head, prepared, upstreams, forms }: Exchange): Promise<boolean> {
  const framing = requestFraming(head.fields)
  const { upstream, response, sending } = await openExchange({ program, head, prepared, framing, upstreams, forms })
  let isBegun = false
  try {
    const answered = responseFraming({ ...response, method: head.method })
    if (answered.kind !== 'none' && !isUnencoded(response.fields)) {
      throw new HttpProblem(502, 'the response is compressed against the request, so it cannot be searched for secrets')
    }
    const isLast = !sending.isDone || listOf(head.fields, 'connection').includes('close')
    isBegun = true
    await program.send(writeResponseHead({ ...response, fields: passedFields(response, answered, isLast) }))
    await passBody(answered, { upstream, program, forms })
    const endsAfter = answered.kind === 'close' || !response.persists || !upstream.isIdle
    if (isLast || endsAfter || listOf(response.fields, 'connection').includes('close')) upstream.close()
    else upstreams.keep(upstream)
    return !isLast
  } catch (error) {
    upstream.close()
    // A message of ours in the middle of a response would look like a part of it.
    throw isBegun ? new Error(messageOf(error)) : error
  }
}

type Opening = Exchange & { readonly framing: Framing }
type Opened = { readonly upstream: Connection; readonly response: ResponseHead; readonly sending: Sending }

/** A kept connection may be at its end without our knowing. A request that changes nothing is then sent once more. */
async function openExchange(opening: Opening): Promise<Opened> {
  const { prepared, framing, upstreams } = opening
  const isRepeatable = framing.kind === 'none' && /^(GET|HEAD|OPTIONS)$/.test(prepared.method)
  const { connection, isFresh } = await upstreams.take(isRepeatable ? 'any' : 'fresh')
  const first = await attempt(opening, connection)
  if (first !== null) return first
  const again = isFresh ? null : await attempt(opening, (await upstreams.take('fresh')).connection)
  if (again !== null) return again
  throw new HttpProblem(502, 'the server closed the connection without a response')
}

/** Null if the upstream closed the connection before the first byte of a response. */
async function attempt(opening: Opening, upstream: Connection): Promise<Opened | null> {
  const { program, head, prepared, framing, forms } = opening
  try {
    await upstream.send(writeRequestHead(prepared)).catch(() => {})
    if (framing.kind !== 'none' && listOf(head.fields, 'expect').length > 0) {
      await program.send(writeResponseHead({ status: 100, reason: 'Continue', fields: [] }))
    }
    const sending = new Sending(program, upstream, framing)
    const response = await finalHead(upstream, forms, sending)
    if (response === null) upstream.close()
    return response === null ? null : { upstream, response, sending }
  } catch (error) {
    upstream.close()
    throw error instanceof HttpProblem ? error : new HttpProblem(502, 'the response of the server broke off')
  }
}

/** A request's body on its way. The upstream may answer before its end. */
class Sending {
  isDone: boolean
  /** The fault of the program's body; null while there is none. */
  problem: HttpProblem | null = null

  constructor(program: Connection, upstream: Connection, framing: Framing) {
    this.isDone = framing.kind === 'none'
    if (!this.isDone) void this.#run(program, upstream, framing)
  }

  async #run(program: Connection, upstream: Connection, framing: Framing): Promise<void> {
    const frame = framing.kind === 'chunked' ? writeChunk : (bytes: Uint8Array) => bytes
    const pieces = readBody(program.source, framing, 400)
    let isReading = true
    try {
      for (let piece = await pieces.next(); piece.done !== true; piece = await pieces.next()) {
        isReading = false
        await upstream.send(frame(piece.value))
        isReading = true
      }
      if (framing.kind === 'chunked') await upstream.send(lastChunk)
      this.isDone = true
    } catch (error) {
      // An upstream that reads no more may still answer. A program that sends no more gets nothing.
      if (!isReading) return
      this.problem = error instanceof HttpProblem ? error : new HttpProblem(400, 'the body of the request broke off')
      upstream.close()
    }
  }
}

/** No share: of one response. */
const interimResponsesMax = 8

/** The head of the final response; interim ones (RFC 9110 15.2) are dropped. */
async function finalHead(
  upstream: Connection,
  forms: readonly Buffer[],
  sending: Sending,
): Promise<ResponseHead | null> {
  for (let interim = 0; interim <= interimResponsesMax; interim += 1) {
    let bytes: Uint8Array | null
    try {
      bytes = await upstream.source.until(headEnd, headBytesMax)
    } catch (error) {
      throw sending.problem ?? error
    }
    if (bytes === null && sending.problem !== null) throw sending.problem
    if (bytes === null && interim === 0) return null
    if (bytes === null) break
    const masked = Buffer.from(bytes)
    maskIn(masked, forms)
    const head = readResponseHead(masked)
    if (head.status >= 200) return head
    if (head.status === 101) break
  }
  throw new HttpProblem(502, 'the server sent no final response')
}

function passedFields(response: ResponseHead, framing: Framing, isLast: boolean): Field[] {
  // Without a body the length is a fact about another response (HEAD, 304), or 0.
  const hasLength = (framing.kind === 'none' && response.status !== 204) || framing.kind === 'length'
  const length = hasLength ? valuesOf(response.fields, 'content-length') : []
  return [
    ...endToEnd(response.fields, ['content-length']),
    ...length.map((bytes): Field => ['Content-Length', bytes]),
    ...(framing.kind === 'chunked' || framing.kind === 'close' ? [['Transfer-Encoding', 'chunked'] as const] : []),
    ['Connection', isLast ? 'close' : 'keep-alive'],
  ]
}

type Passing = { readonly upstream: Connection; readonly program: Connection; readonly forms: readonly Buffer[] }

async function passBody(framing: Framing, { upstream, program, forms }: Passing): Promise<void> {
  const mask = new Mask(forms)
  const frame = framing.kind === 'length' ? (bytes: Uint8Array) => bytes : writeChunk
  for await (const piece of readBody(upstream.source, framing, 502)) await program.send(frame(mask.push(piece)))
  await program.send(frame(mask.end()))
  if (framing.kind === 'chunked' || framing.kind === 'close') await program.send(lastChunk)
}
