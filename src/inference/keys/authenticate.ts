// Gateway keys `gw_<prefix8>_<secret32>`: who sends a request. Effects: reads the store, notes the key's use.

import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import { KEY_FORMATS, type MintedKey, secretMatches } from '../../http/bearer.ts'
import { createKeyUse } from '../../http/key-use.ts'
import type { DirectoryDb } from '../../store/db.ts'
import {
  gatewayTouchIntervalMs,
  type KnownGatewayKey,
  prepareChangeMark,
  prepareGatewayKeyLookup,
  touchGatewayKey,
} from '../../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../../store/directory/gateway-key.table.ts'
import type { Authenticate, Budget, Caller } from '../types.ts'

export type GatewayAuthDeps = {
  readonly db: DirectoryDb
  readonly clock: Pick<Clock, 'nowMs' | 'monotonicMs'>
  readonly log: Logger
  /** For keys without limits of their own. */
  readonly defaults: {
    readonly requestsPerMinute: number
    readonly tokensPerMinute: number
    readonly concurrencyMax: number
  }
}

/** Limits of keys without their own. */
export function keyDefaults(
  settings: Pick<GatewaySettings, 'keyRequestsPerMinute' | 'keyTokensPerMinute' | 'keyConcurrencyMax'>,
): GatewayAuthDeps['defaults'] {
  return {
    requestsPerMinute: settings.keyRequestsPerMinute,
    tokensPerMinute: settings.keyTokensPerMinute,
    concurrencyMax: settings.keyConcurrencyMax,
  }
}

/** The same 401 for a malformed, unknown, revoked or expired key, a suspended organization and a deleted instance. */
export function createGatewayAuthenticate(deps: GatewayAuthDeps): Authenticate {
  return createKeyAuthenticate({
    ...deps,
    find: createLookup(deps),
    onUse: createKeyUse({
      log: deps.log,
      what: 'a gateway key',
      intervalMs: gatewayTouchIntervalMs,
      write: use => touchGatewayKey(deps.db, use),
    }),
  })
}

export type KeyAuthDeps = Pick<GatewayAuthDeps, 'clock' | 'defaults'> & {
  readonly find: (prefix: string) => KnownGatewayKey | null
  readonly onUse: (key: GatewayKey, nowMs: number) => void
}

/** As `createGatewayAuthenticate`, over keys from anywhere. Nobody changes an object that `find` has returned. */
export function createKeyAuthenticate({ find, onUse, clock, defaults }: KeyAuthDeps): Authenticate {
  /** Made once for each row that was read, because most requests come from a few keys. */
  const callers = new WeakMap<KnownGatewayKey, Caller>()
  const callerOf = (found: KnownGatewayKey): Caller => {
    const known = callers.get(found)
    if (known !== undefined) return known
    const caller = newCaller(found, defaults)
    callers.set(found, caller)
    return caller
  }
  return headers => {
    const presented = KEY_FORMATS.gw.parse(headers.get('authorization'))
    if (presented === null) throw unauthenticated()
    const found = find(presented.prefix)
    const matches = secretMatches(presented.secret, found?.key.secretSha256 ?? null)
    const nowMs = clock.nowMs()
    if (found === null || !matches || !isActive(found, nowMs)) throw unauthenticated()
    onUse(found.key, nowMs)
    return callerOf(found)
  }
}

function newCaller({ key, organizationBudget }: KnownGatewayKey, defaults: GatewayAuthDeps['defaults']): Caller {
  return {
    keyPrefix: key.prefix,
    keyDigest: toHex(key.secretSha256),
    organizationId: key.organizationId,
    instanceId: key.instanceId,
    madeBy: key.isClientMade ? 'client' : 'host',
    requestsPerMinute: key.requestsPerMinute ?? defaults.requestsPerMinute,
    tokensPerMinute: key.tokensPerMinute ?? defaults.tokensPerMinute,
    concurrencyMax: key.concurrencyMax ?? defaults.concurrencyMax,
    rules: { models: key.models, aliases: key.aliases },
    budgets: { key: budgetOf(key), organization: budgetOf(organizationBudget) },
  }
}

export function mintGatewayKey(random: RandomBytes): MintedKey {
  return KEY_FORMATS.gw.mint(random)
}

const rememberedMax = 4096

/**
 * How long a change by another connection may go unseen. Keys are changed by the connection of `db` alone, whose
 * changes the very next request sees; any other is a person who writes by hand while the daemon runs.
 */
export const othersSeenMs = 1_000

/** Keeps rows, and their absence, in memory until anything in the database changes. */
function createLookup({
  db,
  clock,
}: Pick<GatewayAuthDeps, 'db' | 'clock'>): (prefix: string) => KnownGatewayKey | null {
  const find = prepareGatewayKeyLookup(db)
  const changes = prepareChangeMark(db)
  const remembered = new Map<string, KnownGatewayKey | null>()
  let own = -1
  let others = -1
  let lookDueMs = Number.NEGATIVE_INFINITY
  const isChanged = (): boolean => {
    const before = { own, others }
    own = changes.own()
    const nowMs = clock.monotonicMs()
    if (nowMs >= lookDueMs) {
      others = changes.others()
      lookDueMs = nowMs + othersSeenMs
    }
    return own !== before.own || others !== before.others
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

function isActive({ key, organizationStatus, instanceDesired }: KnownGatewayKey, nowMs: number): boolean {
  if (key.revokedAtMs !== null || organizationStatus !== 'active' || instanceDesired === 'absent') return false
  return key.expiresAtMs === null || nowMs < key.expiresAtMs
}

function budgetOf({ budgetNanoUsd, budgetTokens }: Pick<GatewayKey, 'budgetNanoUsd' | 'budgetTokens'>): Budget {
  return { nanoUsd: budgetNanoUsd, tokens: budgetTokens }
}

function unauthenticated(): Fault {
  return new Fault(
    'unauthenticated',
    'The API key is missing, wrong, expired or revoked. Check the key that your program sends, or ask the operator for one.',
  )
}
