// Goal: only whoever got a cookie at its address, within the hour, can show it.

import { expect, test } from 'bun:test'
import { createHmac } from 'node:crypto'
import { type CookieOwner, isOurCookie, makeCookie } from '../../../src/instances/dns/cookie.codec.ts'

/** RFC 9018 4.3. */
const [hour, fiveMinutes] = [3_600, 300]
const secret = new Uint8Array(32).fill(9)
const owner: CookieOwner = { client: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), address: '192.0.2.1' }
const nowSeconds = 10_000
const made = makeCookie(owner, { secret, nowSeconds })
const server = made.subarray(8)
const isOurs = (change: Partial<CookieOwner>, seconds = nowSeconds, given: Uint8Array = server, key = secret) =>
  isOurCookie(given, { ...owner, ...change }, { secret: key, nowSeconds: seconds })

test('goal: a cookie is the client’s half, then version, nothing, time and hash, 24 bytes in all', () => {
  expect(Buffer.from(made.subarray(0, 16)).toString('hex')).toBe('01020304050607080100000000002710')
  expect(made.length).toBe(24)
  // The hash is 8 bytes over all that stands before it, and the address.
  const hash = createHmac('sha256', secret).update(made.subarray(0, 16)).update('192.0.2.1').digest()
  expect(Buffer.from(made.subarray(16)).toString('hex')).toBe(hash.toString('hex', 0, 8))
})

test('goal: it holds for an hour, whole, for its client at its address, under its secret', () => {
  expect([0, hour, -fiveMinutes].map(s => isOurs({}, nowSeconds + s))).toEqual([true, true, true])
  const others = {
    later: isOurs({}, nowSeconds + hour + 1),
    earlier: isOurs({}, nowSeconds - fiveMinutes - 1),
    otherClient: isOurs({ client: Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 9) }),
    otherAddress: isOurs({ address: '192.0.2.2' }),
    otherSecret: isOurs({}, nowSeconds, server, new Uint8Array(32).fill(8)),
    short: isOurs({}, nowSeconds, server.subarray(0, 15)),
    long: isOurs({}, nowSeconds, Buffer.concat([server, Uint8Array.of(0)])),
    none: isOurs({}, nowSeconds, new Uint8Array(0)),
  }
  for (const [what, verdict] of Object.entries(others)) expect([what, verdict]).toEqual([what, false])
  for (let bit = 0; bit < server.length * 8; bit += 1) {
    const changed = Uint8Array.from(server)
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
    expect([bit, isOurs({}, nowSeconds, changed)]).toEqual([bit, false])
  }
})
