// Filters of the operator's list of instances, and refusals that name the field; real database.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { publicKey } from '../../scripts/rigs/instances/instances-service.ts'
import { newUuid } from '../../src/base/ids.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertInstance, moveInstance } from '../../src/store/directory/instance.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { asRoot } from '../rigs/admin.ts'
import { buildsAdmin } from '../rigs/build/queued-build.ts'

const startMs = Date.parse('2026-11-20T00:00:00.000Z')
const hourMs = 3_600_000
let store: Store
let admin: ReturnType<typeof asRoot>

/** Names a0 to a5 of acme, b0 to b2 of globex, an hour apart; every third one is terminated, and a4 has failed. */
beforeAll(() => {
  store = openStore(':memory:')
  const { db } = store.directory
  const names = { acme: ['a0', 'a1', 'a2', 'a3', 'a4', 'a5'], globex: ['b0', 'b1', 'b2'] }
  for (const [slug, own] of Object.entries(names)) {
    const organizationId = newUuid()
    insertOrganization(db, { id: organizationId, slug, nowMs: startMs })
    for (const [index, name] of own.entries()) {
      const id = newUuid()
      const nowMs = startMs + index * hourMs
      const fixed = { hostId: store.hostId, organizationId, agent: 'opencode', publicKey, vmId: null } as const
      const mode = { inferenceMode: 'default_gateway', inferenceModel: 'tiny' } as const
      insertInstance(db, { id, name, hostname: `${name}.x`, ...fixed, ...mode, nowMs })
      if (name === 'a4') moveInstance(db, { id, from: 'provisioning', to: 'failed', nowMs, failureCode: 'boot_failed' })
      if (index % 3 !== 2) continue
      moveInstance(db, { id, from: 'provisioning', to: 'terminating', nowMs })
      moveInstance(db, { id, from: 'terminating', to: 'terminated', nowMs, terminatedAtMs: nowMs })
    }
  }
  admin = asRoot(buildsAdmin(store, { cancelBuild: null, nowMs: () => startMs }))
})
afterAll(() => store.close())

type Listed = {
  readonly instances: readonly { readonly name: string }[]
  readonly more: boolean
  readonly error: { readonly message: string; readonly param?: string }
}
const noProblem: Listed['error'] = { message: '' }

async function ask(path: string, body?: string) {
  const init = body === undefined ? {} : { method: 'POST', body, headers: { 'content-type': 'application/json' } }
  const response = await admin(new Request(`http://admin${path}`, init))
  const text = await response.text()
  const { instances, more, error }: Listed = { instances: [], more: false, error: noProblem, ...JSON.parse(text) }
  return { status: response.status, instances, more, error }
}

async function names(query: string): Promise<string> {
  const { instances, more } = await ask(`/instances${query}`)
  return `${instances.map(({ name }) => name).join(' ')}${more ? ' +' : ''}`
}

// Goal: each filter alone and all together leave what they say, the newest within the limit, the oldest of these first.
test('filters', async () => {
  const since = (hours: number) => `since=${new Date(startMs + hours * hourMs).toISOString()}`
  const all = (await names('')).split(' ').sort().join(' ')
  expect(all).toBe('a0 a1 a2 a3 a4 a5 b0 b1 b2')
  expect(await names('?organization=acme')).toBe('a0 a1 a2 a3 a4 a5')
  expect(await names('?organization=acme&status=terminated')).toBe('a2 a5')
  expect(await names('?organization=acme&status=current')).toBe('a0 a1 a3 a4')
  expect(await names('?organization=acme&status=living')).toBe('a0 a1 a3')
  expect(await names('?organization=acme&status=failed')).toBe('a4')
  expect(await names('?name=b')).toBe('b0 b1 b2')
  expect(await names('?name=b1')).toBe('b1')
  expect(await names(`?organization=acme&${since(3)}`)).toBe('a3 a4 a5')
  expect(await names('?organization=acme&limit=2')).toBe('a4 a5 +')
  expect(await names('?organization=acme&limit=6')).toBe('a0 a1 a2 a3 a4 a5')
  expect(await names(`?organization=acme&status=provisioning&name=a&${since(0)}&limit=2`)).toBe('a1 a3 +')
})

// Goal: tenants with long public keys do not make a list larger than a client accepts; it has the newest and says so.
test('a list of long keys', async () => {
  const own = openStore(':memory:')
  const { db } = own.directory
  insertOrganization(db, { id: 'o1', slug: 'acme', nowMs: startMs })
  const count = 2_000
  own.directory.transact(tx => {
    for (let index = 0; index < count; index += 1) {
      const name = `n${index}`
      const fixed = { hostId: own.hostId, organizationId: 'o1', agent: 'opencode', vmId: null } as const
      const mode = { inferenceMode: 'default_gateway', inferenceModel: 'tiny' } as const
      const publicKey = `ssh-ed25519 ${'"'.repeat(8_192 - 12)}`
      insertInstance(tx, {
        id: name,
        name,
        hostname: `${name}.x`,
        publicKey,
        ...fixed,
        ...mode,
        nowMs: startMs + index,
      })
    }
  })
  const long = asRoot(buildsAdmin(own, { cancelBuild: null, nowMs: () => startMs }))
  const text = await (await long(new Request('http://admin/instances?limit=10000'))).text()
  expect(text.length).toBeLessThan(33_554_432)
  const { instances, more } = JSON.parse(text)
  expect(more).toBe(true)
  expect(instances.at(-1).name).toBe(`n${count - 1}`)
  expect(instances.length).toBeGreaterThan(900)
  own.close()
})

// Goal: an organization counts its failed instances apart from the living ones.
test('counts of an organization', async () => {
  const response = await admin(new Request('http://admin/organizations/acme'))
  expect(await response.json()).toMatchObject({ instances_living: 3, instances_failed: 1 })
})

// Goal: a filter that cannot be is refused with its name, and none reaches the database as a pattern.
test('filters that are wrong', async () => {
  const wrong = { organization: 'a'.repeat(64), status: 'gone', name: 'a*', since: 'soon', limit: '0' }
  for (const [name, value] of Object.entries(wrong)) {
    const { status, error } = await ask(`/instances?${name}=${encodeURIComponent(value)}`)
    expect([name, status, error.param]).toEqual([name, 400, name])
    expect(error.message).toContain(name)
  }
  expect((await ask('/instances?limit=10001')).error.param).toBe('limit')
})

// Goal: a refusal names every field at fault and says what is wrong with it.
test('bodies and queries that do not fit', async () => {
  const table: [path: string, body: string | undefined, param: string | undefined, words: string[]][] = [
    ['/organizations', '{}', 'slug', ['slug: Expected required property']],
    ['/organizations', '{"slug":5}', 'slug', ['body', 'slug: Expected string']],
    ['/organizations', '{"slug":"a","x":1}', 'x', ['x: Unexpected property']],
    ['/organizations', '[]', undefined, ['body', 'Expected object']],
    ['/organizations/acme/budget', '{"budget_usd":5}', undefined, ['budget_usd: Expected union value']],
    ['/instance/events?ref=x&limit=0', undefined, 'limit', ['query', 'limit: Expected integer']],
    ['/instance', undefined, 'ref', ['ref: Expected required property']],
  ]
  for (const [path, body, param, words] of table) {
    const found = await ask(path, body)
    expect([path, body, found.status]).toEqual([path, body, 400])
    for (const word of words) expect(found.error.message).toContain(word)
    if (param !== undefined) expect([path, found.error.param]).toEqual([path, param])
  }
})
