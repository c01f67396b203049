// Sends packets through all firewalls of this host and finds those that do not come through. Effects: a tap, its
// addresses and routes, a table of nftables while it looks, packets that end in this host; runs ip(8), tc(8), nft(8).

import { writeSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import { Fault, messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Config } from '../../config/schema.ts'
import { checked } from '../../contract/check.ts'
import { parseCounters } from '../../host/network/nft.ts'
import { configureTap, openTap, type Tap, tapMac } from '../../host/network/tap.ts'
import { run } from '../../linux/command.ts'
import { probeFrame } from './frame.codec.ts'
import {
  addressIn,
  counterName,
  type Ends,
  type EndsOf,
  type Family,
  type Need,
  neededPackets,
  observerText,
  PROBES,
  probeAddress,
  probesOf,
  probeTapOf,
  uplinkBatch,
} from './probe.plan.ts'

export type ProbeLook = {
  readonly dropped: readonly Need[]
  /** Why nothing, or not everything, is known. Null: all is. */
  readonly unknown: string | null
}

export type ForwardProbeOptions = {
  readonly config: Config
  readonly who: keyof typeof PROBES
  readonly random: RandomBytes
  readonly timeoutMs: number
}

const outputBytesMax = 1_048_576
const nothingSent = 'nothing was tested: network.probe_peers is empty, or this host has no route to these'

/** One look at a time. */
export class ForwardProbe {
  readonly #options: ForwardProbeOptions
  readonly #name: string
  #tap: Tap | null = null

  constructor(options: ForwardProbeOptions) {
    this.#options = options
    this.#name = probeTapOf(options.who, options.config.network.tap_prefix)
  }

  /** Packets that do not pass now. Where any does not, all are sent once more through a new tap. Never rejects. */
  async look(): Promise<ProbeLook> {
    const first = await this.#send().catch(unknownFor)
    if (first.unknown === null && first.dropped.length === 0) return first
    this.close()
    return await this.#send().catch(unknownFor)
  }

  /** Removes the tap. */
  close(): void {
    this.#tap?.close()
    this.#tap = null
  }

  async #send(): Promise<ProbeLook> {
    const { config, timeoutMs } = this.#options
    const bounds = { timeoutMs, outputBytesMax }
    const endsOf = { ipv4: await this.#ends('ipv4'), ipv6: await this.#ends('ipv6') }
    const probes = probesOf(neededPackets(config), endsOf, this.#random)
    if (probes.length === 0) return { dropped: [], unknown: nothingSent }
    const tap = await this.#opened(endsOf)
    await run(['tc', '-batch', '-'], { stdin: uplinkBatch(this.#name, endsOf), ...bounds })
    await run(['nft', '--file', '-'], { stdin: observerText(this.#name, probes, endsOf), ...bounds })
    try {
      for (const probe of probes) writeSync(tap.fd, probeFrame(probe, tapMac))
      const list = ['nft', '--json', 'list', 'counters', 'table', 'inet', this.#name]
      const { counters } = parseCounters((await run(list, bounds)).stdout)
      if (counters.size < probes.length) throw new Fault('host.command_failed', `nft: table ${this.#name} has vanished`)
      return { dropped: probes.filter((_, index) => counters.get(counterName(index))?.packets === 0), unknown: null }
    } finally {
      await run(['nft', 'delete', 'table', 'inet', this.#name], bounds).catch(() => {})
    }
  }

  readonly #random = (): number => Buffer.from(this.#options.random(4)).readUInt32BE()

  async #opened(endsOf: EndsOf): Promise<Tap> {
    if (this.#tap !== null) return this.#tap
    const { config, timeoutMs } = this.#options
    const { ipv4, ipv6 } = endsOf
    const { gateway_v4: gateway, mtu_bytes: mtuBytes } = config.network
    this.#tap = openTap(this.#name)
    await run(['ip', 'link', 'set', 'dev', this.#name, 'address', tapMac], { timeoutMs, outputBytesMax })
    const v6 = ipv6 === null ? {} : { v6: { gateway: ipv6.gateway, address: ipv6.instance } }
    const address = ipv4?.instance ?? null
    await configureTap({ name: this.#name, gateway, address, ...v6, mac: tapMac, mtuBytes, timeoutMs })
    return this.#tap
  }

  async #ends(family: Family): Promise<Ends | null> {
    const { network } = this.#options.config
    const [pool, gateway] =
      family === 'ipv4' ? [network.pool_v4, network.gateway_v4] : [network.pool_v6, network.gateway_v6]
    const peers = network.probe_peers.find(text => text.includes(':') === (family === 'ipv6'))
    if (pool === '' || peers === undefined) return null
    const world = addressIn(peers, this.#random())
    const route = await routeTo(world, this.#options.timeoutMs)
    if (route === null) return null
    const instance = probeAddress(pool, PROBES[this.#options.who].address)
    const stranger = addressIn(peers, this.#random())
    return { world, stranger, instance, gateway, host: route.source, uplink: route.device }
  }
}

function unknownFor(error: unknown): ProbeLook {
  return { dropped: [], unknown: messageOf(error) }
}

const Routes = Type.Array(Type.Object({ dev: Type.String(), prefsrc: Type.Optional(Type.String()) }))

/** Null: this host has no route there. Faults: host.command_timeout. */
async function routeTo(address: string, timeoutMs: number): Promise<{ device: string; source: string } | null> {
  try {
    const { stdout } = await run(['ip', '-json', 'route', 'get', address], { timeoutMs, outputBytesMax })
    const [route] = checked(Routes, JSON.parse(stdout), { what: 'ip route', code: 'host.command_failed' })
    return route?.prefsrc === undefined ? null : { device: route.dev, source: route.prefsrc }
  } catch (error) {
    if (error instanceof Fault && error.code === 'host.command_failed') return null
    throw error
  }
}
