// The simulated platform, opened once for all who need it. Effects: those of host/simulated-host.ts.

import { openSimulatedHost, type SimulatedHost, type SimulatedHostDeps } from '../host/simulated-host.ts'

/**
 * Opens the platform at the first call, which makes its keys and takes seconds. Calls share one opening: two would
 * make different keys. After a failure the next call tries again.
 */
export function createSimulatedPlatform(deps: SimulatedHostDeps): () => Promise<SimulatedHost> {
  let opened: Promise<SimulatedHost> | null = null
  return () => {
    opened ??= openSimulatedHost(deps).catch(error => {
      opened = null
      throw error
    })
    return opened
  }
}
