// Gives the interface its addresses. Effects: `ip`, resolv.conf, a record below /run for the agent's successor.

import * as fs from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { Fault, wrapFault } from '../base/fault.ts'
import { matches } from '../contract/check.ts'
import { Network } from '../contract/vm/network.ts'
import type { run } from '../linux/command.ts'
import { type Owner, readTextOrNull, writeFileAtomic } from '../linux/files.ts'
import { networkProblem, planNetwork, resolvConf, sameNetwork } from './network.plan.ts'
import type { GuestPaths } from './paths.ts'
import { jsonOf, ok, type Refusal, refuse } from './wire.codec.ts'

export type Networking = {
  /**
   * Idempotent; a claimed guest refuses other addresses. Faults: internal, host.command_failed, host.command_timeout.
   */
  readonly apply: (network: Network, state: { claimed: boolean }) => Promise<{ ok: true } | Refusal>
}

type NetworkDeps = {
  readonly paths: Pick<GuestPaths, 'interfaces' | 'networkRecord' | 'resolvConf'>
  readonly owner: Owner
  readonly clock: Clock
  readonly run: typeof run
  /** The driver may still be loading when the host sends the request. */
  readonly interfaceWaitMs: number
}

export function createNetworking({ paths, owner, clock, run, interfaceWaitMs }: NetworkDeps): Networking {
  return {
    apply: async (network, { claimed }) => {
      const problem = networkProblem(network)
      if (problem !== null) return refuse('bad_request', problem)
      const current = recordedNetwork(paths)
      if (current !== null && sameNetwork(current, network)) return ok
      if (claimed) return refuse('claimed', 'network: the addresses of a claimed guest do not change')
      fs.rmSync(paths.networkRecord, { force: true }) // until all commands have run, no addresses are in force
      const device = await findInterface({ paths, clock, interfaceWaitMs })
      for (const argv of planNetwork(network, device)) await run(argv, ipBounds)
      writeFileAtomic(paths.resolvConf, resolvConf(network), { mode: 0o644, owner })
      writeFileAtomic(paths.networkRecord, JSON.stringify(network), { mode: 0o600, owner })
      return ok
    },
  }
}

/** The network in force; null before the first, and after a failed change. */
export function recordedNetwork(paths: Pick<GuestPaths, 'networkRecord'>): Network | null {
  const record = jsonOf(readTextOrNull(paths.networkRecord) ?? 'null')
  return matches(Network, record) ? record : null
}

const ipBounds = { timeoutMs: 10_000, outputBytesMax: 65_536 } as const
const pollMs = 20

/** The only interface with a device. Fault host.unsupported: none in time, or several. */
async function findInterface(deps: Pick<NetworkDeps, 'paths' | 'clock' | 'interfaceWaitMs'>): Promise<string> {
  const untilMs = deps.clock.monotonicMs() + deps.interfaceWaitMs
  for (;;) {
    const names = listInterfaces(deps.paths.interfaces)
    const [name] = names
    if (name !== undefined && names.length === 1) return name
    if (names.length > 1) throw new Fault('host.unsupported', `network: more than one interface: ${names.join(', ')}`)
    if (deps.clock.monotonicMs() >= untilMs) throw new Fault('host.unsupported', 'network: no interface')
    await deps.clock.sleep(pollMs)
  }
}

function listInterfaces(dir: string): string[] {
  try {
    return fs.readdirSync(dir).filter(name => fs.existsSync(`${dir}/${name}/device`))
  } catch (error) {
    throw wrapFault(error, 'list network interfaces')
  }
}
