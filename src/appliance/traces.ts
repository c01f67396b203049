// Composes the exporter of the gateway's spans to the operator's OTLP receiver. Effects: reads files; the rest begins
// with `start`.

import type { Runtime } from '../base/runtime.ts'
import { hasWorker } from '../config/checks/worker.ts'
import type { Config } from '../config/schema.ts'
import { workerUpstreamName } from '../config/upstream/kinds.ts'
import { openCollector } from '../inference/traces/collector.ts'
import { TraceExporter } from '../inference/traces/exporter.ts'
import type { OtlpNames, TracedUpstream } from '../inference/traces/otlp.codec.ts'
import { endpointOf, type UpstreamTarget } from '../inference/upstream/target.ts'

export type TracesParts = Runtime & {
  readonly config: Pick<Config, 'inference'>
  readonly upstreams: readonly UpstreamTarget[]
}

/** Null if there are no traces. Fault config.file: a file that the configuration names. */
export function composeTraces({ config, upstreams, clock, random, log }: TracesParts): TraceExporter | null {
  const { traces } = config.inference
  if (traces.endpoint === '') return null
  return new TraceExporter({
    deliver: openCollector(traces, clock),
    names: namesOf(config, upstreams),
    queueMax: traces.queue_max,
    batchMax: traces.batch_max,
    intervalMs: traces.interval_ms,
    timeoutMs: traces.timeout_ms,
    clock,
    random,
    log,
  })
}

/** Model name of a request that names no model of the catalog (metering/account.ts). */
const noModel = 'unknown'

function namesOf({ inference: { worker } }: TracesParts['config'], targets: readonly UpstreamTarget[]): OtlpNames {
  const builtIn: [string, TracedUpstream][] = hasWorker(worker)
    ? [[workerUpstreamName, { engine: 'llama-server', server: null }]]
    : []
  return {
    models: new Set([
      noModel,
      ...targets.flatMap(target => target.models),
      ...(hasWorker(worker) ? [worker.model] : []),
    ]),
    upstreams: new Map([...targets.map(target => [target.name, tracedUpstream(target)] as const), ...builtIn]),
  }
}

function tracedUpstream(target: UpstreamTarget): TracedUpstream {
  const { address } = endpointOf(target)
  return {
    engine: target.engine,
    server: 'unix' in address ? null : { address: address.hostname, port: address.port },
  }
}
