// Serves the gateway on its address, by this process alone or by its relays. Effects: a listening socket, or processes
// with one.

import { availableParallelism, totalmem } from 'node:os'
import { gatewayProcessesMax } from '../../contract/vm/workload.ts'
import { unusedPortOf } from '../../http/serve.ts'
import { gatewayHandler } from '../gateway/handler.ts'
import type { RelayGauges } from '../metrics/gateway.ts'
import { type Listening, type ListenOptions, listenWith } from './listen.ts'
import { Relays, type RelaysDeps } from './relays.ts'

export type GatewayListen = Pick<ListenOptions, 'listen' | 'tls' | 'guestName'>

export type GatewayServer = Listening & {
  /** Makes clients reconnect from now on. */
  readonly drain: () => void
  /** Null if this process serves its clients itself. */
  readonly relays: (() => RelayGauges & { readonly pids: readonly number[] }) | null
}

export type ServeDeps = Omit<RelaysDeps, 'count' | keyof GatewayListen>

const coresPerProcess = 4
/** A serving process takes 50 to 60 MB plus its requests. */
const bytesPerProcess = 1_024 * 1_048_576

/**
 * Returns the number of processes. `asked`: the configured number; undefined for one per four cores, as far as memory
 * allows.
 */
export function processCount(
  asked: number | undefined,
  { cores, memoryBytes } = { cores: availableParallelism(), memoryBytes: totalmem() },
): number {
  if (asked !== undefined) return asked
  const wanted = Math.min(Math.floor(cores / coresPerProcess), Math.floor(memoryBytes / bytesPerProcess))
  return Math.max(1, Math.min(wanted, gatewayProcessesMax))
}

/** Starts serving; resolves once it listens. Throws Fault host.unsupported if the address cannot be used. */
export async function serveGateway(deps: ServeDeps, where: GatewayListen): Promise<GatewayServer> {
  const count = processCount(deps.setup.settings.processes)
  if (count === 1) return serveAlone(deps, where)
  // Checked before the address is shared, because sharing would hide that another program uses it.
  const port = unusedPortOf(where.listen)
  const relays = await Relays.start({ ...deps, ...where, count, listen: { ...where.listen, port } })
  return {
    port,
    drain: () => relays.drain(),
    stop: isGraceful => relays.stop(isGraceful),
    relays: () => ({ ...relays.counts, pids: relays.pids }),
  }
}

function serveAlone({ gateway, setup, log }: ServeDeps, where: GatewayListen): GatewayServer {
  let isDraining = false
  const handler = gatewayHandler({ fetch: gateway.fetch, isDraining: () => isDraining }, setup.settings)
  const drain = () => {
    isDraining = true
  }
  const served = listenWith(handler, { ...where, isShared: false, settings: setup.settings, log })
  return { ...served, drain, relays: null }
}
