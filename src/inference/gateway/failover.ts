// Sends one request to one upstream after the other until one begins to respond. Effects: network.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { resultOr } from '../../base/result-or.ts'
import type { TickBatch } from '../../base/work/tick-batch.ts'
import type { Engine } from '../../config/upstream/kinds.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import type { BodyLimits } from '../../http/body.ts'
import { BusyFault, UpstreamFault } from '../failure.ts'
import { invalidField } from '../json-text.ts'
import { withoutLabelFields } from '../metering/labels.ts'
import { constraintProblem } from '../openai/engines/constraints.ts'
import { TEXT_ONLY, unmetNeed } from '../openai/messages.ts'
import type { GatewayRequest } from '../openai/request.ts'
import { upstreamBody } from '../openai/upstream-body.ts'
import { type UsageBounds, usageBounds } from '../openai/usage.ts'
import { refusalIn } from '../refusal.ts'
import type { Tokens } from '../types.ts'
import { type Attempt, openAttempt, type UpstreamClient } from '../upstream/client.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import type { Owner } from '../upstream/fair-share.ts'
import { type QueuePlace, queueHeader, stepped } from '../upstream/queue.ts'
import type { Lease } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { readUpstreamBody } from './body.ts'
import { healthAfter, type PreparedRequest, type RespondDeps, respondStream, respondWhole } from './respond.ts'
import { publicErrorOf, type ResponseHeaders } from './responses.ts'
import { pingEveryMs } from './streams/early-head.ts'

export type FailoverDeps = RespondDeps & {
  readonly router: {
    readonly acquire: Acquire
    /** See the router. `id`: id of the request. */
    readonly place: (id: string) => QueuePlace | null | Promise<QueuePlace | null>
  }
  readonly upstreams: readonly UpstreamTarget[]
  readonly cacheSalt: CacheSalt
  readonly upstream: UpstreamClient
  /** Complete responses wait here for others of the same turn of the event loop. */
  readonly responseBatch: TickBatch
  readonly clock: Pick<Clock, 'monotonicMs'>
  /** `refusesUnknownFields`: refuses fields that an upstream does not get, instead of leaving them out. */
  readonly limits: Pick<GatewaySettings, 'queueTimeoutMs' | 'refusesUnknownFields'>
}

/**
 * Returns the salt of an upstream's prompt cache, so that response times reveal prompts only to a client that has the
 * key and the salt of the client that sent them. `ofClient`: the `cache_salt` of a request; null if it has none.
 * `owner`: as `cacheOwnerOf` (earlier-items.ts) returns it.
 */
export type CacheSalt = (owner: string, ofClient: string | null) => string

/** See the router. The request has an id, because the router may be in another process. */
export type Acquire = (
  model: string,
  wanted: {
    readonly id: string
    readonly promptEstimate: number
    readonly except: ReadonlySet<UpstreamTarget>
    readonly signal: AbortSignal
    readonly owner: Owner
  },
) => Lease<UpstreamTarget> | Promise<Lease<UpstreamTarget>>

/** Maximum number of upstreams that are tried for one request. */
const attemptsMax = 3

/** Runs `withFailover`. Throws Fault invalid_request if no upstream of the model accepts the request. */
export function sendWithFailover(deps: FailoverDeps, job: PreparedRequest): Promise<Response> {
  const { id, plan, account, signal } = job
  return withFailover(deps, {
    id,
    account,
    signal,
    model: plan.request.model,
    except: incompatibleUpstreams(deps, job),
    bounds: ({ contextTokens }) => usageBounds(plan.request, { bodyBytes: account.bodyBytes, contextTokens }),
    ask: asked => tryUpstream(deps, job, asked),
    onQueued: except => waitInQueue(deps, job, except),
  })
}

/**
 * Sends the head of a stream while the request waits for an upstream, after the longest silence that clients accept.
 * Not earlier, because until then errors keep their status, and not if another model may still answer. The head names
 * the ignored fields only if all these upstreams have the same engine, because engines accept different fields.
 */
