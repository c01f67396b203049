// The platform of an instance, as its owner sees it: a header, since the contract's record stays as it is.

import { expect, test } from 'bun:test'
import { publicKey, startAppliance } from '../../../scripts/rigs/instances/instances-service.ts'
import { moveInstance } from '../../../src/store/directory/instance.query.ts'

const header = 'X-Strongroom-Platform'

test('every response about instances says what they run on, and when that is simulated', async () => {
  // Goal: an owner who was promised encryption sees at once where there is none.
  await using appliance = await startAppliance({ platform: 'tcg' })
  const create = { body: { public_key: publicKey }, headers: { 'Idempotency-Key': 'a' } }
  const created = await appliance.send('POST', '/v1/instances', create)
  expect(created.headers.get(header)).toBe('tcg; simulated')
  const path = `/v1/instances/${String(created.data.name)}`
  expect((await appliance.send('GET', path)).headers.get(header)).toBe('tcg; simulated')
  // After a restart on SNP: the record says what its VM runs on, not what the host would do now.
  await using later = await appliance.restart({ platform: 'snp' })
  expect((await later.send('POST', '/v1/instances', create)).headers.get(header)).toBe('tcg; simulated')
  expect((await later.send('GET', path)).headers.get(header)).toBe('tcg; simulated')
  const second = await later.create()
  expect((await later.send('GET', `/v1/instances/${second.name}`)).headers.get(header)).toBe('snp')
  expect((await later.send('GET', '/v1/instances')).headers.get(header)).toBe('snp, tcg; simulated')
  expect((await later.send('DELETE', path)).headers.get(header)).toBe('tcg; simulated')
  expect(Object.keys((await later.send('GET', path)).data)).not.toContain('platform')
})

test('what is terminated counts in no list, an old record is unknown, and what is no instance has no platform', async () => {
  // Goal: the header is said only of what is known.
  await using appliance = await startAppliance({ platform: 'snp' })
  const { id, name } = await appliance.create()
  expect((await appliance.send('GET', '/v1/usage')).headers.get(header)).toBeNull()
  expect((await appliance.send('GET', '/v1/instances/abcd1234')).headers.get(header)).toBeNull()
  appliance.store.db.run('UPDATE instances SET platform = NULL')
  expect((await appliance.send('GET', `/v1/instances/${name}`)).headers.get(header)).toBe('unknown')
  expect((await appliance.send('GET', '/v1/instances')).headers.get(header)).toBe('unknown')
  moveInstance(appliance.store.db, { id, from: 'provisioning', to: 'terminating', nowMs: 1 })
  moveInstance(appliance.store.db, { id, from: 'terminating', to: 'terminated', nowMs: 1, terminatedAtMs: 1 })
  expect((await appliance.send('GET', '/v1/instances')).headers.get(header)).toBeNull()
})
