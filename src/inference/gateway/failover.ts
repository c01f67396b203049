// One request, sent to one upstream after the other until one begins to respond. Effects: network.

import type { Clock } from '../../base/clock.ts'
import { type Attempt, openAttempt, type UpstreamClient } from '../upstream/client.ts'
import { UpstreamFault } from '../upstream/fault.ts'
import type { Lease, Router } from '../upstream/router.ts'
import type { UpstreamTarget } from '../upstream/target.ts'
import { healthAfter, type Job, type RespondDeps, respondStream, respondWhole } from './respond.ts'

export type FailoverDeps = RespondDeps & {
  readonly router: Router<UpstreamTarget>
  readonly upstream: UpstreamClient
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** Upstreams that are tried for one request, at most. */
const attemptsMax = 3

/** Rejects with the last upstream's failure, the router's, or the signal's reason. Once the client has received a byte there are no further attempts. */
export async function completeJob(deps: FailoverDeps, job: Job): Promise<Response> {
  const tried = new Set<UpstreamTarget>()
  let lastFault: UpstreamFault | null = null
  while (tried.size < attemptsMax) {
    const lease = await acquireLease(deps, job, tried).catch(error => {
      job.signal.throwIfAborted()
      throw lastFault ?? error
    })
    tried.add(lease.target)
    const attempt = openAttempt()
    job.signal.addEventListener('abort', attempt.abort, { once: true })
    try {
      return await tryUpstream(deps, job, { lease, attempt })
    } catch (error) {
      attempt.abort()
      const isAborted = job.signal.aborted
      lease.release(healthAfter({ outcome: isAborted ? 'aborted' : 'failed', error }))
      job.signal.throwIfAborted()
      if (!(error instanceof UpstreamFault)) throw error
      const upstream = lease.target.name
      deps.log.warn('upstream failed', { request: job.id, upstream, reason: error.reason })
      if (!error.row.retryable) throw error
      lastFault = error
    }
  }
  throw lastFault ?? new UpstreamFault('none_healthy')
}

/** Notes the wait and the upstream in the request's account. */
async function acquireLease(
  { router, clock }: FailoverDeps,
  { plan, account, signal }: Job,
  except: ReadonlySet<UpstreamTarget>,
): Promise<Lease<UpstreamTarget>> {
  const startedMs = clock.monotonicMs()
  const lease = await router.acquire(plan.request.model, { except, signal })
  account.queueMs += clock.monotonicMs() - startedMs
  account.upstream = lease.target.name
  return lease
}

type Target = { readonly lease: Lease<UpstreamTarget>; readonly attempt: Attempt }

async function tryUpstream(deps: FailoverDeps, job: Job, { lease, attempt }: Target): Promise<Response> {
  const { operation, stream, upstreamBody } = job.plan.request
  const response = await deps.upstream.send(lease.target, {
    path: operation === 'chat' ? '/chat/completions' : '/completions',
    body: upstreamBody,
    stream,
    attempt,
  })
  const respond = stream ? respondStream : respondWhole
  return await respond(deps, job, lease, response)
}
