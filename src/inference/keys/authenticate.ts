// Gateway keys `gw_<prefix8>_<secret32>`: identifies the sender of a request. No I/O except `find` and `onUse`.

import { toHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import { SHORT_PERIODS, type ShortBudgets } from '../../contract/key-rules.ts'
import type { GatewaySettings } from '../../contract/vm/workload.ts'
import { KEY_FORMATS, type MintedKey, secretMatches } from '../../http/bearer.ts'
import type { KnownGatewayKey } from '../../store/directory/gateway-key.query.ts'
import type { GatewayKey } from '../../store/directory/gateway-key.table.ts'
import type { Authenticate, Budget, Caller } from '../types.ts'

/** Default limits for keys that have none. */
export type KeyDefaults = {
  readonly requestsPerMinute: number
  readonly tokensPerMinute: number
  readonly concurrencyMax: number
}

/** Returns the defaults from a gateway's settings. */
export function keyDefaults(
  settings: Pick<GatewaySettings, 'keyRequestsPerMinute' | 'keyTokensPerMinute' | 'keyConcurrencyMax'>,
): KeyDefaults {
  return {
    requestsPerMinute: settings.keyRequestsPerMinute,
    tokensPerMinute: settings.keyTokensPerMinute,
    concurrencyMax: settings.keyConcurrencyMax,
  }
}

export type KeyAuthDeps = {
  readonly clock: Pick<Clock, 'nowMs'>
  readonly defaults: KeyDefaults
  readonly find: (prefix: string) => KnownGatewayKey | null
  readonly onUse: (key: GatewayKey, nowMs: number) => void
}

/**
 * Throws the same 401 for a malformed, unknown, revoked or expired key, a suspended organization and a deleted
 * instance. Callers never change an object that `find` has returned.
 */
export function createKeyAuthenticate({ find, onUse, clock, defaults }: KeyAuthDeps): Authenticate {
  /** Built once per row read, because most requests use a few keys. */
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

function newCaller({ key, organizationBudget }: KnownGatewayKey, defaults: KeyDefaults): Caller {
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
    budgets: {
      key: budgetOf(key),
      organization: budgetOf(organizationBudget),
      ...shortBudgetsOf(key.shortBudgets, organizationBudget.shortBudgets),
      ...(key.shortBudgets?.endUser === undefined ? {} : { endUser: key.shortBudgets.endUser }),
    },
  }
}

export function mintGatewayKey(random: RandomBytes): MintedKey {
  return KEY_FORMATS.gw.mint(random)
}

function isActive({ key, organizationStatus, instanceDesired }: KnownGatewayKey, nowMs: number): boolean {
  if (key.revokedAtMs !== null || organizationStatus !== 'active' || instanceDesired === 'absent') return false
  return key.expiresAtMs === null || nowMs < key.expiresAtMs
}

function budgetOf({ budgetNanoUsd, budgetTokens }: Pick<GatewayKey, 'budgetNanoUsd' | 'budgetTokens'>): Budget {
  return { nanoUsd: budgetNanoUsd, tokens: budgetTokens }
}

function shortBudgetsOf(key: ShortBudgets, organization: ShortBudgets): Pick<Caller['budgets'], 'short'> {
  const none: Budget = { nanoUsd: null, tokens: null }
  const kinds = SHORT_PERIODS.filter(kind => (key?.[kind] ?? organization?.[kind]) !== undefined)
  if (kinds.length === 0) return {}
  return { short: kinds.map(kind => ({ kind, key: key?.[kind] ?? none, organization: organization?.[kind] ?? none })) }
}

function unauthenticated(): Fault {
  return new Fault(
    'unauthenticated',
    'The API key is missing, wrong, expired or revoked. Check the key that your program sends, or ask the operator for one.',
  )
}
