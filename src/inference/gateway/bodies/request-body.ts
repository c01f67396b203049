// The body of a metered request: the bounds from its headers, and its plain bytes. Effects: reads one request.

import { Fault } from '../../../base/fault.ts'
import type { Deadlines } from '../../../base/work/deadlines.ts'
import { checkBodyHeaders, readBody } from '../../../http/body.ts'
import { isCount } from '../../dialects/dialects.ts'
import { estimateTokens, type RequestAccount } from '../../metering/account.ts'
import { textBytesMax } from '../../openai/long-texts.ts'
import { isPooled } from '../../openai/pooled/request.ts'
import type { EncryptedExchange, Operation } from '../../types.ts'
import type { EnteredCaller } from '../enter.ts'
import { type Coding, codingOf, type DecodeBody } from './coding.ts'

/** `exchange`: null if the request is not encrypted. */
type BodyContext = { readonly operation: Operation; readonly exchange: EncryptedExchange | null }
type Limits = { readonly bodyBytesMax: number; readonly bodyTimeoutMs: number }

/** Reserved for the completion until its tokens are counted. */
const completionTokensReserved = 256
/** Bytes of text that a large body is assumed to have. */
const largeBytesReserved = 262_144
/** Bytes that a body without Content-Length is assumed to have. */
const chunkedBytesReserved = 16_384

/** Returns the Fault that the headers of the body cause; null if the body may be read. */
export function bodyFault(headers: Headers, limits: Limits, asked: BodyContext): Fault | null {
  try {
    checkBodyHeaders(headers, { bytesMax: bytesMaxOf(limits, headers, asked), charset: 'any', mayBeCoded: true })
    codingOf(headers)
    return null
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
}

/** Returns the length of the longest body to accept, in bytes as sent. */
function bytesMaxOf(limits: Limits, headers: Headers, asked: BodyContext): number {
  const plain = plainBytesMaxOf(limits, headers, asked)
  return asked.exchange === null ? plain : asked.exchange.encryptedBytesMaxOf(plain)
}

/**
 * Returns the bound of the plain body. Only a request with Content-Length may be large, because memory is reserved by
 * that length. Large bodies contain pictures, which embeddings do not accept.
 */
function plainBytesMaxOf(limits: Limits, headers: Headers, { operation }: BodyContext): number {
  return headers.has('content-length') ? ownBytesMaxOf(limits, operation) : Math.min(limits.bodyBytesMax, textBytesMax)
}

function ownBytesMaxOf({ bodyBytesMax }: Limits, operation: Operation): number {
  return isPooled(operation) ? Math.min(bodyBytesMax, textBytesMax) : bodyBytesMax
}

/** Returns the length of a large body; 0 for any other. */
export function largeBytesOf(headers: Headers): number {
  const bytes = Number(headers.get('content-length') ?? 0)
  return bytes <= textBytesMax ? 0 : bytes
}

/** Returns the tokens to reserve before the body is read. */
export function tokensToReserve(headers: Headers, { operation, exchange }: BodyContext): number {
  const declared = headers.get('content-length')
  const sent = declared === null ? chunkedBytesReserved : Number(declared)
  return tokensOf(exchange === null ? sent : exchange.plainBytesOf(sent), operation)
}

/** Returns the tokens to reserve for a plain body of that length. */
function tokensOf(bytes: number, operation: Operation): number {
  if (isCount(operation)) return 0
  // Most of a large body is pictures.
  const prompt = estimateTokens(bytes > textBytesMax ? largeBytesReserved : bytes)
  return isPooled(operation) ? prompt : prompt + completionTokensReserved
}

type ReadDeps = { readonly limits: Limits; readonly deadlines: Deadlines; readonly decodeBody: DecodeBody }

type ReadRequest = BodyContext & {
  readonly request: Request
  readonly id: string
  readonly caller: Pick<EnteredCaller, 'keyDigest' | 'organizationId'>
  readonly account: Pick<RequestAccount, 'reserveTokens'>
  readonly takeRoom: (bytes: number) => void
}

/**
 * Returns the body, decrypted and decoded. EHBP seals the coded body, so decryption comes first. A decoded body takes
 * memory and tokens in addition to those for the body as sent. Faults: those of `readBody`, `decrypt` and `decodeBody`.
 */
export function readRequestBody(deps: ReadDeps, asked: ReadRequest): Promise<Uint8Array> {
  const coding = codingOf(asked.request.headers)
  return coding === null ? readUncoded(deps, asked) : readCoded(deps, asked, coding)
}

function readUncoded({ limits, deadlines }: ReadDeps, asked: ReadRequest): Promise<Uint8Array> {
  const { request, id, exchange, caller } = asked
  const { headers } = request
  const bounds = { bytesMax: bytesMaxOf(limits, headers, asked), timeoutMs: limits.bodyTimeoutMs }
  const read = readBody(request, bounds, deadlines)
  if (exchange === null) return read
  const bytesMax = plainBytesMaxOf(limits, headers, asked)
  return read.then(body => exchange.decrypt(body, { bytesMax, sender: { keyDigest: caller.keyDigest, request: id } }))
}

async function readCoded(deps: ReadDeps, asked: ReadRequest, coding: Coding): Promise<Uint8Array> {
  const { request, operation, account, caller, takeRoom } = asked
  const { headers, signal } = request
  const body = await deps.decodeBody({
    body: await readUncoded(deps, asked),
    coding,
    owner: caller.organizationId,
    signal,
    bytesMax: ownBytesMaxOf(deps.limits, operation),
    freeBytes: textBytesMax,
    takeRoom,
  })
  const tokens = tokensOf(body.length, operation) - tokensToReserve(headers, asked)
  if (tokens > 0) await account.reserveTokens(tokens)
  return body
}
