// What one message gets: an answer from the name table within the rate limits, a hint to use TCP, or nothing. Effects: the limiter's and the table's memory.

import { HOST_LISTENERS } from '../../config/listen.ts'
import type { DnsTransport } from '../../host/network/dns-socket.ts'
import type { NameTableReader } from './name-table.ts'
import { type RateLimiter, rateDefaults } from './rate.plan.ts'
import { dnsResponse, truncatedResponse } from './zone.codec.ts'

export type ResponderDeps = {
  readonly domain: string
  readonly names: NameTableReader
  /** Of each transport its own: a flood of UDP must not close the way that truncated responses point to. */
  readonly limiters: Readonly<Record<DnsTransport, RateLimiter>>
  readonly clock: { readonly nowMs: () => number; readonly monotonicMs: () => number }
  /** How many messages were not answered in full. */
  readonly onLimited: () => void
}

export type Responder = (query: Uint8Array, from: { transport: DnsTransport; address: string }) => Uint8Array | null

/** Never throws, whatever the bytes are. */
export function createResponder({ domain, names, limiters, clock, onLimited }: ResponderDeps): Responder {
  const hosts = new Set(Object.keys(HOST_LISTENERS))
  return (query, { transport, address }) => {
    // Nobody is answered who answers: not even against the rates.
    if (((query[2] ?? 0) & responseBit) !== 0) return null
    const admission = limiters[transport].admit(address, clock.monotonicMs())
    if (admission !== 'answer') {
      onLimited()
      return admission === 'truncate' && transport === 'udp' ? truncatedResponse(query) : null
    }
    let isBusy = false
    const resolve = (name: string) => {
      const found = names.find(name)
      if (found.kind === 'busy') isBusy = true
      return found.kind === 'found' ? found : null
    }
    // The zone may change at any moment, so its serial is the time (RFC 1912 2.2 leaves the scheme open).
    const zone = { domain, hosts, serial: Math.floor(clock.nowMs() / 1000) >>> 0 }
    const response = dnsResponse(query, { zone, transport, resolve })
    // An absence that is not certain would be cached.
    return isBusy ? null : response
  }
}

const responseBit = 0x80

/** Over TCP there is nothing to truncate: every query over the rate ends its connection. */
export const tcpRates = { ...rateDefaults, slip: 1, perWindow: 50 }
