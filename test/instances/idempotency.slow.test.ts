// Idempotency-Key: one instance per key and body, the first answer verbatim, for 24 hours, across restarts.

import { describe, expect, test } from 'bun:test'
import {
  type Appliance,
  publicKey,
  type SendOptions,
  settings,
  startAppliance,
} from '../../scripts/rigs/instances/instances-service.ts'
import { setOrganizationStatus } from '../../src/store/directory/organization.query.ts'

const dayMs = 24 * 60 * 60 * 1000
const post = (appliance: Appliance, key: string, options: SendOptions = {}) =>
  appliance.send('POST', '/v1/instances', {
    body: { public_key: publicKey },
    ...options,
    headers: { ...options.headers, 'Idempotency-Key': key },
  })
const createdCount = (appliance: Appliance) => appliance.calls.filter(call => call.startsWith('created')).length
const conflict = {
  code: 'conflict',
  message: 'This Idempotency-Key was used with a different body in the last 24 hours.',
  param: 'Idempotency-Key',
}

describe('repetition', () => {
  // Goal: the second answer is the first one but for the ids of the request, even after the instance has moved on.
  test('the first answer again', async () => {
    await using appliance = await startAppliance()
    const first = await post(appliance, 'k', { headers: { 'X-Correlation-ID': 'one' } })
    appliance.clock.advance(5_000)
    await appliance.send('DELETE', `/v1/instances/${first.data.name}`)
    appliance.calls.length = 0
    const second = await post(appliance, 'k', { headers: { 'X-Correlation-ID': 'two' } })
    expect([first.status, second.status]).toEqual([202, 202])
    expect(JSON.stringify(second.data)).toBe(JSON.stringify(first.data))
    expect([first.json.correlation_id, second.json.correlation_id]).toEqual(['one', 'two'])
    expect(second.headers.get('x-correlation-id')).toBe('two')
    expect(second.json.request_id).not.toBe(first.json.request_id)
    expect(appliance.calls).toEqual([])
  })

  // Goal: a hundred at once make one instance, and all get the same data under a hundred request ids.
  test('a hundred concurrent duplicates', async () => {
    await using appliance = await startAppliance()
    const answers = await Promise.all(Array.from({ length: 100 }, () => post(appliance, 'burst')))
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([202]))
    expect(new Set(answers.map(({ data }) => JSON.stringify(data))).size).toBe(1)
    expect(new Set(answers.map(({ json }) => json.request_id)).size).toBe(100)
    expect(appliance.calls).toEqual([`created ${answers[0]?.data.name}`])
    expect((await appliance.send('GET', '/v1/instances')).data.instances).toHaveLength(1)
  })

  // Goal: without a key, and under different keys, every create is a create.
  test('no key, other keys', async () => {
    await using appliance = await startAppliance()
    await appliance.create()
    await appliance.create()
    for (const key of ['a', 'A', 'a b', ' a,b', 'k'.repeat(255), '~!@#$%^&*()'])
      expect((await post(appliance, key)).status).toBe(202)
    expect(createdCount(appliance)).toBe(8)
  })

  // Goal: a key belongs to its organization, whichever of its API keys sends it.
  test('keys of two organizations', async () => {
    await using appliance = await startAppliance()
    const mine = await post(appliance, 'shared')
    const theirs = await post(appliance, 'shared', { key: appliance.keys.globex })
    expect(theirs.status).toBe(202)
    expect(theirs.data.hostname).toContain('.globex.')
    expect(theirs.data.name).not.toBe(mine.data.name)
    expect(createdCount(appliance)).toBe(2)
  })

  // Goal: the answer survives a restart of the whole process.
  test('after a restart', async () => {
    const before = await startAppliance()
    const first = await post(before, 'kept')
    await using appliance = await before.restart()
    const second = await post(appliance, 'kept')
    expect([second.status, JSON.stringify(second.data)]).toEqual([202, JSON.stringify(first.data)])
    expect(createdCount(appliance)).toBe(0)
    expect(
      (await post(appliance, 'kept', { body: { public_key: publicKey, inference_model: 'large' } })).error,
    ).toEqual(conflict)
  })

  // Goal: changes by the operator between attempts (default, models, limit) do not change the first response.
  test('after a change of configuration', async () => {
    const before = await startAppliance()
    const chosen = await post(before, 'chosen', { body: { public_key: publicKey, inference_model: 'tiny' } })
    const left = await post(before, 'left')
    await using appliance = await before.restart({
      settings: { ...settings, inferenceModels: ['next'], instancesPerOrganizationMax: 1 },
    })
    const again = await post(appliance, 'chosen', { body: { public_key: publicKey, inference_model: 'tiny' } })
    expect([again.status, again.data]).toEqual([202, chosen.data])
    const leftAgain = await post(appliance, 'left')
    expect([leftAgain.status, leftAgain.data]).toEqual([202, left.data])
  })
})

