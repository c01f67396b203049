// Goal: the tiny model is the same bytes for everyone, well formed, and small.

import { expect, test } from 'bun:test'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { encodeGguf } from '../../../scripts/model/gguf.ts'
import { tinyModel, vocabulary } from '../../../scripts/model/tiny-model.ts'
import { repo, run } from '../../../scripts/rigs/build/image-build.ts'

// Goal: a changed byte is a changed model, and is changed on purpose: this digest is the record.
test('two processes write equal bytes, and they are these', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'tiny-model-'))
  try {
    const digests = await Promise.all(
      ['a', 'b/c'].map(async name => {
        const out = join(dir, name)
        const printed = await run(['bun', join(repo, 'scripts/build-model.ts'), '--out', out], { TZ: 'UTC' })
        const bytes = await Bun.file(out).bytes()
        const digest = new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
        expect(printed).toBe(`${digest}  ${out}\n`)
        expect(bytes.length).toBeWithin(1_000_000, 3_000_000)
        return digest
      }),
    )
    expect(new Set(digests).size).toBe(1)
    expect(digests[0]).toBe('54cd3d45232236da4de0b4e43a4bf1516654f7af1a6689cc48b3f2c5032a4e2a')
    expect(new Bun.CryptoHasher('sha256').update(tinyModel()).digest('hex')).toBe(digests[0] ?? '')
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
})

// Goal: every byte can be said, and every merge leads from tokens to a token.
test('the vocabulary is whole', () => {
  const tokens = vocabulary()
  expect(tokens.length).toBeWithin(280, 301)
  expect(new Set(tokens).size).toBe(tokens.length)
  expect(tokens.slice(0, 256).every(token => [...token].length === 1)).toBe(true)
  expect(tokens).toContain('Ġ')
})

// Goal: the container is GGUF version 3 to the byte: a file small enough to write out by hand.
test('a file with one value and one tensor', () => {
  const bytes = encodeGguf({ k: { kind: 'uint32', value: 7 } }, [
    { name: 't', shape: [2, 1], data: Float32Array.of(1, -2) },
  ])
  const head = [
    '47475546 03000000 0100000000000000 0100000000000000', // magic, version, one tensor, one value
    '0100000000000000 6b 04000000 07000000', // "k", uint32, 7
    // "t", 2 dimensions, F32, offset 0
    '0100000000000000 74 02000000 0200000000000000 0100000000000000 00000000 0000000000000000',
  ]
  const hex = head.join('').replaceAll(' ', '')
  const padded = hex.padEnd(Math.ceil(hex.length / 64) * 64, '0')
  expect(Buffer.from(bytes).toString('hex')).toBe(`${padded}0000803f000000c0`.padEnd(padded.length + 64, '0'))
  expect(() => encodeGguf({}, [{ name: 't', shape: [3], data: Float32Array.of(1, 2) }])).toThrow(
    'data and shape differ',
  )
})
