// Who calls service A: bearer keys `ca_<prefix>_<secret>` (contract 5). Effects: reads the store, notes the key's use.

import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { createKeyFormat, type MintedKey, secretMatches } from '../../http/bearer.ts'
import type { DirectoryDb } from '../../store/db.ts'
import { findKey, touchIntervalMs, touchKey } from '../../store/directory/key.query.ts'
import type { Key } from '../../store/directory/key.table.ts'
import { organizationById } from '../../store/directory/organization.query.ts'
import type { Principal } from '../service.ts'

export type AuthDeps = { readonly db: DirectoryDb; readonly clock: Pick<Clock, 'nowMs'>; readonly log: Logger }

/** Faults: unauthenticated; forbidden for a suspended organization, or a read-only key where `write` is needed. */
export type Authenticate = (headers: Headers, need: 'read' | 'write') => Principal

export function createAuthenticate(deps: AuthDeps): Authenticate {
  return (headers, need) => {
    const presented = apiKeys.parse(headers.get('authorization'))
    if (presented === null) throw unauthenticated()
    const key = findKey(deps.db, presented.prefix)
    const matches = secretMatches(presented.secret, key?.secretSha256 ?? null)
    if (key === null || !matches || key.revokedAtMs !== null) throw unauthenticated()
    const organization = organizationById(deps.db, key.organizationId)
    if (organization === null) throw unauthenticated()
    if (organization.status !== 'active') throw new Fault('forbidden', 'The organization is suspended.')
    if (need === 'write' && key.scope !== 'write') throw new Fault('forbidden', 'This key may only read.')
    noteUse(deps, key)
    return { organization, keyPrefix: key.prefix, scope: key.scope }
  }
}

const apiKeys = createKeyFormat({ tag: 'ca', secretLength: 18 })

export function mintKey(random: RandomBytes): MintedKey {
  return apiKeys.mint(random)
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
