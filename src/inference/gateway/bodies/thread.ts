// The thread that parses large bodies: JSON.parse of some megabytes, the checks after it and the memory for the texts
// would hold the serving thread for a tenth of a second. large-bodies.ts starts it. Keeps nothing between two bodies.

import { parentPort } from 'node:worker_threads'
import { fromUtf8 } from '../../../base/bytes.ts'
import { Fault, type FaultCode, messageOf } from '../../../base/fault.ts'
import { compileAsUsual } from '../../../base/work/compiler.ts'
import type { ThreadRefusal } from '../../../base/work/request-thread.ts'
import { isCount } from '../../dialects/dialects.ts'
import type { EarlierIds } from '../../dialects/responses/earlier.ts'
import { inputTextOf } from '../../dialects/responses/request.ts'
import { invalidRequest, type JsonObject } from '../../json-text.ts'
import { partTokens } from '../../metering/account.ts'
import { type CutSource, cutSource, shownNames } from '../../openai/cut-source.ts'
import type { Earlier, ResponseTraits } from '../../openai/dialect.ts'
import { cutLongTexts, type LongTexts, textBytesMax } from '../../openai/long-texts.ts'
import { isPooled, isPooledField } from '../../openai/pooled/request.ts'
import { type GatewayRequest, readSource } from '../../openai/request.ts'
import { isEverSent } from '../../openai/request-fields.ts'
import { schemaCharsMax, schemaText } from '../../schema-check/wire.ts'
import type { Operation } from '../../types.ts'
import {
  type CountedPrompt,
  countPrompt,
  earlierIdsOf,
  type ReadCompletion,
  type ReadPooled,
  readCompletion,
  readPooled,
} from './read-body.ts'

/** One body at a time: the next is sent after the reply. */
export type ToThread = {
  readonly operation: Operation
  /** Moves to the thread, and back with the reply. */
  readonly body: Uint8Array<ArrayBuffer>
  /** Random hexadecimal digits. */
  readonly mark: string
  readonly hasLabels: boolean
  /** Whether the gateway keeps the items of responses. */
  readonly keepsItems: boolean
  /** JSON of the earlier items; null if they are not loaded yet. */
  readonly earlier: EarlierTexts | null
}

/** Items, each list in pieces of JSON without brackets. */
export type EarlierTexts = {
  readonly items: readonly Uint8Array<ArrayBuffer>[]
  /** Pairs of an id and an item. */
  readonly named: readonly Uint8Array<ArrayBuffer>[]
}

type Cut<Read> = Omit<Read, 'source' | 'values'> & { readonly cut: CutSource }

export type FromThread =
  | { readonly kind: 'completion'; readonly read: Cut<ReadCompletion>; readonly body: Uint8Array<ArrayBuffer> }
  | { readonly kind: 'pooled'; readonly read: Cut<ReadPooled>; readonly body: Uint8Array<ArrayBuffer> }
  | { readonly kind: 'count'; readonly count: CountedPrompt }
  /** The request must be sent again, with what these ids name. */
  | { readonly kind: 'needs'; readonly ids: EarlierIds; readonly body: Uint8Array<ArrayBuffer> }
  | { readonly kind: 'fault'; readonly code: FaultCode; readonly message: string; readonly param: string | undefined }
  | ThreadRefusal

if (parentPort !== null) {
  compileAsUsual()
  const port = parentPort
  port.on('message', (message: ToThread) => {
    const reply = respond(message)
    port.postMessage(reply, buffersOf(reply))
  })
}

function respond(message: ToThread): FromThread {
  try {
    return read(message)
  } catch (error) {
    if (!(error instanceof Fault)) return { kind: 'refused', reason: messageOf(error) }
    const { code, message: words, param } = error
    return { kind: 'fault', code, message: words, param }
  }
}

function read({ operation, body, mark, hasLabels, keepsItems, earlier: texts }: ToThread): FromThread {
  const longTexts = body.length > textBytesMax ? cutLongTexts(body, mark) : null
  const source = readSource(longTexts?.bytes ?? body)
  if (isPooled(operation)) {
    const { values: _, source: whole, ...rest } = readPooled(operation, source, { hasLabels })
    const cut = cutSource(whole, {
      mark,
      longTexts,
      isSent: name => isPooledField(operation, name),
      hasReasoning: false,
    })
    return { kind: 'pooled', read: { ...rest, request: shortNamed(rest.request), cut }, body }
  }
  const ids = texts === null ? earlierIdsOf(operation, source) : null
  if (ids !== null) return { kind: 'needs', ids, body }
  const earlier = texts === null ? null : earlierIn(texts)
  if (isCount(operation)) return { kind: 'count', count: shortNamed(countPrompt(operation, source, earlier)) }
  const { values: _, source: whole, ...rest } = readCompletion(operation, source, { earlier, hasLabels })
  const { request, ignored, traits } = rest
  const isSent = (name: string) => isEverSent(name, request.operation)
  const readBody = {
    ...rest,
    bodyBytes: rest.bodyBytes + body.length - (longTexts?.bytes ?? body).length,
    promptEstimate: rest.promptEstimate + partTokens * (longTexts?.count ?? 0),
    request: checkedRequest(request),
    ignored: shownNames(ignored),
    traits: traits === null ? null : traitsToKeep(traits, { keepsItems, longTexts }),
    cut: cutSource(whole, { mark, longTexts, isSent, hasReasoning: request.reasoning !== null }),
  }
  return { kind: 'completion', read: readBody, body }
}

/**
 * Returns the request, short enough for the serving thread to copy. Throws Fault invalid_request for a schema that no
 * child process checks.
 */
function checkedRequest(request: GatewayRequest): GatewayRequest {
  if (request.format.kind === 'json_schema') schemaText(request.format.schema)
  return shortNamed({ ...request, ignored: shownNames(request.ignored) })
}

/** Longer than any configured name. */
const modelCharsMax = 1_024

function shortNamed<Named extends { readonly model: string }>(named: Named): Named {
  return { ...named, model: named.model.slice(0, modelCharsMax) }
}

function traitsToKeep(
  traits: ResponseTraits,
  { keepsItems, longTexts }: { readonly keepsItems: boolean; readonly longTexts: LongTexts | null },
): ResponseTraits {
  if (JSON.stringify(traits.echo).length > schemaCharsMax) {
    throw invalidRequest(`text.format and tool_choice are longer than ${schemaCharsMax} characters together.`)
  }
  // Marks are not input, and the values behind them are too long to be kept.
  const isKept = keepsItems && traits.echo.store && longTexts === null
  return { ...traits, input: { text: isKept ? inputTextOf(traits.input) : null } }
}

function earlierIn({ items, named }: EarlierTexts): Earlier {
  const listOf = (pieces: readonly Uint8Array[]) => JSON.parse(`[${pieces.map(fromUtf8).join(',')}]`)
  const all: JsonObject[] = listOf(items)
  const pairs: [string, JsonObject][] = listOf(named)
  return { items: all, named: new Map(pairs) }
}

/** Returns the buffers that move to the serving thread. */
function buffersOf(reply: FromThread): ArrayBuffer[] {
  const body = 'body' in reply ? [reply.body.buffer] : []
  const values = 'read' in reply ? reply.read.cut.values.map(value => value.buffer) : []
  return [...body, ...values]
}
