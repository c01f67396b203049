// A command that says that a gateway key is good, or revoked, is right about it.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../scripts/rigs/clock.ts'
import { until } from '../../scripts/rigs/until.ts'
import { listGoodGatewayKeys } from '../../src/store/directory/gateway-key.query.ts'
import { asRoot } from '../rigs/admin.ts'
import { egressAdmin } from '../rigs/instances/egress-admin.ts'

test('goal: a change of keys is answered once the VMs of the gateway have them, or could not be told in time', async () => {
  const clock = createManualClock()
  const told: string[][] = []
  let isTold = Promise.withResolvers<void>()
  const { admin, store } = egressAdmin({
    clock,
    gateway: {
      view: () => ({ gatewayVms: [], problem: null }),
      replace: () => false,
      session: () => null,
      pushControl: () => {
        told.push(listGoodGatewayKeys(store.directory.db).map(({ prefix }) => prefix))
        return isTold.promise
      },
    },
  })
  const ask = (method: string, path: string, body?: object) =>
    asRoot(admin)(
      new Request(`http://admin${path}`, {
        method,
        headers: { 'content-type': 'application/json' },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }),
    )
  /** The answer, which must not have come before `then`. */
  const answered = async (path: string, body: object | undefined, then: () => void) => {
    const before = told.length
    let isAnswered = false
    const answer = Promise.resolve(ask('POST', path, body)).finally(() => {
      isAnswered = true
    })
    await until('the VMs are told', 15_000, () => told.length > before)
    // By its answer, that of the change would be here as well.
    await ask('GET', '/organizations')
    expect([path, isAnswered]).toEqual([path, false])
    then()
    return answer
  }
  const done = () => {
    isTold.resolve()
    isTold = Promise.withResolvers()
  }
  const terms = { requests_per_minute: null, tokens_per_minute: null, concurrency_max: null, expires_at: null }
  const created = await answered('/organizations/acme/gateway-keys', terms, done)
  const { prefix } = (await created.json()) as { prefix: string }
  expect(created.status).toBe(201)
  await answered('/organizations/acme/suspend', undefined, done)
  await answered('/organizations/acme/resume', undefined, done)
  // Unreachable VMs delay it no longer than that.
  const revoked = await answered(`/gateway-keys/${prefix}/revoke`, undefined, () => clock.advance(2_000))
  expect(revoked.status).toBe(200)
  expect(told).toEqual([[prefix], [], [prefix], []])
})
