// Gateway keys of a store, kept in memory until the database changes. Effects: reads the store, notes the key's use.

import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { createKeyUse } from '../../http/key-use.ts'
import type { DirectoryDb } from '../../store/db.ts'
import {
  gatewayTouchIntervalMs,
  type KnownGatewayKey,
  prepareChangeMark,
  prepareGatewayKeyLookup,
  touchGatewayKey,
} from '../../store/directory/gateway-key.query.ts'
import type { Authenticate } from '../types.ts'
import { createKeyAuthenticate, type KeyDefaults } from './authenticate.ts'

export type GatewayAuthDeps = {
  readonly db: DirectoryDb
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly log: Logger
  /** Default limits for keys that have none. */
  readonly defaults: KeyDefaults
  /** Changes by other connections, as another thread sees them. By default this thread checks itself. */
  readonly others?: PushedChanges | null
  /** Throws if a key that the store lacks may exist. By default none does. */
  readonly admitUnknown?: () => void
}

/**
 * The change mark of another connection, which its thread reads repeatedly. `beat` grows with each reading of `mark`.
 */
export type PushedChanges = { readonly beat: () => number; readonly mark: () => number }

/** Returns `createKeyAuthenticate` over the keys of a store. */
export function createGatewayAuthenticate(deps: GatewayAuthDeps): Authenticate {
  const lookUp = createLookup(deps)
  return createKeyAuthenticate({
    ...deps,
    find: prefix => {
      const found = lookUp(prefix)
      if (found === null) deps.admitUnknown?.()
      return found
    },
    onUse: createKeyUse({
      log: deps.log,
      what: 'a gateway key',
      intervalMs: gatewayTouchIntervalMs,
      write: use => touchGatewayKey(deps.db, use),
    }),
  })
}

/** No share: when full, the cache is emptied and keys are read again. */
const rememberedMax = 4096

/**
 * How long a change by another connection may go unseen. The daemon changes keys only through the connection of `db`,
 * whose changes the very next request sees; any other change is made by hand while the daemon runs.
 */
export const othersSeenMs = 1_000

/**
 * Keeps rows, and their absence, in memory until this or another connection changes the database. Commits of the
 * connection that pushes do not count as changes, because it writes only usage.
 */
function createLookup({
  db,
  clock,
  others: pushed = null,
}: Pick<GatewayAuthDeps, 'db' | 'clock' | 'others'>): (prefix: string) => KnownGatewayKey | null {
  const find = prepareGatewayKeyLookup(db)
  const changes = prepareChangeMark(db)
  const remembered = new Map<string, KnownGatewayKey | null>()
  let own = -1
  let others = -1
  let pushedMark = -1
  let beat = -1
  let checkedMs = Number.NEGATIVE_INFINITY
  /** Commits of others before this time have been seen. */
  let seenMs = Number.NEGATIVE_INFINITY
  const isChanged = (): boolean => {
    const before = { own, others, pushedMark }
    own = changes.own()
    const nowMs = clock.monotonicMs()
    const newBeat = pushed?.beat() ?? beat
    if (newBeat !== beat) {
      beat = newBeat
      pushedMark = pushed?.mark() ?? -1
      // The mark was read after the previous check; nothing here shows when.
      seenMs = Math.max(seenMs, checkedMs)
    }
    checkedMs = nowMs
    if (nowMs - seenMs >= othersSeenMs) {
      others = changes.others()
      seenMs = nowMs
    }
    return own !== before.own || others !== before.others || pushedMark !== before.pushedMark
  }
  return prefix => {
    if (isChanged() || remembered.size >= rememberedMax) remembered.clear()
    const known = remembered.get(prefix)
    if (known !== undefined) return known
    const found = find(prefix)
    remembered.set(prefix, found)
    return found
  }
}
