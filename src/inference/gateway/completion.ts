// One completion, in any API, from admission to the last byte, and the frame that all metered requests share. Fails
// closed: the account of a request is closed exactly once, however the request ends.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { checkBodyHeaders, discardTooLarge, readBody } from '../../http/body.ts'
import { DIALECTS, dialectOf, hasDialect } from '../dialects/dialects.ts'
import { namesOf, renamedFault } from '../dialects/fields.ts'
import { type ParsedDialect, parseDialect } from '../dialects/request.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { estimateTokens, NO_TOKENS, type RequestAccount } from '../metering/account.ts'
import { usageLabels } from '../metering/labels.ts'
import type { CompletionPlan } from '../openai/completion-plan.ts'
import type { Dialect } from '../openai/dialect.ts'
import type { Obfuscate } from '../openai/obfuscation.ts'
import { parseRequest } from '../openai/request.ts'
import type { SchemaChecks } from '../schema-check/service.ts'
import type { BeginTrace } from '../traces/tracer.ts'
import type { EncryptedExchange, Operation } from '../types.ts'
import type { Enter, EnteredCaller, Entry } from './enter.ts'
import { completeJob, type FailoverDeps } from './failover.ts'
import { answering, requireModel, type ServedModels } from './models.ts'
import { beginSeal, type ReceiptDeps } from './receipts.ts'
import { clientGoneStatus, costHeader, type Job } from './respond.ts'
import {
  commonHeaders,
  errorResponse,
  isServerFailure,
  publicErrorOf,
  type ResponseHeaders,
  refusalResponse,
} from './responses.ts'
import type { StreamLimits } from './stream.ts'

/** Services that completions use. */
export type CompletionServices = ReceiptDeps & {
  readonly enter: Enter
  /** Null: no request is traced. */
  readonly beginTrace: BeginTrace | null
  readonly clock: Clock
}

export type CompletionLimits = StreamLimits & {
  readonly bodyBytesMax: number
  readonly bodyTimeoutMs: number
  /** Whether the chunks of streams are padded where the client does not say. */
  readonly padsStreams: boolean
  /** Whether the ledger has `user` and `metadata` of requests. */
  readonly usageLabels?: true
}

export type CompletionDeps = CompletionServices &
  FailoverDeps & {
    readonly models: ServedModels
    readonly schemas: SchemaChecks
    readonly random: RandomBytes
    readonly obfuscate: Obfuscate
    readonly limits: CompletionLimits
  }

export type Received<Asked extends Operation> = {
  readonly operation: Asked
  /** The request's. */
  readonly id: string
  /** Null: the request's body is plain. */
  readonly exchange: EncryptedExchange | null
}

/** Throws faults before admission; later faults are in the response. The response is plain in either case. */
export type MeteredHandler<Asked extends Operation> = (request: Request, received: Received<Asked>) => Promise<Response>
export type CompletionHandler = MeteredHandler<AskedCompletion>

/** Completions of every API. */
type AskedCompletion = Exclude<Operation, 'embeddings'>

/** Reserved for the completion until its tokens are counted. */
const completionTokensReserved = 256
/** Assumed for a body without Content-Length. */
const chunkedBytesReserved = 16_384

export function createCompletionHandler(deps: CompletionDeps): CompletionHandler {
  return createMeteredHandler(deps, async admitted => {
    const read = await readRequest(deps, admitted)
    const asked = { rules: admitted.caller.rules, model: read.model }
    const [model, fallback] = answering(deps.models, asked, () => drawn(deps.random))
    try {
      return await completeJob(deps, await prepareJob(deps, admitted, { ...read, model }))
    } catch (error) {
      if (fallback === undefined || !mayFallBack(error) || admitted.request.signal.aborted) throw error
      deps.log.warn('another model answers', { request: admitted.id, model, fallback })
      return await completeJob(deps, await prepareJob(deps, admitted, { ...read, model: fallback }))
    }
  })
}

export type MeteredDeps = CompletionServices & Pick<CompletionDeps, 'limits' | 'log' | 'deadlines'>

/** The frame of every metered request: admission before the body is read, and the response to a failure. */
export function createMeteredHandler<Asked extends Operation>(
  deps: MeteredDeps,
  respond: (admitted: AdmittedRequest<Asked>) => Promise<Response>,
): MeteredHandler<Asked> {
  return async (request, { operation, id, exchange }) => {
    const dialect = dialectOf(operation)
    const fault = bodyFault(request.headers, bytesMaxOf(deps.limits, exchange))
    const tokens = tokensToReserve(request.headers, { operation, exchange })
    let entry: Entry
    try {
      const asked = deps.enter({ id, operation, headers: keyHeadersOf(request.headers, dialect), fault, tokens })
      entry = asked instanceof Promise ? await asked : asked
    } catch (error) {
      if (fault !== null) await discardTooLarge(error, request, deps.deadlines)
      throw error
    }
    if (!entry.ok) return refusalResponse(entry.refusal, commonHeaders(id), dialect)
    const { caller } = entry
    const headers = { ...commonHeaders(id), ...entry.headers }
    const trace = deps.beginTrace?.({ headers: request.headers, id, operation }) ?? null
    const account = entry.open(trace)
    // In the clear it would tell how long an encrypted response is.
    account.wantsCost = exchange === null && request.headers.get(costHeader) === '1'
    try {
      return await respond({ request, operation, id, exchange, headers, account, caller, dialect })
    } catch (error) {
      return await failureResponse(deps, error, { request, id, headers, account, dialect })
    }
  }
}

/** Null: nothing is wrong with what the headers say of the body. */
function bodyFault(headers: Headers, bytesMax: number): Fault | null {
  try {
    checkBodyHeaders(headers, { bytesMax, charset: 'any' })
    return null
  } catch (error) {
    if (error instanceof Fault) return error
    throw error
  }
}

