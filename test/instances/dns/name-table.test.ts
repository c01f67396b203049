// Goal: the table equals a map after any changes, up to its capacity, and a reader never sees half a write.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { v4Bytes, v6Bytes } from '../../../src/instances/dns/address.plan.ts'
import { NameTableReader, NameTableWriter, nameTableMemory } from '../../../src/instances/dns/name-table.ts'

const KEYS = ['ns', ...Array.from({ length: 12 }, (_, i) => `name${i}.acme`), `${'n'.repeat(63)}.${'s'.repeat(63)}`]
const fingerprint = fc.option(fc.uint8Array({ minLength: 32, maxLength: 32 }))
const v6 = fc.option(fc.constantFrom('2001:db8::7', '::1', '2001:db8:1:2:3:4:5:ffff'))
const addresses = fc.option(fc.record({ v4: fc.option(fc.ipV4()), v6 }))
const change = fc.record({ key: fc.constantFrom(...KEYS), addresses, fingerprint })
type Values = { v4: Uint8Array | null; v6: Uint8Array | null; fingerprint: Uint8Array | null }

test('goal: after any sets and removals it holds what a map holds', () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), changes => {
      // Sixteen slots for fourteen keys: probes run into each other all the time.
      const memory = nameTableMemory(8)
      const [writer, reader, model] = [
        new NameTableWriter(memory),
        new NameTableReader(memory),
        new Map<string, Values>(),
      ]
      for (const { key, addresses, fingerprint } of changes) {
        if (addresses === null) {
          writer.remove(key)
          model.delete(key)
        } else {
          const [fits, { v4, v6 }] = [model.has(key) || model.size < 8, addresses]
          expect(writer.set(key, addresses, fingerprint)).toBe(fits)
          const values = { v4: v4 === null ? null : v4Bytes(v4), v6: v6 === null ? null : v6Bytes(v6), fingerprint }
          if (fits) model.set(key, values)
        }
        for (const name of KEYS) {
          const expected = model.get(name)
          const found = reader.find(name)
          expect(found).toEqual(expected === undefined ? { kind: 'absent' } : { kind: 'found', ...expected })
        }
      }
    }),
    { seed: 20261121, numRuns: 150 },
  )
})

test('goal: names that no name can be are absent', () => {
  const memory = nameTableMemory(8)
  new NameTableWriter(memory).set('a.b', { v4: '10.0.0.1', v6: null })
  const reader = new NameTableReader(memory)
  for (const key of ['', 'a', 'a.b.', 'A.b', 'x'.repeat(128), 'x'.repeat(10_000)]) {
    expect(reader.find(key)).toEqual({ kind: 'absent' })
  }
})

test('goal: while a write lasts there is no answer, rather than half of one', () => {
  const memory = nameTableMemory(8)
  new NameTableWriter(memory).set('a.b', { v4: '10.0.0.1', v6: null })
  const sequence = new Int32Array(memory.header, 0, 1)
  const reader = new NameTableReader(memory)
  Atomics.add(sequence, 0, 1)
  expect(reader.find('a.b')).toEqual({ kind: 'busy' })
  Atomics.add(sequence, 0, 1)
  expect(reader.find('a.b')).toEqual({ kind: 'found', v4: v4Bytes('10.0.0.1'), v6: null, fingerprint: null })
})

test('goal: a thread that reads while another one writes sees whole states only', async () => {
  const memory = nameTableMemory(8)
  const reader = new NameTableReader(memory)
  const program = `
    import { NameTableWriter } from ${JSON.stringify(new URL('../../../src/instances/dns/name-table.ts', import.meta.url).pathname)}
    self.onmessage = ({ data }) => {
      const writer = new NameTableWriter(data)
      for (let i = 0; i < 200000; i += 1) {
        const part = i % 2 === 0 ? 10 : 20
        writer.set('a.b', { v4: [part, part, part, part].join('.'), v6: null }, new Uint8Array(32).fill(part))
        if (i % 3 === 0 && i % 2 === 0) writer.remove('c.d')
        else if (i % 3 === 0) writer.set('c.d', { v4: '30.30.30.30', v6: null })
      }
      postMessage('done')
    }`
  const url = URL.createObjectURL(new Blob([program], { type: 'application/typescript' }))
  const worker = new Worker(url)
  try {
    let isDone = false
    worker.onmessage = () => {
      isDone = true
    }
    const failed = Promise.withResolvers<never>()
    worker.onerror = event => failed.reject(new Error(event.message))
    worker.postMessage(memory)
    const seen = new Set<string>()
    const reading = (async () => {
      while (!isDone) {
        for (let i = 0; i < 1_000; i += 1) {
          for (const name of ['a.b', 'c.d']) {
            const found = reader.find(name)
            seen.add(`${name} ${found.kind === 'found' ? textOf(found) : found.kind}`)
          }
        }
        await Bun.sleep(0)
      }
    })()
    await Promise.race([reading, failed.promise])
    seen.delete('a.b busy')
    seen.delete('c.d busy')
    // Before the first write.
    seen.delete('a.b absent')
    for (const state of seen)
      expect(['a.b 10.10.10.10 10', 'a.b 20.20.20.20 20', 'c.d absent', 'c.d 30.30.30.30']).toContain(state)
    expect(reader.find('a.b')).toEqual({
      kind: 'found',
      v4: v4Bytes('20.20.20.20'),
      v6: null,
      fingerprint: new Uint8Array(32).fill(20),
    })
  } finally {
    worker.terminate()
  }
})

/** With every value that the fingerprint has. */
function textOf({ v4, fingerprint }: Values): string {
  return [v4?.join('.'), ...new Set(fingerprint ?? [])].join(' ')
}
