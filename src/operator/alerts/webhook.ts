// Sends alerts to a webhook, signed as Standard Webhooks are. Effects: one request; reads the files of the secret and
// of the authorities, and makes that of the secret once.

import { createHmac } from 'node:crypto'
import { readFileSync, statSync } from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import type { RandomBytes } from '../../base/ids.ts'
import type { AlertMessage } from '../../contract/admin/alerts.ts'
import { writeFileAtomic } from '../../linux/files.ts'
import type { Outgoing } from '../../linux/net/outgoing.ts'
import type { AlertSender } from './notifier.ts'

export type WebhookSettings = {
  readonly url: string
  readonly secretFile: string
  /** Whether the daemon makes the file of the secret. */
  readonly isOwnSecret: boolean
  /** '' for the authorities of the system. */
  readonly caFile: string
}

const timeoutMs = 10_000
const secretBytes = 32
const fileBytesMax = 1_048_576
const secretPattern = /^whsec_([A-Za-z0-9+/]{32,88}={0,2})$/

export function createWebhook(
  settings: WebhookSettings,
  {
    random,
    clock,
    outgoing,
  }: { readonly random: RandomBytes; readonly clock: Pick<Clock, 'nowMs'>; readonly outgoing: Outgoing },
): AlertSender {
  const { url, secretFile, isOwnSecret, caFile } = settings
  if (isOwnSecret && statSync(secretFile, { throwIfNoEntry: false }) === undefined) {
    const secret = Buffer.from(random(secretBytes)).toString('base64')
    writeFileAtomic(secretFile, `whsec_${secret}\n`, { mode: 0o600 })
  }
  return {
    receiver: 'webhook',
    // The path may be a secret itself.
    target: new URL(url).origin,
    send: async (message, signal) => {
      const body = JSON.stringify(message)
      // Each attempt is signed again, because receivers refuse old signatures.
      const timestamp = Math.floor(clock.nowMs() / 1000)
      const headers = signedHeaders({ id: message.id, timestamp, body, secret: readSecret(secretFile) })
      const tls = caFile === '' ? {} : { tls: { ca: readSmall(caFile) } }
      const response = await post(outgoing, url, {
        ...{ method: 'POST', body, headers },
        signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
        ...tls,
      })
      // The body has no use, and may be endless.
      await response.body?.cancel().catch(() => {})
      if (!response.ok) throw new Error(`it answers with status ${response.status}`)
    },
  }
}

async function post(outgoing: Outgoing, url: string, init: BunFetchRequestInit): Promise<Response> {
  try {
    return await outgoing(url, init)
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') throw new Error(`no answer within ${timeoutMs} ms`)
    throw error
  }
}

/** Headers of a signed message: HMAC-SHA256 over id, time and body (Standard Webhooks, "Verifying signatures"). */
export function signedHeaders({
  id,
  timestamp,
  body,
  secret,
}: {
  readonly id: AlertMessage['id']
  /** Seconds since 1970. */
  readonly timestamp: number
  readonly body: string
  readonly secret: Uint8Array
}): Record<string, string> {
  const signature = createHmac('sha256', secret).update(`${id}.${timestamp}.${body}`).digest('base64')
  return {
    'content-type': 'application/json',
    'user-agent': 'strongroom',
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': `v1,${signature}`,
  }
}

function readSecret(file: string): Uint8Array {
  const [, base64] = secretPattern.exec(readSmall(file).trim()) ?? []
  if (base64 === undefined)
    throw new Error(`${file} must hold whsec_ and 24 to 64 bytes in base64, such as openssl rand -base64 32 prints`)
  return new Uint8Array(Buffer.from(base64, 'base64'))
}

/** Reads a small file of the operator. Throws with its name. */
export function readSmall(file: string): string {
  try {
    if (statSync(file).size > fileBytesMax) throw new Error(`it is larger than ${fileBytesMax} bytes`)
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new Error(`${file} cannot be read: ${messageOf(error)}`)
  }
}
