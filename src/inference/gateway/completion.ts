// One completion, in any API, from admission to the last byte, and the frame that all metered requests share. Fails
// closed: the account of a request is closed exactly once, however the request ends.

import type { Clock } from '../../base/clock.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { TickBatch } from '../../base/work/tick-batch.ts'
import { createCooperativeQueue } from '../../base/work/turns.ts'
import { discardBody, discardTooLarge } from '../../http/body.ts'
import { DIALECTS, dialectOf, hasDialect } from '../dialects/dialects.ts'
import { namesOf, renamedFault } from '../dialects/fields.ts'
import { type EarlierIds, mustStayInside } from '../dialects/responses/earlier.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import type { BodyRoom } from '../limits/body-room.ts'
import { NO_TOKENS, type RequestAccount } from '../metering/account.ts'
import type { Dialect, Earlier } from '../openai/dialect.ts'
import type { Obfuscate } from '../openai/obfuscation.ts'
import { type RequestSource, readSource } from '../openai/request.ts'
import type { SchemaChecks } from '../schema-check/service.ts'
import type { BeginTrace } from '../traces/tracer.ts'
import type { EncryptedExchange, Operation } from '../types.ts'
import type { DecodeBody } from './bodies/coding.ts'
import { earlierTexts, type LargeBodies, type LargeCompletion, smallBytesMax } from './bodies/large-bodies.ts'
import { type AskedCompletion, earlierIdsOf, type ReadCompletion, readCompletion } from './bodies/read-body.ts'
import { bodyFault, largeBytesOf, readRequestBody, tokensToReserve } from './bodies/request-body.ts'
import { cacheOwnerOf, type EarlierRequest, findEarlier, keeperOf, keepsItems } from './earlier-items.ts'
import { type Enter, type EnteredCaller, type Entry, withKeyFrom } from './enter.ts'
import { type FailoverDeps, sendWithFailover } from './failover.ts'
import { modelsToTry, requireModel, type ServedModels } from './models.ts'
import { beginSeal, type ReceiptDeps } from './receipts.ts'
import { clientGoneStatus, costHeader, type PreparedRequest } from './respond.ts'
import type { ResponseMemory } from './response-memory.ts'
import {
  commonHeaders,
  errorResponse,
  isServerFailure,
  publicErrorOf,
  type ResponseHeaders,
  refusalResponse,
} from './responses.ts'
import { EarlyHead } from './streams/early-head.ts'
import type { StreamLimits } from './streams/stream.ts'

/** Services that completions use. */
export type CompletionServices = ReceiptDeps & {
  readonly enter: Enter
  /** Null if requests are not traced. */
  readonly beginTrace: BeginTrace | null
  readonly clock: Clock
}

export type CompletionLimits = StreamLimits & {
  readonly bodyBytesMax: number
  readonly bodyTimeoutMs: number
  /** Whether chunks of streams are padded if the client does not choose. */
  readonly padsStreams: boolean
  /** Whether the ledger has `user` and `metadata` of requests. */
  readonly usageLabels?: true
}

export type CompletionDeps = CompletionServices &
  FailoverDeps & {
    readonly models: ServedModels
    readonly schemas: SchemaChecks
    readonly responses: ResponseMemory
    readonly bodyRoom: BodyRoom
    readonly largeBodies: LargeBodies
    readonly decodeBody: DecodeBody
    /** Requests wait here for other bodies that arrived in the same turn of the event loop. */
    readonly bodyBatch: TickBatch
    readonly obfuscate: Obfuscate
    readonly random: RandomBytes
    readonly limits: CompletionLimits
  }

export type Received<Asked extends Operation> = {
  readonly operation: Asked
  /** The request's id. */
  readonly id: string
  /** Null if the request's body is plain. */
  readonly exchange: EncryptedExchange | null
}

/** Throws faults that occur before admission; later faults are in the response, which is plain in either case. */
export type MeteredHandler<Asked extends Operation> = (request: Request, received: Received<Asked>) => Promise<Response>
export type CompletionHandler = MeteredHandler<AskedCompletion>

export function createCompletionHandler(deps: CompletionDeps): CompletionHandler {
  return createMeteredHandler(deps, (admitted, body) => {
    if (body.length > smallBytesMax) return answerLarge(deps, admitted, { body, earlier: null, insideField: null })
    const source = readSource(body)
    const ids = earlierIdsOf(admitted.operation, source)
    if (ids !== null) return answerWithEarlier(deps, admitted, { body, source }, ids)
    return answer(deps, admitted, {
      read: readHere(deps, admitted, { source, earlier: null }),
      body,
      insideField: null,
    })
  })
}

