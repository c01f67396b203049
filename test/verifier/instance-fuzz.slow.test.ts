// Goal: no input makes the verifier of instances throw, hang or say PASS.

import { expect, test } from 'bun:test'
import { utf8 } from '../../src/base/bytes.ts'
import { instanceAttestationBytesMax, verifyInstance } from '../../src/verifier/instance.ts'
import { fuzz } from '../rigs/hostile/fuzz.ts'
import { instanceQuestion, makeInstanceAttestation } from '../rigs/instances/instance-attestation.ts'

const good = await makeInstanceAttestation()
const question = await instanceQuestion()

test('goal: whatever bytes come, a verdict comes back, never a good one but for the sample itself', async () => {
  const sample = utf8(JSON.stringify(good))
  const question = await instanceQuestion()
  // Spaces around it, and nothing else that a mutation may do, leave the document what it is.
  await fuzz({ samples: [sample], count: 2000, sizeBytesMax: 64 }, async bytes => {
    const found = await verifyInstance(bytes, question)
    if (found.ok && JSON.stringify(readable(bytes)) !== JSON.stringify(good))
      throw new Error('a good verdict on something else')
  })
}, 60_000)

function readable(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return null
  }
}

test('goal: a document at the bound, made to be slow, is refused within a second', async () => {
  const nested = '['.repeat(instanceAttestationBytesMax)
  const names = `{${Array.from({ length: 60_000 }, (_, at) => `"${at}":1`).join()}}`
  const long = JSON.stringify({ ...good, known_hosts: ' '.repeat(instanceAttestationBytesMax - 30_000) })
  const launch = JSON.stringify({ ...good, launch: '{'.repeat(4096) })
  const quotes = '"\\'.repeat(instanceAttestationBytesMax / 2)
  for (const text of [nested, names, long, launch, quotes]) {
    // Time of the processor: other processes have a part of the wall clock's.
    const begin = process.cpuUsage()
    expect((await verifyInstance(utf8(text).subarray(0, instanceAttestationBytesMax), question)).ok).toBe(false)
    const { user, system } = process.cpuUsage(begin)
    expect((user + system) / 1_000).toBeLessThan(1_000)
  }
})

test('goal: what is no document is a failed check as an object, too', async () => {
  const trap = new Proxy(
    {},
    {
      get: () => {
        throw new Error('trap')
      },
      ownKeys: () => {
        throw new Error('trap')
      },
    },
  )
  const circle: Record<string, unknown> = { ...good }
  circle.receipt = circle
  for (const given of [null, undefined, 1, 'x', [], () => 1, trap, circle, { data: circle }]) {
    const found = await verifyInstance(given as never, question)
    expect([found.ok, found.checks[0]?.name]).toEqual([false, 'attestation-format'])
  }
})