describe('the same body', () => {
  const same: Record<string, string> = {
    'its own text': JSON.stringify({ public_key: publicKey }),
    whitespace: `\n { "public_key" : ${JSON.stringify(publicKey)} }\t`,
    escapes: JSON.stringify({ public_key: publicKey }).replace('ssh', '\\u0073sh'),
    'the default agent': JSON.stringify({ agent: 'opencode', public_key: publicKey }),
    'the only inference mode': JSON.stringify({ public_key: publicKey, inference_mode: 'default_gateway' }),
    'spaces in the key line': JSON.stringify({ public_key: `  ${publicKey.replaceAll(' ', '\t ')}\r\n` }),
  }
  for (const [what, bytes] of Object.entries(same)) {
    // Goal: bodies are compared by what they mean.
    test(`differs in ${what} only`, async () => {
      await using appliance = await startAppliance()
      const first = await post(appliance, 'k')
      const second = await post(appliance, 'k', { bytes })
      expect([second.status, second.data]).toEqual([202, first.data])
      expect(createdCount(appliance)).toBe(1)
    })
  }

  const different: Record<string, object> = {
    'the comment of the key': { public_key: `${publicKey}x` },
    'the key': { public_key: publicKey.replace('HsJzTQ', 'HsJzTR') },
    'a model that was left to us, though it is the default': { public_key: publicKey, inference_model: 'tiny' },
    'another model': { public_key: publicKey, inference_model: 'large' },
    'an unknown model': { public_key: publicKey, inference_model: 'huge' },
  }
  for (const [what, body] of Object.entries(different)) {
    // Goal: another body under the same key is a conflict, creates nothing, and does not disturb the first answer.
    test(`${what} makes a conflict`, async () => {
      await using appliance = await startAppliance()
      const first = await post(appliance, 'k')
      const second = await post(appliance, 'k', { body })
      expect([second.status, second.error]).toEqual([409, conflict])
      expect((await post(appliance, 'k')).data).toEqual(first.data)
      expect(createdCount(appliance)).toBe(1)
    })
  }
})

describe('what is stored', () => {
  // Goal: a refused create leaves its key free.
  test('not a failure', async () => {
    await using appliance = await startAppliance()
    for (const body of [{}, { public_key: 'x' }, { public_key: publicKey, inference_model: 'huge' }]) {
      expect((await post(appliance, 'k', { body })).status).toBe(400)
    }
    expect((await post(appliance, 'k')).status).toBe(202)
    expect((await post(appliance, 'k', { body: {} })).status).toBe(400)
  })

  // Goal: a key is good for 24 hours to the millisecond, and then for another instance.
  test('for 24 hours', async () => {
    await using appliance = await startAppliance()
    const first = await post(appliance, 'k')
    appliance.clock.advance(dayMs - 1)
    expect((await post(appliance, 'k')).data).toEqual(first.data)
    appliance.clock.advance(1)
    const second = await post(appliance, 'k', { body: { public_key: publicKey, inference_model: 'large' } })
    expect(second.status).toBe(202)
    expect(second.data.name).not.toBe(first.data.name)
    appliance.clock.advance(dayMs - 1)
    expect((await post(appliance, 'k', { body: { public_key: publicKey, inference_model: 'large' } })).data).toEqual(
      second.data,
    )
  })

  // Goal: a clock that jumps back does not make a second instance.
  test('through a clock that jumps back', async () => {
    await using appliance = await startAppliance()
    const first = await post(appliance, 'k')
    appliance.clock.set(appliance.clock.nowMs() - 30 * dayMs)
    expect((await post(appliance, 'k')).data).toEqual(first.data)
  })

  // Goal: an answer in store is no way around a suspension.
  test('not for the suspended', async () => {
    await using appliance = await startAppliance()
    await post(appliance, 'k')
    setOrganizationStatus(appliance.store.db, { slug: 'acme', status: 'suspended' })
    expect((await post(appliance, 'k')).status).toBe(403)
  })
})
