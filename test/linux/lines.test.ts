import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { createLineSplitter } from '../../src/linux/lines.ts'

function split(chunks: Uint8Array[], lineBytesMax: number) {
  const seen: string[] = []
  const splitter = createLineSplitter({
    lineBytesMax,
    onLine: line => seen.push(Buffer.from(line).toString('latin1')),
    onOverlong: () => seen.push('overlong'),
  })
  for (const chunk of chunks) splitter.push(chunk)
  return seen
}

test('goal: lines do not depend on how the stream is cut, and lines over the limit are dropped whole', () => {
  const text = fc.array(fc.constantFrom('a', 'b', '\n'), { maxLength: 60 }).map(letters => letters.join(''))
  fc.assert(
    fc.property(text, fc.array(fc.nat(10)), (whole, cuts) => {
      const chunks: Uint8Array[] = []
      let rest = Buffer.from(whole)
      for (const cut of cuts) {
        chunks.push(rest.subarray(0, cut))
        rest = rest.subarray(cut)
      }
      chunks.push(rest)
      const lines = whole.split('\n')
      const last = lines.pop() ?? ''
      const expected = [...lines, ...(last.length > 5 ? [last] : [])].map(line => (line.length > 5 ? 'overlong' : line))
      expect(split(chunks, 5)).toEqual(expected)
    }),
  )
})
