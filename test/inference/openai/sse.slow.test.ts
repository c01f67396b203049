// The event-stream parser against a plain reading of the same text.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { threadCpuMs } from '../../../scripts/rigs/withheld.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { createSseParser } from '../../../src/inference/openai/sse.ts'

/** WHATWG HTML 9.2.6, word for word, over the whole text at once. */
function plainReading(text: string): string[] {
  const events: string[] = []
  let data: string[] = []
  const lines = text.replace(/^\uFEFF/, '').split(/\r\n|\r|\n/)
  for (const line of lines.slice(0, -1)) {
    if (line === '') {
      if (data.length > 0) events.push(data.join('\n'))
      data = []
    } else if (/^data(:|$)/.test(line)) data.push(line.replace(/^data:? ?/, ''))
  }
  return events
}

const line = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 12 }).map(text => `data: ${text.replace(/[\r\n]/g, '')}`),
  fc.constantFrom('data:', 'data', ': comment', '', '', 'event: x', 'dataset: no', 'data:{"a":"ä👋"}', 'retry:5'),
)

// Goal: for every text and every way to cut its bytes, the events are those of the plain reading.
test('any text, any split', () => {
  const lines = fc.array(fc.tuple(line, fc.constantFrom('\n', '\r', '\r\n')), { maxLength: 20 })
  fc.assert(
    fc.property(
      lines,
      fc.boolean(),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
      (parts, bom, sizes) => {
        const text = (bom ? '\uFEFF' : '') + parts.map(part => part.join('')).join('')
        const bytes = utf8(text)
        const parser = createSseParser(1_000_000)
        const events: string[] = []
        for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1
          events.push(...parser.push(bytes.subarray(at, at + size)))
          at += size
        }
        expect(events).toEqual(plainReading(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)))
      },
    ),
    { numRuns: 500 },
  )
})

// Goal: the limit is in bytes, exact, over all lines of an event, and starts again with the next.
test('limit', () => {
  const parser = createSseParser(16)
  expect(parser.push(utf8('data: ääää\nda'))).toEqual([])
  expect(() => parser.push(utf8('t'))).toThrow()
  const next = createSseParser(10)
  for (let i = 0; i < 5; i += 1) expect(next.push(utf8('data: ääää'.slice(0, 8).concat('\n\n')))).toEqual(['ää'])
  expect(() => next.push(utf8('data: 12345'))).toThrow()
})

// Goal: a megabyte that comes in crumbs is read in time that grows with its length.
test('a megabyte in small pieces', () => {
  const parser = createSseParser(4_194_304)
  const bytes = utf8(`data: ${'x'.repeat(1_048_576)}\n\n`)
  const startedMs = threadCpuMs()
  let got: string[] = []
  for (let at = 0; at < bytes.length; at += 64) got = got.concat(parser.push(bytes.subarray(at, at + 64)))
  expect(got.map(event => event.length)).toEqual([1_048_576])
  expect(threadCpuMs() - startedMs).toBeLessThan(2_000)
})