function waitInQueue(deps: FailoverDeps, job: PreparedRequest, except: ReadonlySet<UpstreamTarget>): void {
  const { id, plan, early, mayFallBack } = job
  const all = deps.upstreams.filter(target => target.models.includes(plan.request.model) && !except.has(target))
  const [first] = all
  if (!plan.request.stream || mayFallBack || first === undefined || deps.limits.queueTimeoutMs <= pingEveryMs) return
  const isOneEngine = all.every(({ engine }) => engine === first.engine)
  const headers = () =>
    isOneEngine ? resultOr(() => preparedFor(deps, job, first.engine).headers, job.headers) : job.headers
  early.wait({ plan, headers, place: () => deps.router.place(id) }, pingEveryMs)
}

/** One request of any API that is tried on upstreams in turn. */
export type FailoverRequest = Pick<PreparedRequest, 'id' | 'account' | 'signal'> & {
  readonly model: string
  /** Upstreams to skip. */
  readonly except: ReadonlySet<UpstreamTarget>
  /** Returns the request's maximum usage on such an upstream. */
  readonly bounds: (target: Pick<UpstreamTarget, 'contextTokens'>) => UsageBounds
  readonly ask: (asked: UpstreamAttempt) => Promise<Response> | UpstreamCall
  /** Called when the request begins to wait for an upstream other than these. */
  readonly onQueued?: (except: ReadonlySet<UpstreamTarget>) => void
}

/** Rejects with the last upstream's failure, the router's, or the signal's reason. No retry after the first byte. */
export async function withFailover(deps: FailoverDeps, job: FailoverRequest): Promise<Response> {
  let { except } = job
  if (job.account.hasBudget) await job.account.reserve(worstCase(deps, job))
  let lastFault: UpstreamFault | BusyFault | null = null
  for (let attempts = 0; attempts < attemptsMax; attempts += 1) {
    let lease: Lease<UpstreamTarget>
    try {
      const taken = acquireLease(deps, job, except)
      if (taken instanceof Promise) job.onQueued?.(except)
      lease = taken instanceof Promise ? await taken : taken
    } catch (error) {
      job.signal.throwIfAborted()
      throw lastFault ?? error
    }
    const attempt = openAttempt()
    const traceparent = job.account.trace?.beginAttempt(lease.target.name) ?? null
    // Without `once`, because that option takes longer to process than the rest, and an abort occurs only once.
    job.signal.addEventListener('abort', attempt.abort)
    try {
      const call = job.ask({ lease, attempt, traceparent })
      if (call instanceof Promise) return await call
      const upstream = await call.sent
      const batchEnd = deps.responseBatch()
      if (batchEnd !== null) await batchEnd
      const response = call.respond(upstream)
      return response instanceof Promise ? await response : response
    } catch (error) {
      attempt.abort()
      const isAborted = job.signal.aborted
      lease.release(healthAfter({ outcome: isAborted ? 'aborted' : 'failed', error }))
      job.account.trace?.endAttempt(isAborted ? 'aborted' : reasonOf(error))
      job.signal.throwIfAborted()
      const refusal = refusalIn(error)
      const where = { request: job.id, upstream: lease.target.name }
      if (refusal !== null) deps.log.warn('upstream refused', { ...where, ...refusal })
      if (!(error instanceof UpstreamFault || error instanceof BusyFault)) throw error
      const reason = reasonOf(error)
      deps.log.warn('upstream failed', { ...where, reason })
      if (error instanceof UpstreamFault && !error.row.retryable) throw error
      lastFault = error
      except = new Set(except).add(lease.target)
    }
  }
  throw lastFault ?? new UpstreamFault('none_healthy')
}

/** Returns the request's maximum cost over all upstreams that may serve it. */
function worstCase({ upstreams }: FailoverDeps, { model, bounds }: FailoverRequest): Tokens {
  const all = upstreams.filter(target => target.models.includes(model)).map(bounds)
  return {
    prompt: Math.max(0, ...all.map(item => item.promptTokensMax)),
    completion: Math.max(0, ...all.map(item => item.completionTokensMax)),
  }
}

