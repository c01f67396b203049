// The response to one completion request, once an upstream has begun to respond: whole or as a stream. Effects: reads the upstream's response.

import { utf8 } from '../../base/bytes.ts'
import type { Deadlines } from '../../base/deadlines.ts'
import type { Logger } from '../../base/log.ts'
import { parseCompletion } from '../openai/completion.ts'
import type { CompletionPlan } from '../openai/completion-plan.ts'
import type { ResponseSeal } from '../types.ts'
import type { UpstreamResponse } from '../upstream/connection.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import type { Lease, TargetHealth } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { estimateTokens, type RequestAccount } from './accounting.ts'
import { readUpstreamBody } from './body.ts'
import { jsonTextResponse, publicErrorOf, type ResponseHeaders } from './responses.ts'
import { openStream, type StreamEnd, type StreamLimits } from './stream.ts'

/** One admitted request whose body has been checked. */
export type Job = {
  readonly id: string
  readonly plan: CompletionPlan
  /** Null: no receipt was asked for. */
  readonly seal: ResponseSeal | null
  readonly headers: ResponseHeaders
  readonly account: RequestAccount
  /** Aborted when the client leaves. */
  readonly signal: AbortSignal
}

export type RespondDeps = { readonly deadlines: Deadlines; readonly limits: StreamLimits; readonly log: Logger }

/** The status of a request whose client has left: nobody reads it but logs and metrics. nginx uses the same. */
export const clientGoneStatus = 499

export async function respondWhole(
  { deadlines, limits }: RespondDeps,
  job: Job,
  lease: Lease<UpstreamTarget>,
  upstream: UpstreamResponse,
): Promise<Response> {
  const { plan, seal, account, signal } = job
  const bodyLimits = { bytesMax: limits.responseBytesMax, timeoutMs: limits.idleTimeoutMs }
  const completion = parseCompletion(await readUpstreamBody(upstream, bodyLimits, deadlines), plan)
  await plan.schema?.(completion.contents)
  signal.throwIfAborted()
  const tokens = completion.tokens ?? {
    prompt: account.promptEstimate,
    completion: estimateTokens(completion.textChars),
  }
  const body = JSON.stringify(completion.body)
  seal?.update(utf8(body))
  const receipt = seal?.finish(tokens)
  lease.release('healthy')
  account.noteFirstChunk()
  account.close({ outcome: 'completed', tokens, status: 200, errorCode: null })
  const headers = receipt === undefined ? job.headers : { ...job.headers, 'x-strongroom-receipt': receipt }
  return jsonTextResponse(body, 200, headers)
}

export async function respondStream(
  { deadlines, limits, log }: RespondDeps,
  job: Job,
  lease: Lease<UpstreamTarget>,
  upstream: UpstreamResponse,
): Promise<Response> {
  // `job` holds the prompt, and a stream may last for minutes: `onEnd` must not keep it.
  const { id, seal, account, signal } = job
  const plan = { ...job.plan, request: { ...job.plan.request, upstreamBody: '' } }
  const onEnd = ({ outcome, error, tokens }: StreamEnd) => {
    lease.release(healthAfter({ outcome, error }))
    if (outcome === 'failed') {
      const reason = error instanceof UpstreamFault ? error.reason : 'internal'
      log.warn('stream failed', { request: id, upstream: lease.target.name, reason })
    }
    account.close({
      outcome,
      tokens,
      status: outcome === 'aborted' ? clientGoneStatus : 200,
      errorCode: outcome === 'failed' ? publicErrorOf(error).code : null,
    })
  }
  const { promptEstimate } = account
  const body = await openStream(upstream, { deadlines, limits, plan, promptEstimate, seal, onEnd, signal })
  account.noteFirstChunk()
  const headers = { ...job.headers, 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
  return new Response(body, { status: 200, headers })
}

/** What a request's end says about the upstream that served it. */
export function healthAfter({ outcome, error }: Pick<StreamEnd, 'outcome' | 'error'>): TargetHealth {
  if (outcome === 'completed') return 'healthy'
  if (outcome === 'aborted' || !(error instanceof UpstreamFault)) return 'unknown'
  return error.row.countsAgainstHealth ? 'unhealthy' : 'healthy'
}
