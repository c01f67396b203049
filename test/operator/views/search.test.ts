// Goal: a search finds what has a page by a part of its name, bounded, with no character of the text as a pattern.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { newUuid } from '../../../src/base/ids.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { insertGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertInstance, moveInstance } from '../../../src/store/directory/instance.query.ts'
import { insertKey, revokeKey } from '../../../src/store/directory/key.query.ts'
import { insertOrganization, setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { asRoot } from '../../rigs/admin.ts'
import { addQueuedBuild, buildsAdmin } from '../../rigs/build/queued-build.ts'

const nowMs = Date.parse('2026-11-20T00:00:00.000Z')
const secretSha256 = Buffer.alloc(32)
let store: Store
let admin: ReturnType<typeof asRoot>
let buildId: string

function addInstance(organizationId: string, name: string, atMs = nowMs): string {
  const id = newUuid()
  const fixed = { hostId: store.hostId, organizationId, agent: 'opencode', publicKey: 'k', vmId: null } as const
  const mode = { inferenceMode: 'default_gateway', inferenceModel: 'tiny' } as const
  insertInstance(store.directory.db, {
    id,
    name,
    hostname: `${name}.${organizationId}.x`,
    ...fixed,
    ...mode,
    nowMs: atMs,
  })
  return id
}

beforeAll(() => {
  store = openStore(':memory:')
  const { db } = store.directory
  for (const slug of ['acme', 'acme-labs', 'globex']) insertOrganization(db, { id: `of-${slug}`, slug, nowMs })
  setOrganizationStatus(db, { slug: 'acme-labs', status: 'suspended' })
  const ended = addInstance('of-acme', 'k3v9x2ab', nowMs + 1)
  moveInstance(db, { id: ended, from: 'provisioning', to: 'terminating', nowMs })
  addInstance('of-globex', 'k3v9other')
  insertKey(db, { prefix: 'k3v9aaaa', organizationId: 'of-acme', secretSha256, scope: 'write', nowMs })
  insertKey(db, { prefix: 'zzzzaaaa', organizationId: 'of-acme', secretSha256, scope: 'write', nowMs })
  revokeKey(db, { prefix: 'zzzzaaaa', nowMs })
  const limits = { requestsPerMinute: null, tokensPerMinute: null, concurrencyMax: null, expiresAtMs: null }
  insertGatewayKey(db, {
    prefix: 'zzzzbbbb',
    organizationId: 'of-globex',
    instanceId: null,
    secretSha256,
    ...limits,
    nowMs,
  })
  buildId = addQueuedBuild(store, { slug: 'acme', kind: 'git', nowMs })
  admin = asRoot(buildsAdmin(store, { cancelBuild: null, nowMs: () => nowMs }))
})
afterAll(() => store.close())

type Found = {
  organizations: { slug: string; status: string }[]
  instances: { organization: string; name: string; status: string }[]
  keys: { kind: string; prefix: string; organization: string; state: string }[]
  builds: { id: string; organization: string | null; state: string }[]
  more: boolean
}

async function search(q: string): Promise<Found> {
  const response = await admin(new Request(`http://admin/search?${new URLSearchParams({ q })}`))
  expect([q, response.status]).toEqual([q, 200])
  return (await response.json()) as Found
}

/** Everything found, in short. */
async function found(q: string): Promise<string[]> {
  const { organizations, instances, keys, builds } = await search(q)
  return [
    ...organizations.map(({ slug, status }) => `${slug} ${status}`),
    ...instances.map(({ organization, name, status }) => `${organization}/${name} ${status}`),
    ...keys.map(({ kind, prefix, organization, state }) => `${kind}_${prefix} of ${organization} ${state}`),
    ...builds.map(({ id, organization, state }) => `${id === buildId ? 'the build' : id} of ${organization} ${state}`),
  ]
}

test('goal: each kind by a part of its name, what has ended last', async () => {
  expect(await found('acme-l')).toEqual(['acme-labs suspended'])
  expect(await found('K3V9')).toEqual([
    'globex/k3v9other provisioning',
    'acme/k3v9x2ab terminating',
    'ca_k3v9aaaa of acme active',
  ])
  expect(await found('acme/k3')).toEqual(['acme/k3v9x2ab terminating'])
  expect(await found('k3v9other.of-globex.x')).toEqual(['globex/k3v9other provisioning'])
  expect(await found('zzzz')).toEqual(['gw_zzzzbbbb of globex active', 'ca_zzzzaaaa of acme revoked'])
  expect(await found('gw_zzzz')).toEqual(['gw_zzzzbbbb of globex active'])
  expect(await found(buildId.slice(0, 13))).toEqual(['the build of acme queued'])
})

test('goal: a whole key finds the key by its prefix', async () => {
  expect(await found('Bearer ca_k3v9aaaa_0123456789abcdefgh')).toEqual(['ca_k3v9aaaa of acme active'])
})

test('goal: no character is a pattern or ends the statement', async () => {
  for (const q of ['%', '_____', '*', '[a-z]', "'", '" OR 1=1 --', '\\', '\u0000', '<script>']) {
    expect([q, await found(q)]).toEqual([q, []])
  }
})

test('goal: each list is bounded and says that there are more', async () => {
  for (let number = 0; number < 25; number += 1) addInstance('of-globex', `many${String(number).padStart(2, '0')}`)
  expect((await search('many0')).more).toBe(false)
  const { instances, more } = await search('many')
  expect([instances.length, more]).toEqual([20, true])
})

test('goal: an empty or a long text is refused with the field', async () => {
  for (const q of ['', 'a'.repeat(65)]) {
    const response = await admin(new Request(`http://admin/search?q=${q}`))
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: { code: 'invalid_request', param: 'q' } })
  }
})
