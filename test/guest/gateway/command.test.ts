// Goal: an owner accepts a changed gateway by one command, which adds what is named and nothing else.

import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import type { AttestedGateway, InferenceGateway } from '../../../src/contract/vm/inference-gateway.ts'

const [old, next] = ['ab'.repeat(32), 'cd'.repeat(32)] as const
const claimed: AttestedGateway = {
  kind: 'attested',
  measurements: ['01'.repeat(48)],
  operatorKey: '02'.repeat(48),
  workloads: [old],
  outside: ['a=https://a.example'],
  simulatedRoot: null,
}
const start = (gateway: InferenceGateway) =>
  startEndpoint({ baseUrl: 'https://127.0.0.1:1/v1', gateway, platform: 'snp' })

test('goal: the digest and the upstreams are added to the claim’s, and again to the owner’s own', async () => {
  await using instance = await start(claimed)
  const own = () => JSON.parse(readFileSync(instance.paths.ownGateway, 'utf8'))
  expect(await instance.command(['accept', next, 'b=https://b.example:8000'])).toMatchObject({ exitCode: 0 })
  expect(own()).toEqual({
    ...claimed,
    workloads: [old, next],
    outside: ['a=https://a.example', 'b=https://b.example:8000'],
  })
  expect((await instance.command(['accept', next, 'b=https://b.example:8000'])).exitCode).toBe(0)
  expect(own().workloads).toEqual([old, next])
  for (let count = 0; count < 9; count += 1) {
    expect((await instance.command(['accept', `${count}`.repeat(64)])).exitCode).toBe(0)
  }
  expect(own().workloads).toHaveLength(8)
  expect(own().workloads.at(-1)).toBe('8'.repeat(64))
  expect((await instance.command(['reset'])).exitCode).toBe(0)
})

test('goal: a claim that takes any workload.json of its operator stays as wide', async () => {
  const { workloads: _, ...wide } = claimed
  await using instance = await start(wide)
  expect((await instance.command(['accept', next, 'b=https://b.example'])).exitCode).toBe(0)
  expect(JSON.parse(readFileSync(instance.paths.ownGateway, 'utf8'))).toEqual({
    ...wide,
    outside: ['a=https://a.example', 'b=https://b.example'],
  })
})

test('goal: what is no digest, no upstream or no word is refused, and changes nothing', async () => {
  await using instance = await start(claimed)
  expect((await instance.command(['accept', 'short'])).exitCode).toBe(1)
  expect((await instance.command(['accept', next, ''])).exitCode).toBe(1)
  expect((await instance.command(['accept'])).exitCode).toBe(2)
  expect((await instance.command(['set', 'x'])).exitCode).toBe(2)
  expect((await instance.command(['show'])).text).toContain('from the claim')
})

test('goal: a gateway that proves nothing has nothing to accept', async () => {
  await using instance = await start({ kind: 'unattested', why: 'no-worker', ca: null })
  expect(await instance.command(['accept', next])).toMatchObject({
    exitCode: 1,
    text: expect.stringContaining('proves nothing'),
  })
})
