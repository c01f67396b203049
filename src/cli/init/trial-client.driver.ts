// Service A as a client of this very host calls it. Effects: HTTPS requests.

import { readFileSync } from 'node:fs'
import { Type } from '@sinclair/typebox'
import { Fault } from '../../base/fault.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import { checkedJson } from '../../contract/check.ts'
import { fetchDirectly } from '../../linux/net/outgoing.ts'

/** Fields of an instance that are needed here. */
const Instance = Type.Object({ name: Type.String({ pattern: '^[a-z0-9]{8}$' }), status: Type.String() })
const Answer = Type.Object({ data: Instance })

export type TrialClient = {
  readonly api: URL
  readonly create: (publicKey: string) => Promise<typeof Instance.static>
  readonly remove: (name: string) => Promise<typeof Instance.static>
}

const requestTimeoutMs = 30_000
const shownBytesMax = 500

/** Every method's Faults: api.unreachable, host.command_failed (a refusal, in the service's words). */
export function clientOf(status: AdminStatus, { key }: { readonly key: string }): TrialClient {
  const { tls, listen, domain } = status
  const local = new URL(listen.instances)
  // A certificate of the operator's own names the host as clients call it.
  const api = tls.ca_file === null ? new URL(`https://instances.${domain}:${local.port || 443}`) : local
  const ca = tls.ca_file === null ? {} : { ca: readFileSync(tls.ca_file, 'utf8') }
  const send = async (method: string, path: string, body?: unknown) => {
    const url = new URL(path, api)
    const response = await fetchDirectly(url, {
      method,
      tls: ca,
      headers: {
        Authorization: `Bearer ${key}`,
        'Content-Type': 'application/json',
        ...(method === 'POST' ? { 'Idempotency-Key': crypto.randomUUID() } : {}),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(requestTimeoutMs),
    }).catch((error: unknown) => {
      throw new Fault('api.unreachable', `${url.host}: ${error instanceof Error ? error.message : error}`)
    })
    const bytes = new Uint8Array(await response.arrayBuffer())
    const what = `${method} ${path}`
    if (!response.ok) {
      const words = new TextDecoder().decode(bytes.subarray(0, shownBytesMax))
      throw new Fault('host.command_failed', `${what}: ${response.status}: ${words}`)
    }
    return checkedJson(Answer, bytes, { what, code: 'host.command_failed' }).data
  }
  return {
    api,
    create: publicKey => send('POST', '/v1/instances', { public_key: publicKey }),
    remove: name => send('DELETE', `/v1/instances/${name}`),
  }
}
