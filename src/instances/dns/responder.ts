// Decides on one message: an answer from the name table within the rate limits, a hint to use TCP, or no response.
// Effects: memory of limiters and table.

import { HOST_LISTENERS } from '../../config/listen.ts'
import type { DnsTransport } from '../../host/network/dns-socket.ts'
import { type CookieMaker, isOurCookie, makeCookie } from './cookie.codec.ts'
import { type Query, readQuery, writeResponse } from './message.codec.ts'
import type { NameTableReader } from './name-table.ts'
import { type RateLimiter, type RateSettings, rateDefaults } from './rate.plan.ts'
import { answerQuery, TRUNCATED, type Zone } from './zone.plan.ts'

/**
 * How certain the source address of a query is: UDP is forgeable; the server's cookie or a TCP connection proves it.
 */
export type Standing = 'forgeable' | 'cookie' | 'tcp'

/** Rates for each standing: a flood of forged UDP blocks neither TCP nor clients with a cookie. */
export const standingRates: Readonly<Record<Standing, RateSettings>> = {
  forgeable: rateDefaults,
  cookie: rateDefaults,
  // TCP has no truncation: every query over the rate closes its connection.
  tcp: { ...rateDefaults, perWindow: 50, truncatedPerWindow: 0 },
}

export type ResponderDeps = {
  readonly domain: string
  readonly publishes: boolean
  readonly names: NameTableReader
  readonly limiters: Readonly<Record<Standing, RateLimiter>>
  readonly cookieSecret: Uint8Array
  /** Returns the current TXT records. */
  readonly texts: () => Zone['texts']
  readonly clock: { readonly nowMs: () => number; readonly monotonicMs: () => number }
  /** Called for each message that was not answered in full. */
  readonly onLimited: () => void
}

/** Outcomes of messages: response codes (RFC 1035 4.1.1) by their number, any other code, no response. */
export const ANSWERS = ['NOERROR', 'FORMERR', 'SERVFAIL', 'NXDOMAIN', 'NOTIMP', 'REFUSED', 'other', 'none'] as const

/** Returns the index in ANSWERS of a response; null for none. */
export function answerSlot(response: Uint8Array | null): number {
  if (response === null) return ANSWERS.indexOf('none')
  return Math.min((response[3] ?? 0) & 0x0f, ANSWERS.indexOf('other'))
}

export type Responder = (message: Uint8Array, from: { transport: DnsTransport; address: string }) => Uint8Array | null

/**
 * Creates the responder. Never throws, for any bytes. Over UDP a response is at most 84 bytes longer than the query
 * (three IPv6 addresses; the name server with both its own, or a proof's text, is shorter), plus 16 if the query has a
 * cookie: less than five times the query for any domain.
 */
export function createResponder(deps: ResponderDeps): Responder {
  const { domain, publishes, names, limiters, cookieSecret, texts, clock, onLimited } = deps
  const hosts = new Set(Object.keys(HOST_LISTENERS))
  return (message, { transport, address }) => {
    const read = readQuery(message)
    // The rate limits do not count it either.
    if (read.kind === 'ignored') return null
    const nowSeconds = Math.floor(clock.nowMs() / 1000)
    const maker = { secret: cookieSecret, nowSeconds }
    const query = read.kind === 'query' ? read.query : null
    const standing = transport === 'tcp' ? 'tcp' : showsCookie(query, address, maker) ? 'cookie' : 'forgeable'
    const admission = limiters[standing].admit(address, clock.monotonicMs())
    if (admission !== 'answer') onLimited()
    if (admission === 'drop') return null
    // Malformed queries get no response if they arrive too often.
    if (read.kind === 'refused') return admission === 'answer' ? read.response : null
    const client = read.query.edns?.cookie?.client
    const cookie = client === undefined ? null : makeCookie({ client, address }, maker)
    if (admission === 'truncate') return writeResponse(read.query, TRUNCATED, cookie)
    let isBusy = false
    const resolve = (name: string) => {
      const found = names.find(name)
      if (found.kind === 'busy') isBusy = true
      return found.kind === 'found' ? found : null
    }
    // The zone may change at any moment, so its serial is the time (RFC 1912 2.2 leaves the scheme open).
    const zone = { domain, hosts, serial: nowSeconds >>> 0, texts: texts(), publishes }
    const reply = answerQuery(read.query, zone, resolve)
    // An uncertain absence would be cached.
    return isBusy ? null : writeResponse(read.query, reply, cookie)
  }
}

function showsCookie(query: Query | null, address: string, maker: CookieMaker): boolean {
  const cookie = query?.edns?.cookie ?? null
  if (cookie === null || cookie.server === null) return false
  return isOurCookie(cookie.server, { client: cookie.client, address }, maker)
}
