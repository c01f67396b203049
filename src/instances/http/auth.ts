// Bearer keys of service A: `ca_<prefix>_<secret>` (contract 5). Effects: reads the store, notes the key's use.

import { equalConstantTime, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import { type RandomBytes, randomName } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { findKey, touchIntervalMs, touchKey } from '../../store/directory/key.query.ts'
import type { Key } from '../../store/directory/key.table.ts'
import { organizationById } from '../../store/directory/organization.query.ts'
import type { Principal } from '../principal.ts'

export type AuthDeps = { readonly db: DirectoryDb; readonly clock: Pick<Clock, 'nowMs'>; readonly log: Logger }

/** Faults: unauthenticated; forbidden for a suspended organization, or a read-only key where `write` is needed. */
export type Authenticate = (headers: Headers, need: 'read' | 'write') => Principal

export function createAuthenticate(deps: AuthDeps): Authenticate {
  return (headers, need) => {
    const { prefix, secret } = parseBearer(headers.get('authorization'))
    const key = findKey(deps.db, prefix)
    // An unknown prefix costs the same hash and comparison as a known one.
    const matches = equalConstantTime(secretSha256(secret), key?.secretSha256 ?? NO_SECRET)
    if (key === null || !matches || key.revokedAtMs !== null) throw unauthenticated()
    const organization = organizationById(deps.db, key.organizationId)
    if (organization === null) throw unauthenticated()
    if (organization.status !== 'active') throw new Fault('forbidden', 'The organization is suspended.')
    if (need === 'write' && key.scope !== 'write') throw new Fault('forbidden', 'This key may only read.')
    noteUse(deps, key)
    return { organization, keyPrefix: key.prefix, scope: key.scope }
  }
}

export type MintedKey = {
  /** Shown once, to whoever asked for it; never stored, never logged. */
  readonly key: string
  readonly prefix: string
  readonly secretSha256: Uint8Array
}

const prefixLength = 8
const secretLength = 18

export function mintKey(random: RandomBytes, kind: 'ca'): MintedKey {
  const prefix = randomName(prefixLength, random)
  const secret = randomName(secretLength, random)
  return { key: `${kind}_${prefix}_${secret}`, prefix, secretSha256: secretSha256(secret) }
}

const NO_SECRET = new Uint8Array(32)

/** The scheme in any case and one or more spaces (RFC 9110 11.4); the key exactly. A header sent twice arrives joined and fails. */
function parseBearer(header: string | null): { prefix: string; secret: string } {
  const [, prefix, secret] = /^bearer +ca_([a-z0-9]{8})_([a-z0-9]{18})$/.exec(lowerScheme(header ?? '')) ?? []
  if (prefix === undefined || secret === undefined) throw unauthenticated()
  return { prefix, secret }
}

function lowerScheme(header: string): string {
  return header.slice(0, 'bearer'.length).toLowerCase() + header.slice('bearer'.length)
}

/** The secret has 93 bits from a strong source, so a plain hash is enough: there is no dictionary to try. */
function secretSha256(secret: string): Uint8Array {
  return new Bun.CryptoHasher('sha256').update(utf8(secret)).digest()
}

function unauthenticated(): Fault {
  return new Fault('unauthenticated', 'The Bearer token is missing or invalid.')
}

/** A read must not fail because this small write does. */
function noteUse(deps: AuthDeps, key: Key): void {
  const nowMs = deps.clock.nowMs()
  const sinceMs = nowMs - (key.lastUsedAtMs ?? Number.NEGATIVE_INFINITY)
  if (sinceMs >= 0 && sinceMs < touchIntervalMs) return
  try {
    touchKey(deps.db, { prefix: key.prefix, nowMs })
  } catch (error) {
    deps.log.warn('the use of a key was not noted', { key: key.prefix, error })
  }
}
