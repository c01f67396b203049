// Addresses of the upstreams' hosts: gateway VMs have no resolver, and the firewall opens exactly these. Effects:
// DNS, a timer.

import { lookup } from 'node:dns/promises'
import { isIPv4 } from 'node:net'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { sweep } from '../base/work/sweep.ts'

export type UpstreamPlace = { readonly host: string; readonly port: number }

export type AddressesDeps = {
  /** Base URLs of the upstreams. */
  readonly urls: readonly string[]
  /** This host's address as instances see it. A resolver that returns it opens nothing: only a URL does. */
  readonly own: string
  readonly resolve?: (host: string) => Promise<readonly string[]>
  readonly clock: Clock
  readonly log: Logger
}

const lookMs = 60_000
/** Bound of the wire (contract/vm/enclave.ts). No share: limits one upstream. */
const addressesMax = 8

export class Addresses {
  readonly #deps: AddressesDeps
  readonly #places: readonly UpstreamPlace[]
  readonly #listeners: (() => void)[] = []
  /** The last that were found stay until others are. */
  #found: ReadonlyMap<string, string[]> = new Map()
  #isKnown = false

  constructor(deps: AddressesDeps) {
    this.#deps = deps
    this.#places = deps.urls.map(placeOf)
  }

  /** Calls `listener` whenever an address has changed. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener)
  }

  /** Whether every name has been looked up once. */
  get isKnown(): boolean {
    return this.#isKnown
  }

  /** By name; addresses in a URL need no entry. */
  hosts(): Record<string, string[]> {
    return Object.fromEntries(this.#found)
  }

  /** Addresses and ports that the gateway may reach. */
  reached(): { readonly address: string; readonly port: number }[] {
    const all = this.#places.flatMap(({ host, port }) =>
      (isIPv4(host) ? [host] : (this.#found.get(host) ?? [])).map(address => ({ address, port })),
    )
    return [...new Map(all.map(place => [`${place.address} ${place.port}`, place])).values()]
  }

  async look(): Promise<void> {
    const names = [...new Set(this.#places.map(place => place.host))].filter(host => !isIPv4(host))
    const found = new Map<string, string[]>()
    for (const name of names) {
      try {
        const addresses = await (this.#deps.resolve ?? resolveV4)(name)
        found.set(
          name,
          [...new Set(addresses)]
            .filter(text => text !== this.#deps.own)
            .toSorted()
            .slice(0, addressesMax),
        )
      } catch (error) {
        this.#deps.log.warn('the host of an upstream has no address', { host: name, error })
        found.set(name, this.#found.get(name) ?? [])
      }
    }
    const isChanged = !this.#isKnown || JSON.stringify([...found]) !== JSON.stringify([...this.#found])
    this.#found = found
    this.#isKnown = true
    if (isChanged) for (const listener of this.#listeners) listener()
  }

  watch(signal: AbortSignal): Promise<void> {
    return sweep({ clock: this.#deps.clock, intervalMs: lookMs, signal }, () => this.look())
  }
}

function placeOf(url: string): UpstreamPlace {
  const { hostname, port, protocol } = new URL(url)
  return { host: hostname, port: Number(port || (protocol === 'https:' ? 443 : 80)) }
}

async function resolveV4(host: string): Promise<string[]> {
  return (await lookup(host, { family: 4, all: true })).map(({ address }) => address)
}
