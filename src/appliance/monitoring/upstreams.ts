// Observes the upstreams of the gateway from this host: a probe each minute, the router's own verdict in the gateway's
// metrics, and the state of the built-in worker. Effects: requests to the upstreams; sleeps.

import { type Clock, pause } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { Collector } from '../../base/prometheus.ts'
import { createDeadlines } from '../../base/work/deadlines.ts'
import { sweepLater } from '../../base/work/sweep.ts'
import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'
import { workerUpstreamName } from '../../config/upstream/kinds.ts'
import { probePath, UpstreamClient } from '../../inference/upstream/client.ts'
import { loadUpstream } from '../../inference/upstream/load-target.ts'
import type { UpstreamTarget } from '../../inference/upstream/target.ts'
import type { ObservedUpstream } from '../../operator/problems/gateway.plan.ts'

export type UpstreamWatchDeps = {
  readonly config: Config
  readonly clock: Clock
  /** Why the built-in worker does not serve; null if it does, or there is none. */
  readonly workerProblem: () => string | null
  readonly collectors: readonly Collector[]
}

export type UpstreamWatch = {
  readonly view: () => ObservedUpstream[]
  /** Probes until the signal is aborted. Never rejects. */
  readonly run: (signal: AbortSignal) => Promise<void>
}

type Failure = Pick<ObservedUpstream, 'problem' | 'isDown' | 'refusal' | 'sinceMs'>

const intervalMs = 60_000
/** The first probes come soon, so that a new host is not called ready for a minute. */
const firstMs = 10_000
const secondTryMs = 5_000
const timeouts = { connectMs: 5_000, firstByteMs: 5_000 } as const
const NO_FAILURE: Failure = { problem: null, isDown: false, sinceMs: null }

export function createUpstreamWatch(deps: UpstreamWatchDeps): UpstreamWatch {
  const { config, clock, collectors, workerProblem } = deps
  if (config.listen.inference === '') return { view: () => [], run: async () => {} }
  const { worker, upstreams } = config.inference
  const targets = upstreams.map(upstream => ({ ...loadUpstream(upstream), keyFile: upstream.key_file }))
  const client = new UpstreamClient({ deadlines: createDeadlines(clock), timeouts })
  const failures = new Map<string, Failure>()
  const probe = (target: Probed, signal: AbortSignal) => probedTwice({ client, clock }, target, signal)
  return {
    view: () => {
      const ejected = ejectedIn(collectors)
      const workers = hasWorker(worker) ? [{ name: workerUpstreamName, models: [worker.model], isWorker: true }] : []
      const all = [...workers, ...targets.map(({ name, models }) => ({ name, models, isWorker: false }))]
      return all.map(upstream => {
        const problem = upstream.isWorker ? workerProblem() : null
        if (problem !== null) return { ...upstream, problem, isDown: true, sinceMs: null }
        const failure = failures.get(upstream.name) ?? NO_FAILURE
        if (failure.isDown || !ejected.has(upstream.name)) return { ...upstream, ...failure }
        // A refusal of the probe is the cause of refused requests.
        const why =
          failure.problem === null ? `${EJECTED}, and its probe fails as well` : `${failure.problem}, and ${EJECTED}`
        return { ...upstream, ...failure, problem: why, isDown: true }
      })
    },
    run: async signal => {
      // The evidence of an attested upstream is requested by the gateway, which alone may connect to it.
      const probed = targets.filter(({ attestation }) => attestation === undefined)
      if (probed.length === 0) return
      const all = async () => {
        await Promise.all(
          probed.map(async target => {
            const failure = await probe(target, signal)
            if (signal.aborted) return
            const sinceMs = failures.get(target.name)?.sinceMs ?? clock.nowMs()
            if (failure === null) failures.delete(target.name)
            else failures.set(target.name, { ...failure, sinceMs })
          }),
        )
      }
      await pause(clock, firstMs, signal)
      if (signal.aborted) return
      await all()
      await sweepLater({ clock, intervalMs, signal }, all)
      client.close()
    },
  }
}

const EJECTED = 'several requests in a row failed'

type Probed = UpstreamTarget & { readonly keyFile: string }
type Probing = { readonly client: Pick<UpstreamClient, 'probe'>; readonly clock: Clock }

/** Returns why the second of two probes failed; null if one succeeded. Never rejects. */
async function probedTwice(
  { client, clock }: Probing,
  target: Probed,
  signal: AbortSignal,
): Promise<Omit<Failure, 'sinceMs'> | null> {
  const first = await probed(client, target, signal)
  if (first === null || signal.aborted) return null
  await pause(clock, secondTryMs, signal)
  return signal.aborted ? null : await probed(client, target, signal)
}

async function probed(client: Probing['client'], target: Probed, signal: AbortSignal) {
  const { url, keyFile } = target
  try {
    const status = await client.probe(target, signal)
    if (status === 200) return null
    if (status === null) return { problem: `it does not answer at ${url}: it closed the connection`, isDown: true }
    // A server without a list of models may serve requests all the same.
    const problem = `it answers GET ${url}${probePath(target)} with ${status}`
    return { problem, isDown: false, refusal: { status, keyFile } }
  } catch (error) {
    return { problem: `it does not answer at ${url}: ${causeOf(error)}`, isDown: true }
  }
}

/** The message of an upstream's failure is for clients; its cause is for the operator. */
function causeOf(error: unknown): string {
  return error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : messageOf(error)
}

/** Names of upstreams that the router of the gateway has ejected; its metrics may come from a hostile VM. */
function ejectedIn(collectors: readonly Collector[]): ReadonlySet<string> {
  const lines = collectors
    .filter(({ workload }) => workload === 'metrics-collector')
    .flatMap(collector => collector.render().split('\n'))
  return new Set(
    lines.flatMap(line => /^strongroom_upstream_healthy\{upstream="([^"\\]{1,64})"\} 0$/.exec(line)?.[1] ?? []),
  )
}
