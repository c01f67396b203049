// The response to one completion request, whole or as a stream, once an upstream has begun to respond. Effects: reads
// the upstream's response.

import { utf8 } from '../../base/bytes.ts'
import type { Logger } from '../../base/log.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { nanoUsdText } from '../../contract/http/usd.ts'
import type { TokensSource } from '../../store/directory/usage/usage.table.ts'
import { UpstreamFault } from '../failure.ts'
import type { RequestAccount } from '../metering/account.ts'
import { type Completion, parseCompletion, type TokenCounts } from '../openai/completion.ts'
import type { CompletionPlan } from '../openai/completion-plan.ts'
import type { CutValues } from '../openai/cut-source.ts'
import type { RequestSource } from '../openai/request.ts'
import { hasCacheOfItsOwn } from '../openai/upstream-body.ts'
import { usageBounds } from '../openai/usage.ts'
import { refusalIn } from '../refusal.ts'
import type { BegunSeal, ResponseSeal, Tokens } from '../types.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import type { Lease, TargetHealth } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { jsonTextResponse, publicErrorOf, type ResponseHeaders, streamResponse } from './responses.ts'
import type { EarlyHead } from './streams/early-head.ts'
import { openStream, type StreamEnd, type StreamLimits } from './streams/stream.ts'

/** One admitted request whose body has been checked. */
export type PreparedRequest = {
  readonly id: string
  readonly plan: CompletionPlan
  /** Source of the upstream's request: the client's own body or its translation. */
  readonly source: RequestSource
  /** Long values of the source; null if the source is complete. */
  readonly values: CutValues | null
  /** Names of parts that the translation has left out. */
  readonly ignored: readonly string[]
  readonly cacheSalt: () => string
  /** Null if no receipt was requested. */
  readonly seal: BegunSeal | null
  readonly headers: ResponseHeaders
  readonly account: RequestAccount
  /** Whether the response is encrypted before it is sent. */
  readonly isEncrypted: boolean
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
  /** Unused if the response is not a stream. */
  readonly early: EarlyHead
  /** Whether another model answers if none of this model's upstreams does. */
  readonly mayFallBack: boolean
}

export type RespondDeps = { readonly deadlines: Deadlines; readonly limits: StreamLimits; readonly log: Logger }

/** Requests the cost of a response that is not a stream, with the value `1`. */
export const costHeader = 'x-strongroom-cost'
/** US dollars, exact, as a decimal. */
export const costUsdHeader = 'x-strongroom-cost-usd'

/** Status for logs and metrics of a request whose client has left, as in nginx. */
export const clientGoneStatus = 499

/**
 * Responds with the upstream's complete body `text`. Returns a promise if it must wait for a check, a signature or the
 * ledger.
 */
export function respondWhole(
  job: PreparedRequest,
  lease: Lease<UpstreamTarget>,
  text: string,
): Response | Promise<Response> {
  const { plan } = job
  const completion = parseCompletion(text, plan, countsOf(job, lease.target))
  if (plan.schema === null) return respondChecked(job, lease, completion)
  return plan.schema(completion.contents).then(
    () => respondChecked(job, lease, completion),
    error => {
      throw chargedFor(error, completion)
    },
  )
}

function respondChecked(
  { plan, seal: begin, headers, account, signal }: PreparedRequest,
  lease: Lease<UpstreamTarget>,
  completion: Completion,
): Response | Promise<Response> {
  const { tokens, tokensSource } = completion
  let body: string
  try {
    body = plan.dialect?.whole(completion.body, completion.usage) ?? JSON.stringify(completion.body)
  } catch (error) {
    throw chargedFor(error, completion)
  }
  signal.throwIfAborted()
  const seal = begin?.(lease.target.name) ?? null
  seal?.update(utf8(body))
  if (account.trace !== null) account.trace.finishReasons = completion.finishReasons
  return sendWhole({ headers, account }, lease, { seal, body, tokens, tokensSource })
}

function chargedFor(error: unknown, { tokens }: Pick<Completion, 'tokens'>): unknown {
  return error instanceof UpstreamFault ? error.charged(tokens) : error
}

export type SealedJob = Pick<PreparedRequest, 'seal' | 'headers' | 'account'>

