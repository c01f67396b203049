// One chat or text completion, from admission to the last byte. Fails closed; whatever happens its place and its books are closed once.

import { utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import type { Deadlines } from '../../base/deadlines.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { type AnswerPlan, parseAnswer, tokensOf, type Usage } from '../openai/completion.ts'
import { type Operation, parseRequest } from '../openai/request.ts'
import type { SchemaChecks } from '../openai/schema-check.ts'
import type { Admit, Authenticate, Observe, RecordUsage, ResponseSeal, ResponseSealer } from '../types.ts'
import { type Attempt, openAttempt, type UpstreamClient } from '../upstream/client.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import type { Lease, Router, TargetHealth } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { type Books, estimatePromptTokens, NO_TOKENS, openBooks } from './accounting.ts'
import { checkBodyHeaders, readRequestBody, readUpstreamBody } from './body.ts'
import type { Catalog } from './catalog.ts'
import {
  type AnswerHeaders,
  commonHeaders,
  failureAnswer,
  isOurs,
  refusalAnswer,
  textAnswer,
  toldOf,
} from './responses.ts'
import { openStream, type StreamEnd } from './stream.ts'

export type CompletionDeps = {
  readonly authenticate: Authenticate
  readonly admit: Admit
  readonly recordUsage: RecordUsage
  readonly observe: Observe
  readonly sealer: ResponseSealer | null
  readonly responseReceipts: 'on-request' | 'always'
  readonly catalog: Catalog
  readonly router: Router<UpstreamTarget>
  readonly upstream: UpstreamClient
  readonly schemas: SchemaChecks
  readonly clock: Clock
  readonly deadlines: Deadlines
  readonly random: RandomBytes
  readonly log: Logger
  readonly limits: {
    readonly bodyBytesMax: number
    readonly bodyTimeoutMs: number
    readonly firstByteTimeoutMs: number
    readonly idleTimeoutMs: number
    readonly eventBytesMax: number
    readonly answerBytesMax: number
    readonly stallTimeoutMs: number
  }
}

export type Completions = {
  readonly answer: (request: Request, operation: Operation, id: string) => Promise<Response>
}

/** Upstreams asked for one request, at most. */
const attemptsMax = 3
/** Reserved for an answer until its length is known. */
const completionTokensReserved = 256
/** Taken for the length of a body that does not say its own. */
const chunkedBytesReserved = 16_384
const clientGoneStatus = 499

/** What one request is, on its way. */
type Job = {
  readonly id: string
  readonly plan: AnswerPlan
  readonly promptEstimate: number
  readonly seal: ResponseSeal | null
  readonly headers: AnswerHeaders
  readonly books: Books
  readonly signal: AbortSignal
}

export function createCompletions(deps: CompletionDeps): Completions {
  return {
    answer: async (request, operation, id) => {
      const caller = deps.authenticate(request.headers)
      checkBodyHeaders(request.headers, deps.limits.bodyBytesMax)
      const admission = deps.admit(caller, tokensToReserve(request.headers))
      if (!admission.ok) return refusalAnswer(admission.refusal, commonHeaders(id))
      const { ticket } = admission
      const headers = { ...commonHeaders(id), ...ticket.headers }
      const books = openBooks(deps, { id, operation, caller, ticket })
      try {
        const job = await prepare(deps, { request, operation, id, headers, books })
        return await runJob(deps, job)
      } catch (error) {
        return concludeFailure(deps, { error, headers, books, id, isGone: request.signal.aborted })
      }
    },
  }
}

function tokensToReserve(headers: Headers): number {
  const declared = headers.get('content-length')
  const bytes = declared === null ? chunkedBytesReserved : Number(declared)
  return estimatePromptTokens(bytes) + completionTokensReserved
}

type Incoming = {
  readonly request: Request
  readonly operation: Operation
  readonly id: string
  readonly headers: AnswerHeaders
  readonly books: Books
}

async function prepare(deps: CompletionDeps, incoming: Incoming): Promise<Job> {
  const { request, operation, id, headers, books } = incoming
  const { bodyBytesMax, bodyTimeoutMs } = deps.limits
  const body = await readRequestBody(request, { bytesMax: bodyBytesMax, timeoutMs: bodyTimeoutMs }, deps.deadlines)
  const parsed = parseRequest(operation, body)
  if (!deps.catalog.has(parsed.model)) throw new Fault('not_found', 'There is no such model; see /v1/models.')
  books.model = parsed.model
  books.promptEstimate = estimatePromptTokens(body.length)
  const isSealed = deps.responseReceipts === 'always' || request.headers.get('x-strongroom-receipt') === '1'
  if (isSealed && deps.sealer === null) {
    throw new Fault('attestation_unavailable', 'Signed receipts are not to be had now.')
  }
  const plan = {
    request: parsed,
    id: `${operation === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`,
    createdS: Math.floor(deps.clock.nowMs() / 1000),
    schema: parsed.format.kind === 'json_schema' ? deps.schemas.compile(parsed.format.schema) : null,
  }
  return {
    id,
    plan,
    promptEstimate: books.promptEstimate,
    seal: isSealed ? (deps.sealer?.begin({ id, model: parsed.model, body }) ?? null) : null,
    headers,
    books,
    signal: request.signal,
  }
}

/** Asks upstreams until one begins to answer. After the first byte there is no way back. */
async function runJob(deps: CompletionDeps, job: Job): Promise<Response> {
  const tried = new Set<UpstreamTarget>()
  let last: UpstreamFault | null = null
  while (tried.size < attemptsMax) {
    const queuedMs = deps.clock.monotonicMs()
    let lease: Lease<UpstreamTarget>
    try {
      const given = deps.router.acquire(job.plan.request.model, { except: tried, signal: job.signal })
      lease = given instanceof Promise ? await given : given
    } catch (error) {
      job.signal.throwIfAborted()
      throw last ?? error
    }
    job.books.queueMs += deps.clock.monotonicMs() - queuedMs
    job.books.upstream = lease.target.name
    tried.add(lease.target)
    const attempt = openAttempt()
    job.signal.addEventListener('abort', attempt.abort, { once: true })
    try {
      return await tryUpstream(deps, job, { lease, attempt })
    } catch (error) {
      attempt.abort()
      lease.release(job.signal.aborted ? 'unknown' : healthOf(error))
      job.signal.throwIfAborted()
      if (!(error instanceof UpstreamFault)) throw error
      const upstream = lease.target.name
      deps.log.warn('upstream failed', { request: job.id, upstream, reason: error.reason })
      if (!error.row.retryable) throw error
      last = error
    }
  }
  throw last ?? new UpstreamFault('none_healthy')
}

function healthOf(error: unknown): TargetHealth {
  if (error instanceof UpstreamFault) return error.row.countsAgainstHealth ? 'unhealthy' : 'healthy'
  return 'unknown'
}

type Asked = { readonly lease: Lease<UpstreamTarget>; readonly attempt: Attempt }

async function tryUpstream(deps: CompletionDeps, job: Job, asked: Asked): Promise<Response> {
  const { request } = job.plan
  const answer = await deps.upstream.send(asked.lease.target, {
    path: request.operation === 'chat' ? '/chat/completions' : '/completions',
    body: request.upstreamBody,
    stream: request.stream,
    attempt: asked.attempt,
  })
  return request.stream ? answerStream(deps, job, asked, answer) : answerWhole(deps, job, asked, answer)
}

async function answerWhole(deps: CompletionDeps, job: Job, asked: Asked, got: UpstreamResponse): Promise<Response> {
  const { limits } = deps
  const text = await readUpstreamBody(
    got,
    { bytesMax: limits.answerBytesMax, timeoutMs: limits.idleTimeoutMs },
    deps.deadlines,
  )
  const answer = parseAnswer(text, job.plan)
  job.signal.throwIfAborted()
  const usage = answer.tokens ?? { prompt: job.promptEstimate, completion: Math.ceil(answer.textChars / 4) }
  const body = JSON.stringify(answer.body)
  job.seal?.update(utf8(body))
  const receipt = job.seal?.finish(usage)
  asked.lease.release('healthy')
  job.books.noteFirstChunk()
  job.books.close({ outcome: 'completed', tokens: usage, status: 200, errorCode: null })
  const headers = receipt === undefined ? job.headers : { ...job.headers, 'x-strongroom-receipt': receipt }
  return textAnswer(body, 200, headers)
}

async function answerStream(
  deps: CompletionDeps,
  job: Job,
  { lease }: Asked,
  got: UpstreamResponse,
): Promise<Response> {
  const { limits } = deps
  // What a stream keeps, which may be for minutes: not the prompt.
  const { id, promptEstimate, seal, books, signal } = job
  const plan = { ...job.plan, request: { ...job.plan.request, upstreamBody: '' } }
  const estimate = (deliveredCount: number): Usage => ({
    prompt_tokens: promptEstimate,
    completion_tokens: deliveredCount,
    total_tokens: promptEstimate + deliveredCount,
  })
  const onEnd = (end: StreamEnd) => {
    lease.release(end.outcome === 'completed' ? 'healthy' : end.outcome === 'aborted' ? 'unknown' : healthOf(end.error))
    if (end.outcome === 'failed') {
      const reason = end.error instanceof UpstreamFault ? end.error.reason : 'internal'
      deps.log.warn('stream failed', { request: id, upstream: lease.target.name, reason })
    }
    books.close({
      outcome: end.outcome,
      tokens: tokensOf(end.usage ?? estimate(end.deliveredCount)) ?? NO_TOKENS,
      status: end.outcome === 'aborted' ? clientGoneStatus : 200,
      errorCode: end.outcome === 'failed' ? toldOf(end.error).code : null,
    })
  }
  const body = await openStream(got, {
    deadlines: deps.deadlines,
    limits,
    plan,
    estimate,
    seal: bytes => seal?.update(bytes),
    receipt: usage => seal?.finish({ prompt: usage.prompt_tokens, completion: usage.completion_tokens }) ?? null,
    onEnd,
    signal,
  })
  signal.throwIfAborted()
  books.noteFirstChunk()
  const headers = { ...job.headers, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
  return new Response(body, { status: 200, headers })
}

type Failure = {
  readonly error: unknown
  readonly headers: AnswerHeaders
  readonly books: Books
  readonly id: string
  readonly isGone: boolean
}

/**
 * A request that ended before its answer began. The client pays nothing for what failed; one that left after its request had gone
 * to an upstream pays for the prompt.
 */
function concludeFailure(deps: CompletionDeps, failure: Failure): Response {
  const { error, headers, books, id, isGone } = failure
  if (isGone) {
    const tokens = books.upstream === null ? NO_TOKENS : { prompt: books.promptEstimate, completion: 0 }
    books.close({ outcome: 'aborted', tokens, status: clientGoneStatus, errorCode: null })
    return new Response(null, { status: clientGoneStatus, headers })
  }
  const { status, code } = toldOf(error)
  books.close({ outcome: 'failed', tokens: NO_TOKENS, status, errorCode: code })
  if (isOurs(error) && !(error instanceof UpstreamFault)) deps.log.error('request failed', { request: id, error })
  return failureAnswer(error, headers)
}