export type MeteredDeps = CompletionServices &
  Pick<CompletionDeps, 'limits' | 'log' | 'deadlines' | 'bodyRoom' | 'largeBodies' | 'decodeBody' | 'bodyBatch'>

/**
 * Handles the life of every metered request in one function: admission before the body is read, the body, `respond`,
 * which calls upstreams, and the response to a failure. Avoids promises where nothing is awaited, because a promise per
 * layer costs more than the steps themselves.
 */
export function createMeteredHandler<Asked extends Operation>(
  deps: MeteredDeps,
  respond: (admitted: AdmittedRequest<Asked>, body: Uint8Array) => Promise<Response>,
): MeteredHandler<Asked> {
  const begin = (request: Request, { operation, id, exchange }: Received<Asked>, entry: Entry) => {
    const dialect = dialectOf(operation)
    const headers = commonHeaders(id, dialect)
    if (!entry.ok) return Promise.resolve(refusalResponse(entry.refusal, headers, dialect))
    const { caller } = entry
    Object.assign(headers, entry.headers)
    const account = entry.open(deps.beginTrace?.({ headers: request.headers, id, operation }) ?? null)
    // A plaintext cost header would reveal the length of an encrypted response.
    account.wantsCost = exchange === null && request.headers.get(costHeader) === '1'
    const { promise, resolve, reject } = Promise.withResolvers<Response>()
    const readBy = exchange === null ? 'server' : 'reader'
    const early = new EarlyHead({ deadlines: deps.deadlines, limits: deps.limits, readBy, respond: resolve })
    const held: (() => void)[] = []
    const takeRoom = (bytes: number) => void held.push(deps.bodyRoom.take(bytes, caller.organizationId))
    const admitted = { request, operation, id, exchange, headers, account, caller, dialect, early, held, takeRoom }
    void answerAdmitted(deps, admitted, { respond, resolve, reject })
    return promise
  }
  return (request, received) => {
    const { id, operation } = received
    const fault = bodyFault(request.headers, deps.limits, received)
    const tokens = tokensToReserve(request.headers, received)
    const fail = async (error: unknown): Promise<never> => {
      if (fault !== null) await discardTooLarge(error, request, deps.deadlines)
      throw error
    }
    try {
      const headers = withKeyFrom(request.headers, dialectOf(operation)?.keyHeader ?? null)
      const entry = deps.enter({ id, operation, headers, fault, tokens })
      if (!(entry instanceof Promise)) return begin(request, received, entry)
      return entry.then(later => begin(request, received, later), fail)
    } catch (error) {
      return fail(error)
    }
  }
}

type Answering<Asked extends Operation> = {
  readonly respond: (admitted: AdmittedRequest<Asked>, body: Uint8Array) => Promise<Response>
  /** Takes the response, which is discarded if the headers were sent early. */
  readonly resolve: (response: Response) => void
  readonly reject: (error: unknown) => void
}

/** Never rejects. */
async function answerAdmitted<Asked extends Operation>(
  deps: MeteredDeps,
  admitted: AdmittedRequest<Asked> & { readonly held: readonly (() => void)[] },
  { respond, resolve, reject }: Answering<Asked>,
): Promise<void> {
  const { request, held, takeRoom } = admitted
  let mayRead = false
  try {
    const largeBytes = largeBytesOf(request.headers)
    if (largeBytes > 0) takeRoom(largeBytes)
    mayRead = true
    const body = await readRequestBody(deps, admitted)
    const batchEnd = deps.bodyBatch()
    if (batchEnd !== null) await batchEnd
    resolve(await respond(admitted, body))
  } catch (error) {
    if (!mayRead) await discardBody(request, deps.deadlines)
    await failureResponse(deps, error, admitted).then(resolve, reject)
  } finally {
    for (const leave of held) leave()
  }
}

export type AdmittedRequest<Asked extends Operation> = Received<Asked> &
  Pick<EarlierRequest, 'takeRoom'> & {
    readonly request: Request
    readonly headers: ResponseHeaders
    readonly account: RequestAccount
    readonly caller: EnteredCaller
    /** Null for OpenAI's chat completions. */
    readonly dialect: Dialect | null
    /** Unused if the response is not a stream. */
    readonly early: EarlyHead
  }

