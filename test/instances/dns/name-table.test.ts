// Goal: the table says what a map would say after any changes, never more than it has room for, and a reader never sees half a write.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { NameTableReader, NameTableWriter, nameTableMemory } from '../../../src/instances/dns/name-table.ts'

const KEYS = ['ns', ...Array.from({ length: 12 }, (_, i) => `name${i}.acme`), `${'n'.repeat(63)}.${'s'.repeat(63)}`]
const fingerprint = fc.option(fc.uint8Array({ minLength: 32, maxLength: 32 }))
const change = fc.record({ key: fc.constantFrom(...KEYS), address: fc.option(fc.ipV4()), fingerprint })

test('goal: after any sets and removals it holds what a map holds', () => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 60 }), changes => {
      // Sixteen slots for fourteen keys: probes run into each other all the time.
      const memory = nameTableMemory(8)
      const [writer, reader, model] = [
        new NameTableWriter(memory),
        new NameTableReader(memory),
        new Map<string, { address: string; fingerprint: Uint8Array | null }>(),
      ]
      for (const { key, address, fingerprint } of changes) {
        const fits = writer.set(key, address, fingerprint)
        expect(fits).toBe(address === null || model.has(key) || model.size < 8)
        if (address === null) model.delete(key)
        else if (fits) model.set(key, { address, fingerprint })
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
  new NameTableWriter(memory).set('a.b', '10.0.0.1')
  const reader = new NameTableReader(memory)
  for (const key of ['', 'a', 'a.b.', 'A.b', 'x'.repeat(128), 'x'.repeat(10_000)]) {
    expect(reader.find(key)).toEqual({ kind: 'absent' })
  }
})

test('goal: while a write lasts there is no answer, rather than half of one', () => {
  const memory = nameTableMemory(8)
  new NameTableWriter(memory).set('a.b', '10.0.0.1')
  const sequence = new Int32Array(memory.header, 0, 1)
  const reader = new NameTableReader(memory)
  Atomics.add(sequence, 0, 1)
  expect(reader.find('a.b')).toEqual({ kind: 'busy' })
  Atomics.add(sequence, 0, 1)
  expect(reader.find('a.b')).toEqual({ kind: 'found', address: '10.0.0.1', fingerprint: null })
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
        writer.set('a.b', [part, part, part, part].join('.'), new Uint8Array(32).fill(part))
        if (i % 3 === 0) writer.set('c.d', i % 2 === 0 ? null : '30.30.30.30')
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
      address: '20.20.20.20',
      fingerprint: new Uint8Array(32).fill(20),
    })
  } finally {
    worker.terminate()
  }
})

/** With every value that the fingerprint has. */
function textOf({ address, fingerprint }: { address: string; fingerprint: Uint8Array | null }): string {
  return [address, ...new Set(fingerprint ?? [])].join(' ')
}
