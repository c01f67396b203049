// Service B where the configuration places it: in its own VM, in this process, or nowhere. Effects: in this process a
// listening socket; the rest begins with `start`.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Logger } from '../base/log.ts'
import type { Collector } from '../base/prometheus.ts'
import { listenAddress, localUrl } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import type { GatewayVmSupervisor } from '../enclave-host/gateway-vm-supervisor.ts'
import { databaseFile, usageJournalFile } from '../host/state-files.ts'
import { UsageJournal } from '../inference/metering/journal/journal.ts'
import { Metering } from '../inference/metering/ledger.ts'
import { startLedgerWriter } from '../inference/metering/ledger-writer.ts'
import { createCost } from '../inference/metering/price.ts'
import { createClusterMetrics } from '../inference/metrics/cluster.ts'
import type { TraceCounts } from '../inference/traces/exporter.ts'
import { composeGatewayVm, dismissGatewayVms, type GatewayVmParts } from './gateway-vm.ts'
import { composeInference, type Inference, type InferenceParts, serveInference } from './inference.ts'
import { startListener } from './listening.ts'

export type GatewayParts = Omit<InferenceParts, 'tls'> &
  Omit<GatewayVmParts, 'certificates'> & {
    readonly tls: InferenceParts['tls'] & GatewayVmParts['certificates']
  }

export type PlacedGateway = {
  /** Where clients on this machine reach it; null if it is off. */
  readonly url: string | null
  /** Answers in this process; null if it is off, or in its VM. */
  readonly fetch: Inference['fetch'] | null
  /** The gateway's VMs, or its place without one. */
  readonly vms: GatewayVmSupervisor | 'host' | 'off'
  /** Null if there are no traces. */
  readonly traces: () => TraceCounts | null
  readonly collectors: readonly Collector[]
  /** Why the built-in worker does not serve; null if it does, or there is none. */
  readonly workerProblem: () => string | null
  readonly start: () => void
  readonly stop: () => Promise<void>
}

/** Returns 'off' if no listener is configured. */
export function placementOf({ listen, inference }: Config): 'vm' | 'host' | 'off' {
  return listen.inference === '' ? 'off' : inference.placement
}

/**
 * Composes the gateway where the configuration places it. Faults: config.file, host.unsupported, host.listen_failed,
 * internal.
 */
export async function placeGateway(parts: GatewayParts): Promise<PlacedGateway> {
  const placement = placementOf(parts.config)
  if (placement === 'vm') return inVm(parts)
  const placed = placement === 'host' ? await onHost(parts) : off(parts)
  const start = () => {
    dismissGatewayVms(parts)
    placed.start()
  }
  return { ...placed, start }
}

/**
 * The usage ledger: with a gateway in this process by a thread of its own, without one by this thread, which books what
 * VMs have signed. Faults: config.invalid (prices).
 */
export function composeMetering(
  parts: Pick<InferenceParts, 'config' | 'store' | 'stateDir' | 'clock' | 'log'>,
): Metering {
  const { config, store, stateDir, clock } = parts
  const log = parts.log.unit('metering')
  const deps = { store: store.directory, clock, log, cost: createCost(config.inference.prices) }
  const journalPath = join(stateDir, usageJournalFile)
  const isHere = placementOf(config) === 'host'
  // A daemon whose gateway was in its own process may have left rows.
  const journal = isHere || existsSync(journalPath) ? openJournal(journalPath, log) : null
  if (!isHere) return new Metering({ ...deps, ...(journal === null ? {} : { journal }) })
  const path = join(stateDir, databaseFile)
  const writer = startLedgerWriter({ path, journal: journal?.path ?? null, clock, log })
  return new Metering({ ...deps, writer, ...(journal === null ? {} : { journal }) })
}

/** Null if the file cannot be used; a kill then loses the usage of the last 100 ms. */
function openJournal(path: string, log: Logger): UsageJournal | null {
  try {
    return new UsageJournal(path)
  } catch (error) {
    const text = 'cannot use the usage journal; until the next start a kill loses the usage of the last 100 ms'
    log.error(text, { path, error })
    return null
  }
}

/** VMs and instances have metrics without a gateway too. */
function off({ store, capacity }: Pick<GatewayParts, 'store' | 'capacity'>): PlacedGateway {
  return {
    ...{ url: null, fetch: null, vms: 'off', traces: () => null },
    collectors: [createClusterMetrics({ store, capacity })],
    workerProblem: () => null,
    start: () => {},
    stop: async () => {},
  }
}

/** The firewall leads the address of `listen.inference` to the VM. */
function inVm(parts: GatewayParts): PlacedGateway {
  const { config, tls } = parts
  const { supervisor, traces, collectors, start, stop } = composeGatewayVm({
    ...parts,
    certificates: {
      certify: (csr, options) => tls.certify(csr, options),
      stamp: () => tls.stamp(),
      onChange: listener => tls.onChange(listener),
    },
  })
  const url = localUrl(config.listen.inference, listenAddress(config.listen.inference).port)
  return {
    ...{ url, fetch: null, vms: supervisor, traces: () => traces?.counts() ?? null, collectors, start, stop },
    workerProblem: () => workerProblemIn(supervisor),
  }
}

/** The problem of a gateway VM that serves is that of its worker, if it begins with these words. */
function workerProblemIn(supervisor: Pick<GatewayVmSupervisor, 'view'>): string | null {
  const serving = supervisor.view().gatewayVms.find(({ state }) => state === 'serving')
  return serving?.problem?.startsWith('the worker') === true ? serving.problem : null
}

async function onHost(parts: GatewayParts): Promise<PlacedGateway> {
  const { config } = parts
  const inference = await composeInference(parts)
  const server = await startListener('inference', config.listen, () => serveInference(inference, parts))
  return {
    url: localUrl(config.listen.inference, server.port),
    fetch: inference.fetch,
    vms: 'host',
    traces: () => inference.traces?.counts() ?? null,
    collectors: inference.collectors,
    workerProblem: inference.workerProblem,
    start: inference.start,
    stop: async () => {
      await server.stop(true)
      await inference.stop()
    },
  }
}