/**
 * Returns an id that occurs only in the response's body, in hexadecimal. It is independent of the request's id, which
 * the host stores, because the id of a response opens the response.
 */
function freshId(random: RandomBytes): string {
  return random(idBytes).toHex()
}

const idBytes = 16

/** Returns a number from 0 up to, but excluding, 1. */
function randomFraction(random: RandomBytes): number {
  return new DataView(random(4).buffer).getUint32(0) / 2 ** 32
}

/**
 * A request whose body has been parsed. `body`: the client's own bytes. `insideField`: field that names responses of
 * a model inside the attestation; null if there is none.
 */
type ParsedCompletion = {
  readonly read: ReadCompletion
  readonly body: Uint8Array
  readonly insideField: string | null
}
/** `isInside`: no model outside of the attestation may answer it. */
type RoutedCompletion = Pick<ParsedCompletion, 'read' | 'body'> & {
  readonly model: string
  readonly isInside: boolean
  /** Model that answers if this one does not. */
  readonly fallback: string | undefined
}

function readHere(
  { limits }: Pick<CompletionDeps, 'limits'>,
  { operation }: AdmittedRequest<AskedCompletion>,
  { source, earlier }: { readonly source: RequestSource; readonly earlier: Earlier | null },
): ReadCompletion {
  return readCompletion(operation, source, { earlier, hasLabels: limits.usageLabels === true })
}

/** Answers a request that builds on earlier ones, which may be large. */
async function answerWithEarlier(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  { body, source }: { readonly body: Uint8Array; readonly source: RequestSource },
  ids: EarlierIds,
): Promise<Response> {
  const { earlier, insideField } = await findEarlier(deps, admitted, ids)
  const texts = await inCooperativeQueue(earlierTexts(earlier))
  const bytes = [...texts.items, ...texts.named].reduce((sum, { length }) => sum + length, 0)
  if (bytes > smallBytesMax) return await answerLarge(deps, admitted, { body, earlier: texts, insideField })
  return await answer(deps, admitted, { read: readHere(deps, admitted, { source, earlier }), body, insideField })
}

async function answerLarge(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  { body, earlier, insideField: known }: Pick<LargeCompletion & ParsedCompletion, 'body' | 'earlier' | 'insideField'>,
): Promise<Response> {
  let insideField = known
  const { read, body: given } = await deps.largeBodies.readCompletion({
    ...{ body, earlier, operation: admitted.operation },
    owner: admitted.caller.organizationId,
    signal: admitted.request.signal,
    hasLabels: deps.limits.usageLabels === true,
    keepsItems: keepsItems(deps, admitted),
    earlierOf: async ids => {
      const found = await findEarlier(deps, admitted, ids)
      insideField = found.insideField
      return found.earlier
    },
  })
  return await answer(deps, admitted, { read, body: given, insideField })
}

const inCooperativeQueue = createCooperativeQueue()

function answer(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  { read, body, insideField }: ParsedCompletion,
): Promise<Response> {
  const { rules } = admitted.caller
  admitted.account.labels = read.labels
  admitted.account.endUser = read.endUser
  const asked = { rules, model: requireModel(deps.models, { rules, name: read.request.model, use: 'completions' }) }
  const models = modelsToTry(deps.models, asked, () => randomFraction(deps.random))
  const isInside = models.every(name => deps.models.inside.has(name))
  if (insideField !== null && !isInside) throw mustStayInside(insideField)
  const [model, fallback] = models
  return fallback === undefined && read.values === null
    ? complete(deps, admitted, { read, body, model, isInside, fallback })
    : completeWithFallback(deps, admitted, { read, body, model, isInside, fallback })
}

function complete(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  routed: RoutedCompletion,
): Promise<Response> {
  const job = prepareRequest(deps, admitted, routed)
  return job instanceof Promise ? job.then(ready => sendWithFailover(deps, ready)) : sendWithFailover(deps, job)
}

async function completeWithFallback(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  routed: RoutedCompletion,
): Promise<Response> {
  const { model, fallback } = routed
  try {
    // No fallback if preparation fails: a full queue of signatures or schema checks affects every model.
    const job = await prepareRequest(deps, admitted, routed)
    try {
      return await sendWithFailover(deps, job)
    } catch (error) {
      if (fallback === undefined || !mayFallBack(error) || admitted.request.signal.aborted) throw error
      // The client already has its model's name, and ids.
      if (admitted.early.isSent) throw error
      deps.log.warn('another model answers', { request: admitted.id, model, fallback })
      return await complete(deps, admitted, { ...routed, model: fallback, fallback: undefined })
    }
  } finally {
    // Drops the values, because a stream may last for minutes and no further upstream is called.
    routed.read.values?.drop()
  }
}