/** Longest body to accept, in bytes as sent. */
function bytesMaxOf({ bodyBytesMax }: CompletionLimits, exchange: EncryptedExchange | null): number {
  return exchange === null ? bodyBytesMax : exchange.encryptedBytesMaxOf(bodyBytesMax)
}

function tokensToReserve(
  headers: Headers,
  { operation, exchange }: Pick<Received<Operation>, 'operation' | 'exchange'>,
): number {
  const declared = headers.get('content-length')
  const bytes = declared === null ? chunkedBytesReserved : Number(declared)
  const prompt = estimateTokens(exchange === null ? bytes : exchange.plainBytesOf(bytes))
  return operation === 'embeddings' ? prompt : prompt + completionTokensReserved
}

/** The plain body. */
export function readPlainBody(
  { limits, deadlines }: Pick<MeteredDeps, 'limits' | 'deadlines'>,
  request: Request,
  exchange: EncryptedExchange | null,
): Promise<Uint8Array> {
  const bounds = { bytesMax: bytesMaxOf(limits, exchange), timeoutMs: limits.bodyTimeoutMs }
  const read = readBody(request, bounds, deadlines)
  return exchange === null ? read : read.then(body => exchange.decrypt(body, limits.bodyBytesMax))
}

export type AdmittedRequest<Asked extends Operation> = Received<Asked> & {
  readonly request: Request
  readonly headers: ResponseHeaders
  readonly account: RequestAccount
  readonly caller: EnteredCaller
  /** Null: OpenAI's own. */
  readonly dialect: Dialect | null
}

/** A number from 0 up to 1. */
function drawn(random: RandomBytes): number {
  return new DataView(random(4).buffer).getUint32(0) / 2 ** 32
}

/** A request whose body has been read, and the model that is to answer it. */
type ReadCompletion = {
  readonly body: Uint8Array
  readonly parsed: ReturnType<typeof parseBody>
  readonly model: string
}

async function readRequest(
  deps: CompletionDeps,
  { request, operation, exchange, account, caller }: AdmittedRequest<AskedCompletion>,
): Promise<ReadCompletion> {
  const body = await readPlainBody(deps, request, exchange)
  const parsed = parseBody(operation, body)
  if (deps.limits.usageLabels === true) account.labels = usageLabels(operation, parsed.given)
  const name = parsed.request.model
  return { body, parsed, model: requireModel(deps.models, { rules: caller.rules, name, use: 'completions' }) }
}

/** Whether another model may answer: nothing has come from this one, and the request is not at fault. */
function mayFallBack(error: unknown): boolean {
  if (error instanceof UpstreamFault) return error.row.retryable || error.reason === 'none_healthy'
  return error instanceof BusyFault
}

async function prepareJob(
  deps: CompletionDeps,
  admitted: AdmittedRequest<AskedCompletion>,
  { body, model, parsed: { request: asked, source, ignored, respond } }: ReadCompletion,
): Promise<Job> {
  const { request, id, exchange, headers, account, caller } = admitted
  const parsed = { ...asked, model }
  const { format } = parsed
  account.model = model
  account.bodyBytes = source.sizeBytes
  account.promptEstimate = estimateTokens(source.sizeBytes)
  if (account.trace !== null) account.trace.isStream = parsed.stream
  const isEncrypted = exchange !== null
  const { seal, headers: more } = beginSeal(deps, { request, id, caller, model, body, isEncrypted })
  const createdS = Math.floor(deps.clock.nowMs() / 1000)
  const plan: CompletionPlan = {
    request: parsed,
    id: `${parsed.operation === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`,
    createdS,
    schema:
      format.kind === 'json_schema'
        ? await deps.schemas.prepare(format.schema, { key: caller.keyPrefix, signal: request.signal })
        : null,
    obfuscate: (parsed.includeObfuscation ?? deps.limits.padsStreams) ? deps.obfuscate : null,
    dialect: respond?.({ id: id.replaceAll('-', ''), createdS, model }) ?? null,
  }
  const { signal } = request
  return { id, plan, source, ignored, seal, headers: { ...headers, ...more }, account, isEncrypted, signal }
}

/** With the key in Authorization, where another header that its API has carries it. */
function keyHeadersOf(headers: Headers, dialect: Dialect | null): Headers {
  const name = dialect?.keyHeader ?? null
  const key = name === null || headers.has('authorization') ? null : headers.get(name)
  return key === null ? headers : new Headers({ authorization: `Bearer ${key}` })
}

/** `respond` is null for what needs no translation. */
function parseBody(
  operation: AskedCompletion,
  body: Uint8Array,
): Omit<ParsedDialect, 'respond'> & { readonly respond: ParsedDialect['respond'] | null } {
  if (hasDialect(operation)) return parseDialect(DIALECTS[operation], body)
  const parsed = parseRequest(operation, body)
  return { ...parsed, given: parsed.source.body, ignored: [], respond: null }
}

/**
 * Response to a request that ended before its response began. A failure costs the client nothing, unless the model
 * broke the requested format: that text was generated. A client that left after an upstream was asked pays for the
 * prompt.
 */
async function failureResponse(
  { log }: MeteredDeps,
  failure: unknown,
  { request, id, headers, account, dialect }: Omit<AdmittedRequest<Operation>, 'operation' | 'exchange' | 'caller'>,
): Promise<Response> {
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
  await account.close({ outcome: 'failed', tokens, tokensSource: 'reported', status, errorCode: code })
  // Upstream failures were logged with their reason.
  if (isServerFailure(error) && !(error instanceof UpstreamFault)) log.error('request failed', { request: id, error })
  return errorResponse(error, headers, dialect)
}
