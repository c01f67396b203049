// Bearer keys `<tag>_<prefix>_<secret>` of all services: parsing, drawing, comparing. Pure: randomness is an argument.
// Only the SHA-256 of a secret is stored. A secret has at least 93 random bits, so a plain hash is enough.

import { equalConstantTime } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { type RandomBytes, randomName } from '../base/ids.ts'

export type KeyFormat = {
  /** The key of an Authorization header; null unless the header holds exactly one key of this format. */
  readonly parse: (authorization: string | null) => PresentedKey | null
  readonly mint: (random: RandomBytes) => MintedKey
}

export type PresentedKey = {
  /** The public part: it names the key in the store and in logs. */
  readonly prefix: string
  readonly secret: string
}

export type MintedKey = {
  /** The whole key. Shown once, to its requester; never stored, never logged. */
  readonly key: string
  readonly prefix: string
  readonly secretSha256: Uint8Array
}

const prefixLength = 8

/** The format of one service's keys; `tag` is what they begin with, such as `gw`. */
export function createKeyFormat({ tag, secretLength }: { tag: string; secretLength: number }): KeyFormat {
  // The scheme in any case and one or more spaces (RFC 9110 11.4), then exactly the key. A repeated header arrives
  // joined and does not match.
  const pattern = new RegExp(`^[Bb][Ee][Aa][Rr][Ee][Rr] +${tag}_[a-z0-9]{${prefixLength}}_[a-z0-9]{${secretLength}}$`)
  return {
    parse: authorization => {
      if (authorization === null || !pattern.test(authorization)) return null
      const at = authorization.length - secretLength
      return { prefix: authorization.slice(at - 1 - prefixLength, at - 1), secret: authorization.slice(at) }
    },
    mint: random => {
      const prefix = randomName(prefixLength, random)
      const secret = randomName(secretLength, random)
      return { key: `${tag}_${prefix}_${secret}`, prefix, secretSha256: sha256(secret) }
    },
  }
}

/**
 * By tag. The contract (section 5) fixes `ca`, of services A and C, at 93 random bits.
 * `gw`, of the gateway, has 165.
 */
export const KEY_FORMATS = {
  ca: createKeyFormat({ tag: 'ca', secretLength: 18 }),
  gw: createKeyFormat({ tag: 'gw', secretLength: 32 }),
} as const satisfies Record<string, KeyFormat>

/** Whether the secret has the stored hash. Null, for an unknown key, costs the same hash and comparison. */
export function secretMatches(secret: string, storedSha256: Uint8Array | null): boolean {
  const isEqual = equalConstantTime(sha256(secret), storedSha256 ?? NO_SECRET)
  return isEqual && storedSha256 !== null
}

/** No share: attempts for one key. */
const drawsMax = 8

/** Draws keys until `insert` finds a free prefix. Fault internal: eight keys in a row had a taken prefix. */
export function mintUnused(draw: () => MintedKey, insert: (minted: MintedKey) => boolean): MintedKey {
  for (let count = 1; count <= drawsMax; count += 1) {
    const minted = draw()
    if (insert(minted)) return minted
  }
  throw new Fault('internal', `${drawsMax} keys were drawn, and each prefix is taken`)
}

const NO_SECRET = new Uint8Array(32)

function sha256(secret: string): Uint8Array {
  const digest = new Uint8Array(32)
  Bun.SHA256.hash(secret, digest)
  return digest
}
