// A customer of service A in end-to-end tests: one organization, one key, the five endpoints.

import type { InstanceRecord, UsageSummary } from '../../../src/contract/http/instance.ts'
import { type ApiResponse, type Appliance, createAppliance } from '../appliance.ts'
import { qemuProcesses } from '../leftovers.ts'
import { until } from '../until.ts'

export type Envelope<T> = {
  request_id: string
  correlation_id: string | null
  data: T
  error?: { code: string; message: string; param?: string }
}

export type Customer = {
  readonly slug: string
  readonly key: string
  readonly create: (idempotencyKey?: string) => Promise<ApiResponse<Envelope<InstanceRecord>>>
  readonly retrieve: (name: string) => Promise<InstanceRecord>
  readonly list: () => Promise<InstanceRecord[]>
  readonly remove: (name: string) => Promise<ApiResponse<Envelope<InstanceRecord>>>
  /** Deletes it and waits until it is terminated. */
  readonly end: (name: string, timeoutMs?: number) => Promise<void>
  readonly usage: () => Promise<UsageSummary>
  /** Polls until the instance has this status; throws when it becomes `failed` instead, or in time does not. */
  readonly reached: (name: string, status: InstanceRecord['status'], timeoutMs: number) => Promise<InstanceRecord>
}

/** Makes the organization and a key through the operator's command line. */
export async function createCustomer(
  appliance: Pick<Appliance, 'admin' | 'http' | 'publicKey' | 'log'>,
  slug: string,
): Promise<Customer> {
  await appliance.admin('org', 'create', slug)
  const { key } = await appliance.admin<{ key: string }>('key', 'create', slug)
  const retrieve = async (name: string) =>
    (await appliance.http<Envelope<InstanceRecord>>('GET', `/v1/instances/${name}`, { key })).body.data
  const remove: Customer['remove'] = name => appliance.http('DELETE', `/v1/instances/${name}`, { key })
  const reached: Customer['reached'] = async (name, status, timeoutMs) => {
    let record = await retrieve(name)
    const isReached = async () => {
      record = await retrieve(name)
      if (record.status === 'failed' && status !== 'failed') throw new Error(`${name} failed: ${record.failure_code}`)
      return record.status === status
    }
    await until(`${name} is ${status}`, timeoutMs, isReached).catch(error => {
      throw new Error(
        [`${error.message}; it is ${record.status}`, ...appliance.log().split('\n').slice(-40)].join('\n'),
      )
    })
    return record
  }
  return {
    slug,
    key,
    create: idempotencyKey =>
      appliance.http('POST', '/v1/instances', {
        key,
        body: { public_key: appliance.publicKey },
        ...(idempotencyKey === undefined ? {} : { headers: { 'Idempotency-Key': idempotencyKey } }),
      }),
    retrieve,
    list: async () =>
      (await appliance.http<Envelope<{ instances: InstanceRecord[] }>>('GET', '/v1/instances', { key })).body.data
        .instances,
    remove,
    end: async (name, timeoutMs = 60_000) => {
      await remove(name)
      await reached(name, 'terminated', timeoutMs)
    },
    usage: async () => (await appliance.http<Envelope<UsageSummary>>('GET', '/v1/usage', { key })).body.data,
    reached,
  }
}

/** An appliance that runs, with one customer. */
export type Started = AsyncDisposable & { readonly appliance: Appliance; readonly acme: Customer }

/** `options` are those of `createAppliance`. */
export async function startWithCustomer(...options: Parameters<typeof createAppliance>): Promise<Started> {
  await using undo = new AsyncDisposableStack()
  const appliance = undo.use(await createAppliance(...options))
  await appliance.start()
  const acme = await createCustomer(appliance, 'acme')
  const kept = undo.move()
  return { appliance, acme, [Symbol.asyncDispose]: () => kept.disposeAsync() }
}

/** Waits until this appliance runs one QEMU. */
export async function qemuSpawned({ stateDir }: Appliance): Promise<void> {
  await until('QEMU is spawned', 60_000, () => qemuProcesses(stateDir).length === 1)
}
