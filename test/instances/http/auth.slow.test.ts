// Keys: which are let in, to what, and what their use leaves behind.

import { describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import {
  type Appliance,
  addKey,
  prefixOf,
  publicKey,
  startAppliance,
} from '../../../scripts/rigs/instances/instances-service.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { redact } from '../../../src/base/log.ts'
import { createAuthenticate, mintKey } from '../../../src/instances/http/auth.ts'
import { findKey, listKeys, revokeKey } from '../../../src/store/directory/key.query.ts'
import { findOrganization, setOrganizationStatus } from '../../../src/store/directory/organization.query.ts'
import { expectNothingLeaks, failed } from '../../rigs/scenario.ts'

const OPERATIONS = [
  ['POST', '/v1/instances'],
  ['GET', '/v1/instances'],
  ['GET', '/v1/instances/abcd1234'],
  ['DELETE', '/v1/instances/abcd1234'],
  ['GET', '/v1/usage'],
] as const

async function everywhere(appliance: Appliance, key: string) {
  const answers = await Promise.all(
    OPERATIONS.map(([method, path]) =>
      appliance.send(method, path, { key, ...(method === 'POST' ? { body: { public_key: publicKey } } : {}) }),
    ),
  )
  for (const answer of answers) expectNothingLeaks(appliance, answer, [key])
  return answers.map(({ status, error }) => (error === undefined ? status : `${status} ${error.code}`))
}

const refused = Array(5).fill('401 unauthenticated')

/** Authorization headers around a good key that are all no good. */
const BAD_TOKENS: Record<string, (key: string) => string> = {
  'an empty header': () => '',
  'the scheme alone': () => 'Bearer',
  'the scheme and a space': () => 'Bearer ',
  'no scheme': key => key,
  'another scheme': key => `Basic ${btoa(`${key}:`)}`,
  'a scheme that only begins like ours': key => `Bearerx ${key}`,
  'no space': key => `Bearer${key}`,
  'a tab for the space': key => `Bearer\t${key}`,
  'upper case': key => `Bearer ${key.toUpperCase()}`,
  'one upper case letter': key => `Bearer ${key.slice(0, -1)}Z`,
  'a character less': key => `Bearer ${key.slice(0, -1)}`,
  'a character more': key => `Bearer ${key}a`,
  'another secret': key => `Bearer ${key.slice(0, -1)}${key.endsWith('a') ? 'b' : 'a'}`,
  'another prefix': key => `Bearer ca_zzzzzzzz_${key.split('_')[2]}`,
  'a key of another kind': key => `Bearer ${key.replace('ca_', 'gw_')}`,
  'something after the key': key => `Bearer ${key} x`,
  'the key twice': key => `Bearer ${key}, Bearer ${key}`,
  quotes: key => `Bearer "${key}"`,
  'SQL for a secret': key => `Bearer ca_${prefixOf(key)}_' OR 1=1 --000000000`,
  'eight kilobytes': () => `Bearer ca_${'a'.repeat(8_000)}`,
  'other letters that lower-case to ours': key => `Bearer ${key.replace('ca_', '\u00e7a_')}`,
}

describe('tokens', () => {
  for (const [what, header] of Object.entries(BAD_TOKENS)) {
    // Goal: only the exact form of a key gets in; every other one gets the same 401, which tells nothing apart.
    test(`${what} is refused`, async () => {
      await using appliance = await startAppliance()
      const { acme } = appliance.keys
      const answer = await appliance.send('GET', '/v1/instances', {
        key: null,
        headers: { Authorization: header(acme) },
      })
      expect(answer.status).toBe(401)
      expect(answer.json).toEqual({
        request_id: answer.json.request_id,
        ...failed('unauthenticated', 'The Bearer token is missing or invalid.'),
      })
      expect(answer.headers.get('www-authenticate')).toBe('Bearer')
      expectNothingLeaks(appliance, answer)
      expect(appliance.logged.join('\n')).not.toContain(acme.split('_')[2] ?? acme)
    })
  }

  // Goal: the scheme's case and the number of spaces do not matter, as RFC 9110 has it.
  test('spellings of the scheme', async () => {
    await using appliance = await startAppliance()
    for (const scheme of ['Bearer', 'bearer', 'BEARER', 'bEaReR', 'Bearer  ']) {
      const answer = await appliance.send('GET', '/v1/instances', {
        key: null,
        headers: { Authorization: `${scheme} ${appliance.keys.acme}` },
      })
      expect([scheme, answer.status]).toEqual([scheme, 200])
    }
  })

  // Goal: a missing header is a 401 on every operation.
  test('no header', async () => {
    await using appliance = await startAppliance()
    for (const [method, path] of OPERATIONS)
      expect((await appliance.send(method, path, { key: null })).status).toBe(401)
  })
})

describe('what a key may do', () => {
  // Goal: a revoked key is out everywhere at once; its sister keys stay in.
  test('revocation', async () => {
    await using appliance = await startAppliance()
    const { acme, acmeRead } = appliance.keys
    expect(await everywhere(appliance, acme)).toEqual([202, 200, '404 not_found', '404 not_found', 200])
    expect(revokeKey(appliance.store.db, { prefix: prefixOf(acme), nowMs: appliance.clock.nowMs() })).toBe(true)
    expect(await everywhere(appliance, acme)).toEqual(refused)
    expect((await appliance.send('GET', '/v1/instances', { key: acmeRead })).status).toBe(200)
  })

  // Goal: a suspended organization is 403 on everything, with any of its keys, and comes back whole.
  test('suspension', async () => {
    await using appliance = await startAppliance()
    const { acme, acmeRead, globex } = appliance.keys
    setOrganizationStatus(appliance.store.db, { slug: 'acme', status: 'suspended' })
    for (const key of [acme, acmeRead]) expect(await everywhere(appliance, key)).toEqual(Array(5).fill('403 forbidden'))
    expect((await appliance.send('PUT', '/v1/usage')).status).toBe(403)
    expect((await appliance.send('GET', '/v1/instances', { key: globex })).status).toBe(200)
    revokeKey(appliance.store.db, { prefix: prefixOf(acme), nowMs: appliance.clock.nowMs() })
    expect(await everywhere(appliance, acme)).toEqual(refused)
    setOrganizationStatus(appliance.store.db, { slug: 'acme', status: 'active' })
    expect((await appliance.send('GET', '/v1/instances', { key: acmeRead })).status).toBe(200)
  })

  // Goal: a read-only key reads, and is forbidden to write before its body is looked at or a name is resolved.
  test('read-only', async () => {
    await using appliance = await startAppliance()
    const { name } = await appliance.create()
    const { acmeRead } = appliance.keys
    expect(await everywhere(appliance, acmeRead)).toEqual(['403 forbidden', 200, '404 not_found', '403 forbidden', 200])
    expect((await appliance.send('POST', '/v1/instances', { key: acmeRead, bytes: '{' })).status).toBe(403)
    expect((await appliance.send('DELETE', `/v1/instances/${name}`, { key: acmeRead })).status).toBe(403)
    expect((await appliance.send('GET', `/v1/instances/${name}`, { key: acmeRead })).data.status).toBe('provisioning')
  })
})

describe('what is kept of a key', () => {
  // Goal: a minted key has the exact form, only the hash of its secret is kept, and the log strikes it out.
  test('minting', () => {
    const minted = mintKey(systemRandom)
    expect(minted.key).toMatch(/^ca_[a-z0-9]{8}_[a-z0-9]{18}$/)
    const [, prefix = '', secret = ''] = minted.key.split('_')
    expect(minted.prefix).toBe(prefix)
    expect(Buffer.from(minted.secretSha256).toString('hex')).toBe(createHash('sha256').update(secret).digest('hex'))
    expect(redact(`x ${minted.key} y`)).toBe(`x ca_${prefix}_[redacted] y`)
    expect(new Set(Array.from({ length: 100 }, () => mintKey(systemRandom).key)).size).toBe(100)
  })

  // Goal: the database file holds neither a key nor its secret.
  test('the database', async () => {
    await using appliance = await startAppliance()
    await appliance.create()
    const dump = Buffer.from(JSON.stringify(appliance.store.db.all('SELECT * FROM keys'))).toString()
    expect(dump).toContain(prefixOf(appliance.keys.acme))
    for (const key of Object.values(appliance.keys)) expect(dump).not.toContain(key.split('_')[2] ?? key)
  })

  // Goal: the last use is noted, at most once a minute, and a clock that jumped back does not stop that.
  test('the time of use', async () => {
    await using appliance = await startAppliance()
    const { clock, store, keys } = appliance
    const lastUse = () => findKey(store.db, prefixOf(keys.acme))?.lastUsedAtMs
    const startMs = clock.nowMs()
    const use = () => appliance.send('GET', '/v1/instances')
    expect(lastUse()).toBeNull()
    await use()
    expect(lastUse()).toBe(startMs)
    clock.advance(59_999)
    await use()
    expect(lastUse()).toBe(startMs)
    clock.advance(1)
    await use()
    expect(lastUse()).toBe(startMs + 60_000)
    clock.set(startMs - 1_000_000)
    await use()
    expect(lastUse()).toBe(startMs - 1_000_000)
    await appliance.send('GET', '/v1/instances', { key: `${keys.acmeRead.slice(0, -1)}_` })
    expect(findKey(store.db, prefixOf(keys.acmeRead))?.lastUsedAtMs).toBeNull()
  })

  // Goal: a use that cannot be written does not fail the read that it belongs to.
  test('a read-only database', async () => {
    await using appliance = await startAppliance()
    appliance.store.db.run('PRAGMA query_only = ON')
    expect((await appliance.send('GET', '/v1/instances')).status).toBe(200)
    expect(appliance.logged.join('\n')).toContain('the use of a key was not noted')
    appliance.store.db.run('PRAGMA query_only = OFF')
  })

  // Goal: an unknown prefix is as much hashing and comparing as a known one: both take the same path to the same Fault.
  test('unknown and known prefixes fail alike', async () => {
    await using appliance = await startAppliance()
    const { clock, store, keys } = appliance
    const log = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {}, unit: () => log }
    const authenticate = createAuthenticate({ directory: store, clock, log })
    const secret = 'a'.repeat(18)
    const messages = [`ca_${prefixOf(keys.acme)}_${secret}`, `ca_zzzzzzzz_${secret}`].map(key => {
      try {
        authenticate(new Headers({ Authorization: `Bearer ${key}` }), 'read')
        return 'let in'
      } catch (error) {
        return String(error)
      }
    })
    expect(messages).toEqual(Array(2).fill('Fault: The Bearer token is missing or invalid.'))
    const organization = findOrganization(store.db, 'acme')
    expect(listKeys(store.db, organization?.id ?? '')).toHaveLength(2)
    expect(addKey(store, clock, 'acme', 'write')).not.toBe(keys.acme)
  })
})
