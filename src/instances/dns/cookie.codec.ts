// DNS cookies (RFC 7873, server cookies by RFC 9018 4). A client that presents one received an earlier response, so its
// address is not forged. Pure: secret and time are arguments.

import { createHmac, timingSafeEqual } from 'node:crypto'

export type CookieMaker = {
  /** 32 bytes, generated at each start. It only keys an HMAC of a few bytes, so it is not rotated. */
  readonly secret: Uint8Array
  /** Seconds since 1970. Setting the clock at worst invalidates cookies, and clients then get new ones. */
  readonly nowSeconds: number
}

/** A cookie's owner: the client's half, and its address. */
export type CookieOwner = { readonly client: Uint8Array; readonly address: string }

/** Lifetime of a cookie, and allowed clock difference (RFC 9018 4.3). */
export const cookieLifeSeconds = 3_600
export const cookieAheadSeconds = 300
const version = 1
const LAYOUT = { version: 0, reserved: 1, timestamp: 4, hash: 8, bytes: 16 } as const

/** Returns the whole cookie as sent in a response, client's half first. */
export function makeCookie(owner: CookieOwner, { secret, nowSeconds }: CookieMaker): Uint8Array {
  const server = Buffer.alloc(LAYOUT.bytes)
  server[LAYOUT.version] = version
  server.writeUInt32BE(nowSeconds >>> 0, LAYOUT.timestamp)
  hashOf(owner, server, secret).copy(server, LAYOUT.hash)
  return Buffer.concat([owner.client, server])
}

/** Reports whether this server made the cookie for this client and address within the last hour. */
export function isOurCookie(server: Uint8Array, owner: CookieOwner, { secret, nowSeconds }: CookieMaker): boolean {
  if (server.length !== LAYOUT.bytes || server[LAYOUT.version] !== version) return false
  const given = Buffer.from(server.buffer, server.byteOffset, server.byteLength)
  const ageSeconds = (nowSeconds >>> 0) - given.readUInt32BE(LAYOUT.timestamp)
  if (ageSeconds < -cookieAheadSeconds || ageSeconds > cookieLifeSeconds) return false
  return timingSafeEqual(given.subarray(LAYOUT.hash), hashOf(owner, given, secret))
}

/** Hashes the client's half, the server's half up to the hash, and the address. */
function hashOf({ client, address }: CookieOwner, server: Buffer, secret: Uint8Array): Buffer {
  const hmac = createHmac('sha256', secret).update(client).update(server.subarray(0, LAYOUT.hash)).update(address)
  return hmac.digest().subarray(0, LAYOUT.bytes - LAYOUT.hash)
}
