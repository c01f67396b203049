// Sends packets through all firewalls of this host and finds those that are dropped. Effects: a tap here and one in the
// namespace of VMs, their addresses and routes, a table of nftables during the probe, packets that end in this host;
// runs ip(8), tc(8), nft(8).
//
// Like all packets of instances, a probe packet of an instance enters by the inner tap and reaches this host by the
// link.

import { writeSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import { type Clock, systemClock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { linkNames } from '../../base/link-names.ts'
import type { Config } from '../../config/schema.ts'
import { checked } from '../../contract/check.ts'
import { hereNetns, isNetns, type Netns, netnsAt } from '../../host/network/netns.ts'
import { parseCounters } from '../../host/network/nft.ts'
import { configureTap, openTap, type Tap, tapMac } from '../../host/network/tap.ts'
import { namespaceFile, routeVm, unrouteVm } from '../../host/network/vm-namespace.ts'
import { run } from '../../linux/command.ts'
import { probeTaps } from '../network/nft.plan.ts'
import { probeAddress } from '../network/probe-address.plan.ts'
import { type DroppingChain, droppingChains, itemsOf, tablesToRead } from './dropping-chain.plan.ts'
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
  probesOf,
  probeTapOf,
  uplinkBatch,
} from './probe.plan.ts'

export type ProbeLook = {
  readonly dropped: readonly Need[]
  /** Chains of other firewalls that may be the cause. Absent if nothing is dropped or nft did not list them. */
  readonly chains?: readonly DroppingChain[]
  /** Why the result is missing or incomplete. Null if it is complete. */
  readonly unknown: string | null
}

export type ForwardProbeOptions = {
  readonly config: Config
  readonly who: keyof typeof PROBES
  readonly random: RandomBytes
  readonly timeoutMs: number
  readonly clock?: Pick<Clock, 'monotonicMs' | 'sleep'>
}

const outputBytesMax = 1_048_576
/** Chains and rules of others, in nft's JSON. Limits how long they hold the thread. No share: the operator's rules. */
const rulesetBytesMax = 1_048_576
const causesFreshMs = 600_000
const freedWithinMs = 1_000
const freedPollMs = 10
const noNamespace = 'nothing was tested: the network namespace of VMs is not there; start strongroom and ask again'
const nothingSent = 'nothing was tested: network.probe_peers is empty, or this host has no route to these'

/** `instance`: in the namespace of VMs. `world`: on this host. */
type Taps = { readonly instance: Tap; readonly world: Tap }

type Causes = { readonly names: string; readonly readMs: number; readonly found: Pick<ProbeLook, 'chains'> }

/** Probes the firewalls; one check at a time. */
export class ForwardProbe {
  readonly #options: ForwardProbeOptions
  readonly #name: string
  readonly #link: string
  readonly #file: string
  #taps: Taps | null = null
  /** The last list of chains, and the packets for which it was read. */
  #causes: Causes = { names: '', readMs: Number.NEGATIVE_INFINITY, found: {} }

  constructor(options: ForwardProbeOptions) {
    this.#options = options
    const { tap_prefix: tapPrefix, table } = options.config.network
    this.#name = probeTapOf(options.who, tapPrefix)
    this.#link = linkNames(tapPrefix).host
    this.#file = namespaceFile(table)
  }

  /**
   * Returns the packets that are currently dropped. If any is, sends all once more through a new tap. Never rejects.
   */
  async look(): Promise<ProbeLook> {
    const first = await this.#send().catch(unknownFor)
    if (first.unknown === null && first.dropped.length === 0) return first
    this.close()
    const second = await this.#send().catch(unknownFor)
    return second.dropped.length === 0 ? second : { ...second, ...(await this.#causesOf(second.dropped)) }
  }

  /**
   * Lists the chains of others, again only for other packets or after 10 minutes. Where that fails, what is dropped is
   * reported without a cause.
   */
  async #causesOf(dropped: readonly Need[]): Promise<Pick<ProbeLook, 'chains'>> {
    const { clock = systemClock } = this.#options
    const names = dropped.map(({ name }) => name).join()
    const nowMs = clock.monotonicMs()
    if (this.#causes.names !== names || nowMs - this.#causes.readMs >= causesFreshMs)
      this.#causes = {
        names,
        readMs: nowMs,
        found: await this.#readChains().then(
          chains => ({ chains }),
          () => ({}),
        ),
      }
    return this.#causes.found
  }

  async #readChains(): Promise<DroppingChain[]> {
    const { table, tap_prefix: tapPrefix } = this.#options.config.network
    const own = [table, ...probeTaps(tapPrefix)]
    let leftBytes = rulesetBytesMax
    const list = async (...what: string[]) => {
      const bounds = { timeoutMs: this.#options.timeoutMs, outputBytesMax: leftBytes }
      const { stdout } = await run(['nft', '--json', '--terse', 'list', ...what], bounds)
      leftBytes -= stdout.length
      return itemsOf(JSON.parse(stdout))
    }
    const items = [...(await list('chains'))]
    for (const { family, table: name } of tablesToRead(items, own)) {
      // Without the rules of a large table, the policies of its chains remain.
      const found = await list('table', family, name).catch(() => [])
      items.push(...found.filter(item => 'rule' in Object(item)))
    }
    return droppingChains(items, own)
  }

  /** Removes the taps. */
  close(): void {
    this.#taps?.world.close()
    this.#taps?.instance.close()
    this.#taps = null
  }

  async #send(): Promise<ProbeLook> {
    const { config, timeoutMs } = this.#options
    const bounds = { timeoutMs, outputBytesMax }
    const endsOf = { ipv4: await this.#ends('ipv4'), ipv6: await this.#ends('ipv6') }
    const probes = probesOf(neededPackets(config), endsOf, this.#random)
    if (probes.length === 0) return { dropped: [], unknown: nothingSent }
    if (!isNetns(this.#file)) return { dropped: [], unknown: noNamespace }
    const taps = await this.#opened(endsOf)
    const instances = [endsOf.ipv4, endsOf.ipv6].flatMap(ends => ends?.instance ?? [])
    await run(['tc', '-batch', '-'], { stdin: uplinkBatch(this.#name, endsOf), ...bounds })
    await run(['nft', '--file', '-'], { stdin: observerText(this.#name, probes, endsOf), ...bounds })
    try {
      await this.#route(endsOf)
      for (const probe of probes)
        writeSync(probe.from === 'instance' ? taps.instance.fd : taps.world.fd, probeFrame(probe, tapMac))
      const list = ['nft', '--json', 'list', 'counters', 'table', 'inet', this.#name]
      const { counters } = parseCounters((await run(list, bounds)).stdout)
      if (counters.size < probes.length) throw new Fault('host.command_failed', `nft: table ${this.#name} has vanished`)
      return { dropped: probes.filter((_, index) => counters.get(counterName(index))?.packets === 0), unknown: null }
    } finally {
      await run(['nft', 'delete', 'table', 'inet', this.#name], bounds).catch(() => {})
      await unrouteVm(this.#link, instances).catch(() => {})
    }
  }

  readonly #random = (): number => Buffer.from(this.#options.random(4)).readUInt32BE()

  async #opened(endsOf: EndsOf): Promise<Taps> {
    if (this.#taps !== null) return this.#taps
    const { config, timeoutMs } = this.#options
    const { gateway_v4: nextHop, mtu_bytes: mtuBytes } = config.network
    const netns = netnsAt(this.#file)
    const bounds = { timeoutMs, outputBytesMax }
    const addressed = ['ip', 'link', 'set', 'dev', this.#name, 'address', tapMac]
    using undo = new DisposableStack()
    const instance = undo.adopt(await this.#openFreed(netns), tap => tap.close())
    const world = undo.adopt(await this.#openFreed(hereNetns), tap => tap.close())
    await netns.run(() => run(addressed, bounds))
    const { ipv4, ipv6 } = endsOf
    const v6 = ipv6 === null ? {} : { v6: { nextHop: ipv6.nextHop, address: ipv6.instance } }
    const address = ipv4?.instance ?? null
    await configureTap({ name: this.#name, nextHop, address, ...v6, mac: tapMac, mtuBytes, timeoutMs }, netns)
    // Packets that leave it enter by the uplink.
    await run([...addressed, 'up'], bounds)
    undo.move()
    this.#taps = { instance, world }
    return this.#taps
  }

  /** Opens a tap again. A child that this process has just forked holds the closed tap until it runs its program. */
  async #openFreed(netns: Netns): Promise<Tap> {
    const { clock = systemClock } = this.#options
    const endMs = clock.monotonicMs() + freedWithinMs
    for (;;) {
      try {
        return openTap(this.#name, netns)
      } catch (error) {
        const isHeld = error instanceof Fault && error.code === 'conflict'
        if (!isHeld || clock.monotonicMs() > endMs) throw error
        await clock.sleep(freedPollMs)
      }
    }
  }

  /** Sets up the route of an instance's packets, in both directions, as for VMs. */
  async #route({ ipv4, ipv6 }: EndsOf): Promise<void> {
    const { gateway_v4: nextHop, gateway_v6: nextHopV6 } = this.#options.config.network
    const addresses = { address: ipv4?.instance ?? null, addressV6: ipv6?.instance ?? null }
    await routeVm({ link: this.#link, nextHop, nextHopV6, ...addresses })
  }

  async #ends(family: Family): Promise<Ends | null> {
    const { network } = this.#options.config
    const [pool, nextHop] =
      family === 'ipv4' ? [network.pool_v4, network.gateway_v4] : [network.pool_v6, network.gateway_v6]
    const peers = network.probe_peers.find(text => text.includes(':') === (family === 'ipv6'))
    if (pool === '' || peers === undefined) return null
    const world = addressIn(peers, this.#random())
    const route = await routeTo(world, this.#options.timeoutMs)
    if (route === null) return null
    const instance = probeAddress(pool, PROBES[this.#options.who].address)
    const stranger = addressIn(peers, this.#random())
    return { world, stranger, instance, nextHop, host: route.source, uplink: route.device }
  }
}

function unknownFor(error: unknown): ProbeLook {
  return { dropped: [], unknown: messageOf(error) }
}

const Routes = Type.Array(Type.Object({ dev: Type.String(), prefsrc: Type.Optional(Type.String()) }))

/** Returns the route; null if this host has none to the address. Faults: host.command_timeout. */
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