/** Reports whether another model may answer: nothing has arrived from this one, and the request is not at fault. */
function mayFallBack(error: unknown): boolean {
  if (error instanceof UpstreamFault) return error.row.retryable || error.reason === 'none_healthy'
  return error instanceof BusyFault
}

/** Returns a promise if the schema of response_format must be prepared. */
function prepareRequest(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  { read, body, model, isInside, fallback }: RoutedCompletion,
): PreparedRequest | Promise<PreparedRequest> {
  const { request, operation, id, exchange, headers, account, caller, early } = admitted
  const { request: asked, source, values, ignored, traits } = read
  const parsed = asked.model === model ? asked : { ...asked, model }
  account.model = model
  account.bodyBytes = read.bodyBytes
  account.promptEstimate = read.promptEstimate
  if (account.trace !== null) account.trace.isStream = parsed.stream
  const isEncrypted = exchange !== null
  const { seal, headers: more } = beginSeal(deps, { request, id, caller, model, body, isEncrypted })
  const createdS = Math.floor(deps.clock.nowMs() / 1000)
  const { format, includeObfuscation } = parsed
  const { signal } = request
  const headOf = () => {
    const kept = { id: freshId(deps.random), isInside }
    return { id: kept.id, createdS, model, keep: keeperOf(deps, admitted, kept) }
  }
  const plan = {
    request: parsed,
    id: `${parsed.operation === 'chat' ? 'chatcmpl' : 'cmpl'}-${freshId(deps.random)}`,
    createdS,
    schema: null,
    obfuscate: (includeObfuscation ?? deps.limits.padsStreams) ? deps.obfuscate : null,
    dialect: hasDialect(operation) ? DIALECTS[operation].respond(traits, headOf()) : null,
  }
  const allHeaders = seal === null ? headers : { ...headers, ...more }
  const cacheOwner = cacheOwnerOf(admitted, deps.random)
  const cacheSalt = () => deps.cacheSalt(cacheOwner, parsed.cacheSalt)
  const job = {
    id,
    plan,
    source,
    values,
    ignored,
    cacheSalt,
    seal,
    headers: allHeaders,
    account,
    isEncrypted,
    signal,
    early,
    mayFallBack: fallback !== undefined,
  }
  if (format.kind !== 'json_schema') return job
  const prepared = deps.schemas.prepare(format.schema, { key: caller.keyPrefix, scope: cacheOwner, signal })
  return prepared.then(schema => ({ ...job, plan: { ...plan, schema } }))
}

/**
 * Returns the response to a request that ended before its first event. A failure costs the client nothing, unless the
 * model broke the requested format, because that text was generated. A client that left after an upstream was called
 * pays for the prompt.
 */
async function failureResponse(
  { log }: MeteredDeps,
  failure: unknown,
  {
    request,
    id,
    headers,
    account,
    dialect,
    early,
  }: Pick<AdmittedRequest<Operation>, 'request' | 'id' | 'headers' | 'account' | 'dialect' | 'early'>,
): Promise<Response> {
  early.pause()
  // Renames the fields in faults of later checks. The parser's own faults are renamed already.
  const error = dialect === null ? failure : renamedFault(failure, namesOf(dialect.names))
  if (request.signal.aborted) {
    const tokens = account.upstream === null ? NO_TOKENS : { prompt: account.promptEstimate, completion: 0 }
    await account.close({
      outcome: 'aborted',
      tokens,
      tokensSource: 'estimated',
      status: clientGoneStatus,
      errorCode: null,
    })
    return new Response(null, { status: clientGoneStatus, headers })
  }
  const { status, code } = publicErrorOf(error)
  const tokens = (error instanceof UpstreamFault ? error.tokens : null) ?? NO_TOKENS
  const sent = early.isSent ? 200 : status
  await account.close({ outcome: 'failed', tokens, tokensSource: 'reported', status: sent, errorCode: code })
  // Upstream failures were logged with their reason.
  if (isServerFailure(error) && !(error instanceof UpstreamFault)) log.error('request failed', { request: id, error })
  if (early.isSent) early.fail(error)
  return errorResponse(error, headers, dialect)
}
