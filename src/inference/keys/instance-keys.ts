// The gateway key of an instance, handed over in its claim. Effects: the store; one secret file.
// A claim may be sent again, and must carry the same key then; yet only the key's hash may be stored. So the key is derived:
// HMAC-SHA-256 under a random secret of this host, in a file of its own, so that whoever reads the database alone learns no key.

import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { assert } from '../../base/assert.ts'
import { concat, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, wrapFault } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { Logger } from '../../base/log.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import type { DirectoryStore } from '../../store/db.ts'
import {
  findGatewayKey,
  insertGatewayKey,
  revokeDeletedInstancesGatewayKeys,
} from '../../store/directory/gateway-key.query.ts'
import { instanceById } from '../../store/directory/instance.query.ts'
import { mintGatewayKey } from './authenticate.ts'

export type InstanceKeysDeps = {
  readonly store: DirectoryStore
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
  /** From `loadKeySecret`. */
  readonly secret: Uint8Array
}

export type InstanceKeys = {
  /** The whole key, the same at every call. Faults: not_found (no such instance), conflict (it is being deleted). */
  readonly instanceKey: (instanceId: string) => string
  /** Revokes the keys of all instances that are wished gone: at start, and after each deletion. Authentication refuses them from the deletion on even before. Never throws. */
  readonly revokeDeleted: () => void
}

const secretBytes = 32
const attemptsMax = 8

export function createInstanceKeys({ store, clock, log, secret }: InstanceKeysDeps): InstanceKeys {
  assert(secret.length === secretBytes, `the key secret has ${secretBytes} bytes`)
  return {
    instanceKey: instanceId =>
      store.transact(tx => {
        const instance = instanceById(tx, instanceId)
        if (instance === null) throw new Fault('not_found', `there is no instance ${instanceId}`)
        if (instance.desired === 'absent') throw new Fault('conflict', `instance ${instanceId} is being deleted`)
        for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
          const { key, prefix, secretSha256 } = mintGatewayKey(derivedBytes(secret, `${instanceId}/${attempt}`))
          const known = findGatewayKey(tx, prefix)
          if (known?.instanceId === instanceId) return key
          if (known !== null) continue
          insertGatewayKey(tx, {
            ...ITS_LIMITS,
            prefix,
            organizationId: instance.organizationId,
            instanceId,
            secretSha256,
            nowMs: clock.nowMs(),
          })
          return key
        }
        throw new Fault('internal', `no free gateway key prefix in ${attemptsMax} attempts`)
      }),
    revokeDeleted: () => {
      try {
        const prefixes = revokeDeletedInstancesGatewayKeys(store.db, { nowMs: clock.nowMs() })
        if (prefixes.length > 0) log.info('gateway keys of deleted instances revoked', { keys: prefixes })
      } catch (error) {
        log.error('gateway keys of deleted instances were not revoked; they are refused all the same', { error })
      }
    },
  }
}

const ITS_LIMITS = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null } as const

/**
 * The secret in `path`, made there (mode 0600) on first use. Faults: internal.
 * Without the file a new one is made: instances that are claimed already keep their keys, a claim sent again gets another.
 */
export function loadKeySecret(path: string, random: RandomBytes): Uint8Array {
  const kept = readIfThere(path)
  if (kept !== null) {
    if (kept.length !== secretBytes)
      throw new Fault('internal', `${path} must hold ${secretBytes} bytes; remove it to start anew`)
    return kept
  }
  const secret = random(secretBytes)
  writeFileAtomic(path, secret, { mode: 0o600 })
  return secret
}

/** A stream of bytes that only the secret and the label decide: HMAC-SHA-256 over label and counter. */
function derivedBytes(secret: Uint8Array, label: string): RandomBytes {
  let counter = 0
  return lengthBytes => {
    const blocks: Uint8Array[] = []
    for (let have = 0; have < lengthBytes; have += 32) {
      blocks.push(
        createHmac('sha256', secret)
          .update(utf8(`strongroom instance key v1/${label}/${counter}`))
          .digest(),
      )
      counter += 1
    }
    return concat(...blocks).subarray(0, lengthBytes)
  }
}

function readIfThere(path: string): Uint8Array | null {
  try {
    return new Uint8Array(readFileSync(path))
  } catch (error) {
    if (Reflect.get(Object(error), 'code') === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
}
