// Gateway keys of instances. Each guest draws its own key, so this host has only the digest. Effects: the store.

import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import type { DrawnKey } from '../../contract/vm/claim.ts'
import type { DirectoryStore } from '../../store/db.ts'
import {
  findGatewayKey,
  insertGatewayKey,
  revokeDeletedInstancesGatewayKeys,
} from '../../store/directory/gateway-key.query.ts'
import { instanceById } from '../../store/directory/instance.query.ts'

export type InstanceKeysDeps = {
  readonly store: Pick<DirectoryStore, 'db' | 'transact'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
}

export type InstanceKeys = {
  /**
   * Registers the key that an instance's guest drew. Call it once evidence attests the digest. Registering the same key
   * again has no effect. Faults: not_found (no such instance), conflict (another key has the prefix, or the instance is
   * being deleted).
   */
  readonly registerKey: (instanceId: string, key: DrawnKey) => void
  /** Revokes the keys of all deleted instances, which authentication refuses already. Never throws. */
  readonly revokeDeleted: () => void
}

export function createInstanceKeys({ store, clock, log }: InstanceKeysDeps): InstanceKeys {
  return {
    registerKey: (instanceId, { prefix, secretSha256 }) =>
      store.transact(tx => {
        const instance = instanceById(tx, instanceId)
        if (instance === null) throw new Fault('not_found', `there is no instance ${instanceId}`)
        if (instance.desired === 'absent') throw new Fault('conflict', `instance ${instanceId} is being deleted`)
        const digest = present(fromHex(secretSha256), 'the schema lets only hexadecimal through')
        const known = findGatewayKey(tx, prefix)
        if (known?.instanceId === instanceId && known.secretSha256.equals(digest)) return
        const key = { ...DEFAULT_LIMITS, prefix, secretSha256: digest, isClientMade: true, instanceId }
        const { organizationId } = instance
        if (!insertGatewayKey(tx, { ...key, organizationId, nowMs: clock.nowMs() })) {
          throw new Fault('conflict', `another gateway key has the prefix ${prefix} that the guest drew`)
        }
      }),
    revokeDeleted: () => {
      try {
        const prefixes = revokeDeletedInstancesGatewayKeys(store.db, { nowMs: clock.nowMs() })
        if (prefixes.length > 0) log.info('gateway keys of deleted instances revoked', { keys: prefixes })
      } catch (error) {
        log.error('gateway keys of deleted instances were not revoked; they are refused anyway', { error })
      }
    },
  }
}

/** Null means the configured default, or no end. */
const DEFAULT_LIMITS = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  concurrencyMax: null,
  expiresAtMs: null,
} as const