/** Records the wait and the upstream in the request's account. */
function acquireLease(
  { router, clock }: FailoverDeps,
  { id, model, account, signal }: FailoverRequest,
  except: ReadonlySet<UpstreamTarget>,
): Lease<UpstreamTarget> | Promise<Lease<UpstreamTarget>> {
  const { promptEstimate, owner } = account
  const lease = router.acquire(model, { id, promptEstimate, except, signal, owner })
  if (!(lease instanceof Promise)) {
    account.upstream = lease.target.name
    return lease
  }
  const startedMs = clock.monotonicMs()
  return lease.then(later => {
    account.queueMs += clock.monotonicMs() - startedMs
    account.upstream = later.target.name
    return later
  })
}

/** Returns the reason as a code. */
function reasonOf(error: unknown): string {
  if (error instanceof UpstreamFault) return error.reason
  return error instanceof BusyFault ? 'busy' : publicErrorOf(error).code
}

/** A request on its way to an upstream. `respond`: called with the head, together with those of the same turn. */
type UpstreamCall = {
  readonly sent: Promise<UpstreamResponse>
  readonly respond: (upstream: UpstreamResponse) => Response | Promise<Response>
}

export type UpstreamAttempt = {
  readonly lease: Lease<UpstreamTarget>
  readonly attempt: Attempt
  /** Null if none is sent to the upstream. */
  readonly traceparent: string | null
}

/** Sends to one upstream. Not async for a response that is whole, because `withFailover` waits for the upstream. */
function tryUpstream(
  deps: FailoverDeps,
  job: PreparedRequest,
  { lease, attempt, traceparent }: UpstreamAttempt,
): Promise<Response> | UpstreamCall {
  const { plan, values } = job
  const { request } = plan
  const { text, headers } = preparedFor(deps, job, lease.target.engine)
  const merged = headers === job.headers ? job : { ...job, headers }
  const send = (onSent: (() => void) | null) =>
    deps.upstream.send(lease.target, {
      path: request.operation === 'chat' ? '/chat/completions' : '/completions',
      body: values?.putBack(text) ?? text,
      stream: request.stream,
      traceparent,
      attempt,
      onSent,
    })
  if (request.stream) {
    const waiting = { plan, headers: () => headers, place: () => placeIn(deps, lease) }
    return relayStream(deps, merged, lease, () => send(() => job.early.wait(waiting)))
  }
  const respond = (upstream: UpstreamResponse) => {
    const body = readUpstreamBody(upstream, wholeLimits(deps), deps.deadlines)
    return typeof body === 'string'
      ? respondWhole(merged, lease, body)
      : body.then(whole => respondWhole(merged, lease, whole))
  }
  return { sent: send(null), respond }
}

async function relayStream(
  deps: FailoverDeps,
  job: PreparedRequest,
  lease: Lease<UpstreamTarget>,
  send: () => Promise<UpstreamResponse>,
): Promise<Response> {
  try {
    return await respondStream(deps, job, lease, await send())
  } catch (error) {
    job.early.retry()
    throw error
  }
}

/** Returns the request for an engine of this kind, and the headers of its response. */
function preparedFor(
  deps: FailoverDeps,
  job: PreparedRequest,
  engine: Engine,
): { text: string; headers: ResponseHeaders } {
  const { plan, source, cacheSalt, account } = job
  const { text, ignored, changes } = upstreamBody({ request: plan.request, source }, { engine, cacheSalt })
  const names = {
    ignored: droppedFields(job, ignored),
    changes: changes.length === 0 ? source.changes : [...source.changes, ...changes],
  }
  const more = ignoredHeaders(deps, account, names)
  const waited = waitedHeaders(account)
  return { text, headers: more === null && waited === null ? job.headers : { ...job.headers, ...more, ...waited } }
}

/** Returns the header with the time in the gateway's queue; null for less than a second. */
export function waitedHeaders({ queueMs }: Pick<PreparedRequest['account'], 'queueMs'>): ResponseHeaders | null {
  return queueMs < 1_000 ? null : { [queueHeader]: `waited=${stepped(queueMs / 1_000)}` }
}

