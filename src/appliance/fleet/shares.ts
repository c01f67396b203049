// The parts of gateway keys' limits that this host's gateway leases in a fleet, in this process or in its VM. Effects:
// statements to PostgreSQL, reads the store.

import { newUuid } from '../../base/ids.ts'
import { family, metricsText } from '../../base/prometheus.ts'
import type { Runtime } from '../../base/runtime.ts'
import type { Config } from '../../config/schema.ts'
import { type Amounts, NO_AMOUNTS, type ShareAnswer } from '../../contract/vm/shares.ts'
import { actingFor } from '../../fleet/acting.ts'
import { reasonOf } from '../../fleet/failures.ts'
import { ShareAllocator } from '../../fleet/rate-limits/share-allocator.ts'
import type { KeySharesDeps } from '../../inference/limits/key-shares.ts'
import type { Store } from '../../store/db.ts'
import { prepareGatewayKeyLookup } from '../../store/directory/gateway-key.query.ts'
import type { DirectoryLink } from './directory.ts'
import type { Fleet } from './hosts.ts'

export type FleetShares = {
  /** For the gateway of this process: call once, before it serves. */
  readonly ofProcess: () => Pick<KeySharesDeps, 'renew' | 'isShared' | 'keysPerAskMax'>
  /** For gateway VMs, by the receipt key of the process in them. */
  readonly ofVms: {
    readonly renew: (receiptKey: string, asked: { readonly turn: number; readonly asks: Asks }) => Promise<ShareAnswer>
    /** The VM has ended. Never rejects. */
    readonly end: (receiptKey: string) => Promise<void>
  }
  /** The gateway of this process has ended. Never rejects. */
  readonly end: () => Promise<void>
  /** Metrics. */
  readonly render: () => string
}

type Asks = Parameters<ShareAllocator['renew']>[2]

/**
 * In one statement: all keys that most hosts have in use.
 * No share: the next statement has the remaining keys.
 */
const keysPerStatementMax = 512

export type SharesParts = Pick<Runtime, 'random' | 'log'> & {
  readonly fleet: Pick<Fleet, 'database'>
  readonly link: Pick<DirectoryLink, 'isMember'>
  readonly config: Config
  readonly store: Store
}

/** Null if this host is in no fleet. */
export function composeShares({ fleet, link, config, store, random, log }: SharesParts): FleetShares | null {
  if (fleet.database === null) return null
  const postgres = actingFor(fleet.database.postgres, link.isMember)
  const allocator = new ShareAllocator({ postgres, hostId: store.hostId, limitsOf: limitsIn(store, config) })
  const end = (member: string) =>
    allocator.end(member).catch(error => {
      log.unit('fleet').warn('the end of a gateway could not be reported to the fleet: its parts are free in minutes', {
        problem: reasonOf(error),
      })
    })
  const member = newUuid(random)
  const counts = { answered: 0, failed: 0 }
  const counted = async <T>(ask: () => Promise<T>): Promise<T> => {
    try {
      const answer = await ask()
      counts.answered += 1
      return answer
    } catch (error) {
      counts.failed += 1
      throw error
    }
  }
  return {
    ofProcess: () => {
      let isFirst = true
      return {
        isShared: () => true,
        keysPerAskMax: keysPerStatementMax,
        renew: (turn, asks) =>
          counted(async () => {
            // The gateway that was here before ended with its process.
            if (isFirst) await allocator.endOthers(member)
            isFirst = false
            return await allocator.renew(member, turn, asks)
          }),
      }
    },
    ofVms: { renew: (receiptKey, { turn, asks }) => counted(() => allocator.renew(receiptKey, turn, asks)), end },
    end: () => end(member),
    render: () => metricsOf(counts),
  }
}

function metricsOf(counts: Readonly<Record<string, number>>): string {
  const samples = Object.entries(counts).map(([outcome, count]) => [{ outcome }, count] as const)
  const help = 'Questions of the gateways of this host for parts of keys’ limits, every 2 s while keys are in use.'
  return metricsText([family('strongroom_fleet_share_leases_total', help, 'counter', samples)])
}

/** From the directory, not from a gateway's statement about a key. */
function limitsIn({ directory }: Store, { inference }: Config): (prefix: string) => Amounts | null {
  const find = prepareGatewayKeyLookup(directory.db)
  return prefix => {
    const found = find(prefix)
    if (found === null) return null
    const { key, organizationStatus } = found
    if (key.revokedAtMs !== null || organizationStatus !== 'active') return [...NO_AMOUNTS]
    return [
      key.requestsPerMinute ?? inference.key_requests_per_minute,
      key.tokensPerMinute ?? inference.key_tokens_per_minute,
      key.concurrencyMax ?? inference.key_concurrency_max,
    ]
  }
}
