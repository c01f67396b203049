// Fresh evidence of instances through any host of a fleet: real PostgreSQL, HTTP and TLS between the hosts; evidence of
// the simulated platform.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type Host, openFleet } from '../../rigs/fleet/fleet.ts'

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('fresh evidence', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  /** `owner` has the instance, `other` does not. */
  async function withInstance(
    options: { readonly attestationsPerMinute?: number; readonly mayBoot?: Promise<unknown> } = {},
  ) {
    const fleet = await openFleet(server)
    const owner = await fleet.host('owner', { isAttested: true, ...options })
    const other = await fleet.host('other', { isAttested: true, places: 0, ...options })
    await until('the hosts know each other', 60_000, () =>
      [owner, other].every(({ inside }) => inside.peers.watch.view().some(({ isReached }) => isReached)),
    )
    const { name } = await owner.created()
    const key = await owner.newKey('acme')
    return { fleet, owner, other, name, key, [Symbol.asyncDispose]: () => fleet[Symbol.asyncDispose]() }
  }

  async function ask(host: Host, name: string, key: string, query: string) {
    const response = await fetch(`${host.inside.url}/v1/instances/${name}/attestation${query}`, {
      headers: { Authorization: `Bearer ${key}`, 'X-Correlation-ID': 'mine' },
    })
    const body = (await response.json()) as {
      readonly request_id: string
      readonly correlation_id: string
      readonly data: { readonly nonce: string; readonly name: string; readonly receipt: string }
      readonly error: { readonly code: string; readonly message: string }
    }
    return { status: response.status, headers: response.headers, body }
  }

  const newNonce = () => toBase64Url(systemRandom(32))
  const ready = ({ owner, name }: { owner: Host; name: string }) =>
    until('it is ready', 60_000, async () => (await owner.shown(name)).status === 'ready')

  // Goal: a client gets the same whichever host it asks, from the VM itself, over its own nonce.
  test('through either host', async () => {
    await using it = await withInstance()
    await ready(it)
    for (const host of [it.owner, it.other]) {
      const nonce = newNonce()
      const { status, headers, body } = await ask(host, it.name, it.key, `?nonce=${nonce}`)
      expect([status, body.data.nonce, body.data.name]).toEqual([200, nonce, it.name])
      expect(headers.get('x-strongroom-platform')).toBe('tcg; simulated')
      expect(headers.get('cache-control')).toBe('no-store')
      // One id, which both hosts have in their logs.
      expect([headers.get('x-request-id'), headers.get('x-correlation-id')]).toEqual([body.request_id, 'mine'])
      expect(body.correlation_id).toBe('mine')
    }
    expect([it.owner.inside.attested.asked.length, it.other.inside.attested.asked.length]).toEqual([2, 0])
    expect(it.other.inside.peers.caller.view()).toEqual({ answered: 1, failed: 0 })
  })

  // Goal: a host that passes requests on is no way around what the other one refuses.
  test('refusals are the same', async () => {
    const booting = Promise.withResolvers<void>()
    await using it = await withInstance({ mayBoot: booting.promise })
    const stranger = await it.owner.newKey('globex')
    const cases = [
      [it.key, '?nonce=x'],
      [it.key, `?nonce=${newNonce()}&more=1`],
      [stranger, `?nonce=${newNonce()}`],
      [it.key.replace(/.$/, last => (last === 'a' ? 'b' : 'a')), `?nonce=${newNonce()}`],
      // It is not ready.
      [it.key, `?nonce=${newNonce()}`],
    ] as const
    const statuses: number[] = []
    for (const [key, query] of cases) {
      const [direct, passed] = [await ask(it.owner, it.name, key, query), await ask(it.other, it.name, key, query)]
      expect([passed.status, passed.body.error]).toEqual([direct.status, direct.body.error])
      statuses.push(direct.status)
    }
    expect(statuses).toEqual([400, 400, 404, 401, 409])
    booting.resolve()
    await ready(it)
    await it.owner.revoke(it.key)
    expect((await ask(it.other, it.name, it.key, `?nonce=${newNonce()}`)).status).toBe(401)
    expect(it.owner.inside.attested.asked).toEqual([])
  })

  // Goal: the limit of fresh attestations is one, however many hosts are asked.
  test('one limit for all hosts', async () => {
    await using it = await withInstance({ attestationsPerMinute: 2 })
    await ready(it)
    const statuses: number[] = []
    for (const host of [it.owner, it.other, it.other, it.owner]) {
      const { status, headers } = await ask(host, it.name, it.key, `?nonce=${newNonce()}`)
      statuses.push(status)
      if (status === 429) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    }
    expect(statuses).toEqual([200, 200, 429, 429])
  })

  // Goal: without its host there is no fresh evidence, which a client learns at once; what is kept is still shown.
  test('its host is away', async () => {
    await using it = await withInstance()
    await ready(it)
    await until('the other has a copy', 60_000, async () => {
      const { answered } = it.other.inside.peers.caller.view()
      expect((await ask(it.other, it.name, it.key, '')).status).toBe(200)
      return it.other.inside.peers.caller.view().answered === answered
    })
    await it.owner.stop()
    const { status, headers, body } = await ask(it.other, it.name, it.key, `?nonce=${newNonce()}`)
    expect([status, headers.get('retry-after')]).toEqual([503, '2'])
    expect(body.error).toMatchObject({ code: 'internal_error', message: expect.stringContaining('Try again after') })
    expect((await ask(it.other, it.name, it.key, '')).status).toBe(200)
  })
})