/** Returns an upper bound of the place in the engine's own queue; null if nothing waits there. */
async function placeIn({ upstream }: FailoverDeps, lease: Lease<UpstreamTarget>): Promise<QueuePlace | null> {
  const position = (await upstream.waiting(lease.target)) ?? 0
  return position === 0 ? null : { position, waitMs: position * lease.paceMs }
}

function wholeLimits({ limits }: Pick<FailoverDeps, 'limits'>): BodyLimits {
  return { bytesMax: limits.responseBytesMax, timeoutMs: limits.idleTimeoutMs }
}

/** Returns the fields dropped by the translation, by the check, and for the upstream. */
function droppedFields(
  { ignored, plan, account: { labels } }: PreparedRequest,
  byUpstream: readonly string[],
): readonly string[] {
  const rest = withoutLabelFields(byUpstream, labels.tags)
  if (ignored.length === 0 && plan.request.ignored.length === 0) return rest
  // In the Messages API, `metadata` contains the user.
  return [...withoutLabelFields(ignored, labels.endUser), ...plan.request.ignored, ...rest]
}

/** Names the fields of a request that were not sent to the upstream. */
const ignoredHeader = 'x-strongroom-ignored'
/** No share: limits one response. */
const ignoredNamesMax = 32

/**
 * Returns the header that lists the dropped fields of a request, of any API; null if there are none. Fault
 * invalid_request if the gateway refuses such requests. `changes`: names of lossless changes, for which no request is
 * refused. The field that chose the budget of an end user had its effect.
 */
export function ignoredHeaders(
  { limits }: { readonly limits: Pick<GatewaySettings, 'refusesUnknownFields'> },
  { countsEndUser, endUser }: Pick<PreparedRequest['account'], 'countsEndUser' | 'endUser'>,
  { changes, ignored: dropped }: { readonly ignored: readonly string[]; readonly changes: readonly string[] },
): ResponseHeaders | null {
  if (dropped.length === 0 && changes.length === 0) return null
  const ignored = dropped.filter(name => !countsEndUser || name !== endUser?.field)
  const [first] = ignored
  if (first !== undefined && limits.refusesUnknownFields) throw invalidField(first, 'has no effect here; leave it out.')
  const named = [...changes, ...ignored]
  return named.length === 0 ? null : { [ignoredHeader]: headerList(named) }
}

/** Formats the names. Shows a name as `?` if a header cannot contain it, because clients choose the names. */
function headerList(names: readonly string[]): string {
  const shown = names.slice(0, ignoredNamesMax).map(name => (/^[\w.-]{1,64}$/.test(name) ? name : '?'))
  return [...shown, ...(names.length > ignoredNamesMax ? ['...'] : [])].join(', ')
}

export const NO_UPSTREAMS: ReadonlySet<UpstreamTarget> = new Set()

/**
 * Returns the targets of the model whose configuration does not allow the request. Throws Fault invalid_request if that
 * is all of them.
 */
function incompatibleUpstreams(
  { upstreams }: FailoverDeps,
  { plan: { request } }: PreparedRequest,
): ReadonlySet<UpstreamTarget> {
  if (request.needs === TEXT_ONLY && request.choiceCount === 1 && request.constraint === null) return NO_UPSTREAMS
  const unfit = new Set<UpstreamTarget>()
  const serving = upstreams.filter(target => target.models.includes(request.model))
  let fault: Fault | null = null
  for (const target of serving) {
    const problem = unsupportedReason(request, target)
    if (problem === null) continue
    unfit.add(target)
    fault ??= problem
  }
  if (fault !== null && unfit.size === serving.length) throw fault
  return unfit
}

function unsupportedReason({ choiceCount, needs, constraint }: GatewayRequest, target: UpstreamTarget): Fault | null {
  const problem = constraint === null ? null : constraintProblem(constraint, target.engine)
  if (constraint !== null && problem !== null) return invalidField(constraint.field, problem)
  if (choiceCount > target.choicesMax) {
    return invalidField('n', `is ${choiceCount}; this model returns at most ${target.choicesMax} choices per request.`)
  }
  const unmet = unmetNeed(needs, target)
  return unmet === null ? null : new Fault('invalid_request', unmet, { param: 'messages' })
}
