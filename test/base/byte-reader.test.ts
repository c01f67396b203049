// Pieces out of streams that are cut anywhere.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { failure } from '../../scripts/rigs/until.ts'
import { ByteReader } from '../../src/base/byte-reader.ts'

async function* chunksOf(parts: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts
}

const readerOf = (parts: readonly Uint8Array[], bytesMax = 1_000) =>
  new ByteReader(chunksOf(parts), {
    bytesMax,
    tooMuch: () => new Error('too much'),
    tooLittle: () => new Error('too little'),
  })

const collected = async (parts: AsyncIterable<Uint8Array>) => Buffer.concat(await Array.fromAsync(parts))

test('pieces are the same however the stream is cut', async () => {
  // Goal: chunks, empty ones among them, are no part of the format.
  const bytes = fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 10 })
  await fc.assert(
    fc.asyncProperty(bytes, fc.nat(30), async (parts, count) => {
      const whole = Buffer.concat(parts)
      const reader = readerOf(parts)
      if (count > whole.length) return
      if (count > 0) expect(await reader.piece(count)).toEqual(new Uint8Array(whole.subarray(0, count)))
      await reader.skip(Math.min(3, whole.length - count))
      expect(await collected(reader.rest())).toEqual(whole.subarray(count + Math.min(3, whole.length - count)))
      expect(await reader.piece(1)).toBeNull()
    }),
  )
})

test('the end within a piece, and more than may come, are failures', async () => {
  // Goal: a short stream is not taken for a whole one, and a bomb is ended at its bound.
  expect(await failure(readerOf([new Uint8Array(4)]).piece(5))).toMatchObject({ message: 'too little' })
  expect(await failure(readerOf([new Uint8Array(4)]).skip(5))).toMatchObject({ message: 'too little' })
  const bomb = [new Uint8Array(8), new Uint8Array(3)]
  expect(await failure(collected(readerOf(bomb, 10).rest()))).toMatchObject({ message: 'too much' })
  expect(await collected(readerOf(bomb, 11).rest())).toHaveLength(11)
})
