// Organizations and keys: made, used and revoked by the operator. Effects: those of an appliance.

import { join } from 'node:path'
import { createAppliance } from '../rigs/appliance.ts'
import { holdingFindings } from './audit.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { calmSettings, settledStart } from './settings.ts'

export const accountsScenario: Scenario = {
  name: 'account',
  about: 'an organization is made, a key of each service is made and revoked, and the organization is suspended',
  tracedFrom: 'run',
  open: async () => openAccounts(),
}

type Kind = 'keys' | 'gateway-keys'
/** A key as its maker got it. */
type Made = { readonly kind: Kind; readonly key: string; readonly prefix: string; isRevoked: boolean }

const terms = {
  keys: { scope: 'write' },
  'gateway-keys': { requests_per_minute: null, tokens_per_minute: null, concurrency_max: null, expires_at: null },
} as const satisfies Record<Kind, object>

async function openAccounts(): Promise<Stage> {
  const appliance = await createAppliance(...calmSettings())
  await appliance.start()
  await settledStart(appliance)
  let run = 0
  let isMade = false
  let made: Made[] = []
  let isSuspended = false
  const slug = () => `run-${run}`
  const ask = (path: string, body?: object) =>
    fetch(`http://operator${path}`, {
      unix: join(appliance.stateDir, 'admin.sock'),
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    })
  const change = async <T>(path: string, body: object = {}): Promise<T> => {
    const response = await ask(path, body)
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
    return (await response.json()) as T
  }

  return {
    appliance,
    prepare: async () => {
      run += 1
      isMade = false
      made = []
      isSuspended = false
    },
    run: async () => {
      await change('/organizations', { slug: slug() })
      isMade = true
      for (const kind of ['keys', 'gateway-keys'] as const) {
        const { key, prefix } = await change<{ key: string; prefix: string }>(
          `/organizations/${slug()}/${kind}`,
          terms[kind],
        )
        const item: Made = { kind, key, prefix, isRevoked: false }
        made.push(item)
        if (kind === 'keys') await appliance.http('GET', '/v1/instances', { key })
        await change(`/${kind}/${prefix}/revoke`)
        item.isRevoked = true
      }
      await change(`/organizations/${slug()}/suspend`)
      isSuspended = true
    },
    unsettled: async () => holdingFindings(appliance, 0),
    audit: async (): Promise<Findings> => {
      const { status } = await ask('/organizations', { slug: slug() })
      // Without an acknowledgement both are right.
      const isRight = isMade ? status === 409 : status === 409 || status === 201
      return [
        ...(isRight ? [] : [`the same organization again gets ${status}`]),
        ...(await keyFindings('keys')),
        ...(await keyFindings('gateway-keys')),
        ...(await statusFindings()),
      ]
    },
    clear: async () => holdingFindings(appliance, 0),
    [Symbol.asyncDispose]: () => appliance[Symbol.asyncDispose](),
  }

  async function keyFindings(kind: Kind): Promise<Findings> {
    const response = await ask(`/organizations/${slug()}/${kind}`)
    const { keys } = (await response.json()) as { keys: { prefix: string; revoked_at: string | null }[] }
    const own = made.filter(made => made.kind === kind)
    return [
      ...(keys.length <= 1 ? [] : [`one request has made ${keys.length} ${kind}`]),
      ...own
        .filter(({ prefix }) => !keys.some(key => key.prefix === prefix))
        .map(made => `the key ${made.prefix} is lost`),
      ...keys
        .filter(key => own.some(made => made.prefix === key.prefix && made.isRevoked) && key.revoked_at === null)
        .map(key => `the revoked key ${key.prefix} is good again`),
    ]
  }

  async function statusFindings(): Promise<Findings> {
    const { status } = (await (await ask(`/organizations/${slug()}`)).json()) as { status: string }
    return isSuspended && status !== 'suspended' ? [`the suspended organization is ${status}`] : []
  }
}
