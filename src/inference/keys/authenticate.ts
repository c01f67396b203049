// Gateway keys `gw_<prefix8>_<secret32>`: who sends a request. Effects: reads the store, notes the key's use.
// Only the SHA-256 of a secret is stored. It has 165 bits from a strong source, so a plain hash is enough: there is no dictionary to try.

import { equalConstantTime } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { Db } from '../../store/db.ts'
import {
  gatewayTouchIntervalMs,
  type KnownGatewayKey,
  prepareChangeMark,
  prepareGatewayKeyLookup,
  touchGatewayKey,
} from '../../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../../store/directory/gateway-key.table.ts'
import type { Authenticate } from '../types.ts'

export type GatewayAuthDeps = {
  readonly db: Db
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
  /** For keys without limits of their own. */
  readonly defaults: {
    readonly requestsPerMinute: number
    readonly tokensPerMinute: number
    readonly concurrencyMax: number
  }
}

/** Every key that is no good gets the same 401: malformed, unknown, revoked, expired, of a suspended organization or a deleted instance. */
export function createGatewayAuthenticate(deps: GatewayAuthDeps): Authenticate {
  const known = createLookup(deps.db)
  return headers => {
    const { prefix, secret } = parseBearer(headers.get('authorization'))
    const found = known(prefix)
    // An unknown prefix costs the same hash and comparison as a known one.
    const matches = equalConstantTime(sha256(secret), found?.key.secretSha256 ?? NO_SECRET)
    const nowMs = deps.clock.nowMs()
    if (found === null || !matches || !isActive(found, nowMs)) throw unauthenticated()
    const { key } = found
    noteUse(deps, key, nowMs)
    return {
      keyPrefix: key.prefix,
      organizationId: key.organizationId,
      instanceId: key.instanceId,
      requestsPerMinute: key.requestsPerMinute ?? deps.defaults.requestsPerMinute,
      tokensPerMinute: key.tokensPerMinute ?? deps.defaults.tokensPerMinute,
      concurrencyMax: key.concurrencyMax ?? deps.defaults.concurrencyMax,
    }
  }
}

export type MintedGatewayKey = {
  /** Shown once, to whoever asked for it; never stored, never logged. */
  readonly key: string
  readonly prefix: string
  readonly secretSha256: Uint8Array
}

const prefixLength = 8
const secretLength = 32

export function mintGatewayKey(random: RandomBytes): MintedGatewayKey {
  const prefix = randomName(prefixLength, random)
  const secret = randomName(secretLength, random)
  return { key: `gw_${prefix}_${secret}`, prefix, secretSha256: sha256(secret) }
}

const rememberedMax = 4096
const NO_SECRET = new Uint8Array(32)

/** Rows as they are now: those that were read, and that some are absent, is remembered until anything changes in the database. */
function createLookup(db: Db): (prefix: string) => KnownGatewayKey | null {
  const find = prepareGatewayKeyLookup(db)
  const readMark = prepareChangeMark(db)
  const remembered = new Map<string, KnownGatewayKey | null>()
  let mark = { own: -1, others: -1 }
  return prefix => {
    const now = readMark()
    const isChanged = now.own !== mark.own || now.others !== mark.others
    if (isChanged || remembered.size >= rememberedMax) remembered.clear()
    mark = now
    const known = remembered.get(prefix)
    if (known !== undefined) return known
    const found = find(prefix)
    remembered.set(prefix, found)
    return found
  }
}

function isActive({ key, organizationStatus, instanceDesired }: KnownGatewayKey, nowMs: number): boolean {
  if (key.revokedAtMs !== null || organizationStatus !== 'active' || instanceDesired === 'absent') return false
  return key.expiresAtMs === null || nowMs < key.expiresAtMs
}

/** The scheme in any case and one or more spaces (RFC 9110 11.4); the key exactly. A header sent twice arrives joined and fails. */
const BEARER = /^[Bb][Ee][Aa][Rr][Ee][Rr] +gw_([a-z0-9]{8})_([a-z0-9]{32})$/

function parseBearer(header: string | null): { prefix: string; secret: string } {
  const match = BEARER.exec(header ?? '')
  const prefix = match?.[1]
  const secret = match?.[2]
  if (prefix === undefined || secret === undefined) throw unauthenticated()
  return { prefix, secret }
}

function sha256(secret: string): Uint8Array {
  const digest = new Uint8Array(32)
  Bun.SHA256.hash(secret, digest)
  return digest
}

function unauthenticated(): Fault {
  return new Fault('unauthenticated', 'The API key is missing or invalid.')
}

/** A request must not fail because this small write does. */
function noteUse(deps: GatewayAuthDeps, key: GatewayKey, nowMs: number): void {
  const sinceMs = nowMs - (key.lastUsedAtMs ?? Number.NEGATIVE_INFINITY)
  if (sinceMs >= 0 && sinceMs < gatewayTouchIntervalMs) return
  try {
    touchGatewayKey(deps.db, { prefix: key.prefix, nowMs })
  } catch (error) {
    deps.log.warn('the use of a gateway key was not noted', { key: key.prefix, error })
  }
}