type WholeBody = {
  /** The seal that has hashed the body. */
  readonly seal: ResponseSeal | null
  readonly body: string
  readonly tokens: Tokens
  readonly tokensSource: TokensSource
}

/**
 * Ends a request whose response is complete: its row is in the ledger before the client has the response. Returns a
 * promise if it must wait for a signature or the ledger.
 */
export function sendWhole(
  job: Pick<SealedJob, 'headers' | 'account'>,
  lease: Lease<UpstreamTarget>,
  whole: WholeBody,
): Response | Promise<Response> {
  lease.release('healthy')
  job.account.noteFirstChunk()
  const { seal, tokens } = whole
  return seal === null
    ? closeWhole(job, whole, null)
    : seal.finish(tokens).then(receipt => closeWhole(job, whole, receipt))
}

function closeWhole(
  { headers, account }: Pick<SealedJob, 'headers' | 'account'>,
  { body, tokens, tokensSource }: WholeBody,
  receipt: string | null,
): Response | Promise<Response> {
  const kept = account.close({ outcome: 'completed', tokens, tokensSource, status: 200, errorCode: null })
  const respond = () => jsonTextResponse(body, 200, wholeHeaders(headers, receipt, account.costNanoUsd))
  return kept instanceof Promise ? kept.then(respond) : respond()
}

function wholeHeaders(headers: ResponseHeaders, receipt: string | null, costNanoUsd: string | null): ResponseHeaders {
  if (receipt === null && costNanoUsd === null) return headers
  return {
    ...headers,
    ...(receipt === null ? {} : { 'x-strongroom-receipt': receipt }),
    ...(costNanoUsd === null ? {} : { [costUsdHeader]: nanoUsdText(BigInt(costNanoUsd)) }),
  }
}

export async function respondStream(
  { deadlines, limits, log }: RespondDeps,
  job: PreparedRequest,
  lease: Lease<UpstreamTarget>,
  upstream: UpstreamResponse,
): Promise<Response> {
  // `job` holds the prompt, and a stream may last for minutes: `onEnd` must not keep it.
  const { id, plan, account, isEncrypted, signal, early } = job
  const seal = job.seal?.(lease.target.name) ?? null
  const onEnd = async ({ outcome, error, tokens, tokensSource, finishReasons, signed }: StreamEnd) => {
    lease.release(healthAfter({ outcome, error }))
    if (account.trace !== null) account.trace.finishReasons = finishReasons()
    if (outcome === 'failed') {
      const reason = error instanceof UpstreamFault ? error.reason : (refusalIn(error)?.reason ?? 'internal')
      log.warn('stream failed', { request: id, upstream: lease.target.name, reason })
      account.trace?.endAttempt(reason)
    }
    await signed?.catch(error => log.error('the receipt of a stream is not signed', { request: id, error }))
    await account.close({
      outcome,
      tokens,
      tokensSource,
      status: outcome === 'aborted' ? clientGoneStatus : 200,
      errorCode: outcome === 'failed' ? publicErrorOf(error).code : null,
    })
  }
  const counts = countsOf(job, lease.target)
  const readBy = isEncrypted ? 'reader' : 'server'
  const { body, countDelivered } = await openStream(upstream, {
    deadlines,
    limits,
    plan,
    counts,
    seal,
    onEnd,
    signal,
    readBy,
    early,
  })
  account.countDelivered = countDelivered
  account.noteFirstChunk()
  // Once the head is sent, this response is not read.
  return streamResponse(body, job.headers)
}

function countsOf({ plan, account }: PreparedRequest, { contextTokens, engine }: UpstreamTarget): TokenCounts {
  const { bodyBytes, promptEstimate } = account
  return {
    bounds: usageBounds(plan.request, { bodyBytes, contextTokens }),
    promptEstimate,
    showsCached: hasCacheOfItsOwn(engine),
  }
}

/** Returns the upstream's health as shown by the end of a request. */
export function healthAfter({ outcome, error }: Pick<StreamEnd, 'outcome' | 'error'>): TargetHealth {
  if (outcome === 'completed') return 'healthy'
  if (outcome === 'aborted' || !(error instanceof UpstreamFault)) return 'unknown'
  return error.row.countsAgainstHealth ? 'unhealthy' : 'healthy'
}
