// Authenticates callers of service A by bearer keys `ca_<prefix>_<secret>` (contract 5). Effects: reads the store,
// records the key's use.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { ForwardedPrincipal } from '../../contract/http/forwarded-principal.ts'
import { KEY_FORMATS, type MintedKey, type PresentedKey, secretMatches } from '../../http/bearer.ts'
import { createKeyUse } from '../../http/key-use.ts'
import type { DirectoryDb, DirectoryStore } from '../../store/db.ts'
import { findKey, touchIntervalMs, touchKey } from '../../store/directory/key.query.ts'
import type { Key } from '../../store/directory/key.table.ts'
import { organizationById } from '../../store/directory/organization.query.ts'
import type { Principal } from '../service.ts'

export type AuthDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'admit'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
}

/**
 * Authenticates a caller. Faults: unauthenticated; `fleet.unavailable` (keys cannot be looked up yet); forbidden for a
 * suspended organization, or a read-only key if `write` is required. `passed`: the caller that another host of the
 * fleet has authenticated and forwarded; the headers then prove nothing.
 */
export type Authenticate = (headers: Headers, need: 'read' | 'write', passed?: ForwardedPrincipal | null) => Principal

export function createAuthenticate(deps: AuthDeps): Authenticate {
  const { db, admit } = deps.directory
  const noteUse = createKeyUse({
    log: deps.log,
    what: 'a key',
    intervalMs: touchIntervalMs,
    write: use => touchKey(db, use),
  })
  return (headers, need, passed) => {
    const presented = passed === undefined ? KEY_FORMATS.ca.parse(headers.get('authorization')) : passed
    if (presented === null) throw unauthenticated()
    admit()
    const key = 'secret' in presented ? provenKey(db, presented) : forwardedKey(db, presented, need)
    if (key === null || key.revokedAtMs !== null) throw unauthenticated()
    const organization = organizationById(db, key.organizationId)
    if (organization === null) throw unauthenticated()
    if (organization.status !== 'active') throw new Fault('forbidden', 'The organization is suspended.')
    if (need === 'write' && key.scope !== 'write') throw new Fault('forbidden', 'This key may only read.')
    noteUse(key, deps.clock.nowMs())
    return { organization, keyPrefix: key.prefix }
  }
}

/** Returns the key; null if it does not exist, or its secret differs. */
function provenKey(db: DirectoryDb, { prefix, secret }: PresentedKey): Key | null {
  const key = findKey(db, prefix)
  return secretMatches(secret, key?.secretSha256 ?? null) ? key : null
}

/**
 * Returns a forwarded caller's key; null if the organization has no such key, or the caller's scope is below `need`.
 */
function forwardedKey(db: DirectoryDb, passed: ForwardedPrincipal, need: 'read' | 'write'): Key | null {
  const key = findKey(db, passed.keyPrefix)
  const isMeant = key?.organizationId === passed.organizationId && (need === 'read' || passed.scope === 'write')
  return isMeant ? key : null
}

export function mintKey(random: RandomBytes): MintedKey {
  return KEY_FORMATS.ca.mint(random)
}

function unauthenticated(): Fault {
  return new Fault('unauthenticated', 'The Bearer token is missing or invalid.')
}
