// The gateway key of an instance, delivered in its claim. Effects: the store; one secret file.
//
// A repeated claim must carry the same key, but the store may hold only the key's hash. So the key is derived:
// HMAC-SHA-256 under a random secret of this host in a file of its own, so that the database alone reveals no key.

import { createHmac } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { assert } from '../../base/assert.ts'
import { concat, utf8 } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, systemErrorCode, wrapFault } from '../../base/fault.ts'
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
  readonly store: Pick<DirectoryStore, 'db' | 'transact'>
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
  /** From `loadKeySecret`. */
  readonly secret: Uint8Array
}

export type InstanceKeys = {
  /** The whole key, the same at every call. Faults: not_found (no such instance), conflict (it is being deleted). */
  readonly instanceKey: (instanceId: string) => string
  /** Revokes the keys of all deleted instances, which authentication refuses already. Never throws. */
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
            ...DEFAULT_LIMITS,
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

/** Null: as the configuration says, and without an end. */
const DEFAULT_LIMITS = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  concurrencyMax: null,
  expiresAtMs: null,
} as const

/**
 * The secret in `path`, created there (mode 0600) on first use. Fault internal. If the file is lost, a new secret is
 * made: claimed instances keep their keys, but a repeated claim carries another key.
 */
export function loadKeySecret(path: string, random: RandomBytes): Uint8Array {
  const kept = readIfExists(path)
  if (kept !== null) {
    if (kept.length !== secretBytes)
      throw new Fault('internal', `${path} must hold ${secretBytes} bytes; remove it to start anew`)
    return kept
  }
  const secret = random(secretBytes)
  writeFileAtomic(path, secret, { mode: 0o600 })
  return secret
}

/** Bytes that depend on the secret and the label only: HMAC-SHA-256 over label and counter. */
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

function readIfExists(path: string): Uint8Array | null {
  try {
    return new Uint8Array(readFileSync(path))
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return null
    throw wrapFault(error, `read ${path}`)
  }
}
