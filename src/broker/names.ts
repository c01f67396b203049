// The allowed names and their synthetic addresses. Pure: state in memory.
//
// An exact name has the address that `reachOf` gives it. Names below a wildcard get one when they are first asked for.

import { formatIpv4, parseIpv4 } from '../base/ipv4.ts'
import type { EgressRule, Reach } from '../contract/http/egress-policy.ts'

/** Names below wildcards that have an address. Share: programs of one VM; the one asked for longest ago loses it. */
export const wildcardNamesMax = 4_096

/** Addresses of names below wildcards. Many more than names, so that an address gets a new name late. */
const dynamicFirst = parseIpv4('198.19.0.0')
const dynamicCount = 65_536

export class Names {
  readonly #reach: Reach
  readonly #byAddress = new Map<string, string>()
  /** The name asked for longest ago first. */
  readonly #dynamic = new Map<string, string>()
  #next: number

  /** `before`: names below wildcards keep their addresses when the policy changes. */
  constructor(reach: Reach, before: Names | null) {
    this.#reach = reach
    this.#next = before === null ? 0 : before.#next
    for (const [name, address] of reach.addresses) this.#byAddress.set(address, name)
    for (const [name, address] of before === null ? [] : before.#dynamic) {
      if (this.#isBelowWildcard(name) && !reach.addresses.has(name)) this.#set(name, address)
    }
  }

  /** Reports whether a connection to this name and port is allowed. */
  allows(name: string, port: number): boolean {
    return this.#reach.rules.some(rule => rule.port === port && covers(rule, name))
  }

  /** Returns the name's synthetic address, or null for a name that no rule covers. */
  addressOf(name: string): string | null {
    const fixed = this.#reach.addresses.get(name)
    if (fixed !== undefined) return fixed
    if (!this.#isBelowWildcard(name)) return null
    const known = this.#dynamic.get(name)
    if (known !== undefined) {
      this.#dynamic.delete(name)
      this.#dynamic.set(name, known)
      return known
    }
    const [oldest] = this.#dynamic
    if (oldest !== undefined && this.#dynamic.size >= wildcardNamesMax) {
      this.#dynamic.delete(oldest[0])
      this.#byAddress.delete(oldest[1])
    }
    const address = this.#freeAddress()
    this.#set(name, address)
    return address
  }

  nameOf(address: string): string | null {
    return this.#byAddress.get(address) ?? null
  }

  #set(name: string, address: string): void {
    this.#dynamic.set(name, address)
    this.#byAddress.set(address, name)
  }

  #freeAddress(): string {
    for (;;) {
      const address = formatIpv4(dynamicFirst + (this.#next++ % dynamicCount))
      if (!this.#byAddress.has(address)) return address
    }
  }

  #isBelowWildcard(name: string): boolean {
    return this.#reach.rules.some(rule => rule.host.startsWith('*.') && covers(rule, name))
  }
}

function covers({ host }: EgressRule, name: string): boolean {
  return host.startsWith('*.') ? name.endsWith(host.slice(1)) && name.length >= host.length : name === host
}
