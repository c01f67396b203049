// Goal: what cannot be a model is refused by its header, with what is wrong; what is a model is not.

import { expect, test } from 'bun:test'
import { tinyModel } from '../../../scripts/model/tiny-model.ts'
import { ggufHeaderBytes, ggufPart, ggufProblem } from '../../../src/host/models/gguf.ts'
import { type GgufHeader, ggufHeader } from '../../rigs/gguf-file.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const sizeBytes = 1_000_000

test('goal: the header of our own model passes', () => {
  const model = tinyModel()
  expect(ggufProblem(model.subarray(0, ggufHeaderBytes), model.length)).toBeNull()
})

test('goal: versions 2 and 3 pass, and the largest counts that fit the file', () => {
  for (const version of [2, 3]) expect(ggufProblem(ggufHeader({ version }), sizeBytes)).toBeNull()
  expect(ggufProblem(ggufHeader({ tensors: 1n, metadata: 1n }), 24 + 33 + 14)).toBeNull()
})

const wrong: readonly [GgufHeader, number, string][] = [
  [{ magic: 'GGUP' }, sizeBytes, 'does not begin with "GGUF"'],
  [{ magic: 'FUGG' }, sizeBytes, 'does not begin with "GGUF"'],
  [{ version: 1 }, sizeBytes, 'GGUF version 1, not 2 or 3'],
  [{ version: 4 }, sizeBytes, 'GGUF version 4, not 2 or 3'],
  [{ version: 0xffff_ffff }, sizeBytes, 'GGUF version 4294967295'],
  [{ version: 0x0300_0000 }, sizeBytes, 'big-endian'],
  [{ tensors: 0n }, sizeBytes, 'without tensors'],
  [{ metadata: 0n }, sizeBytes, 'without metadata'],
  [{ tensors: 1_000_001n }, sizeBytes, '1000001 tensors'],
  [{ tensors: 0xffff_ffff_ffff_ffffn }, sizeBytes, 'which no model has'],
  [{ metadata: 0xffff_ffff_ffff_ffffn }, sizeBytes, 'which no model has'],
  [{ tensors: 1_000_000n, metadata: 1_000_000n }, sizeBytes, 'cut short'],
  [{ tensors: 1n, metadata: 1n }, 24 + 33 + 14 - 1, 'cut short'],
]

for (const [header, size, problem] of wrong) {
  const shown = Object.entries(header).map(([name, value]) => `${name} ${value}`)
  test(`goal: refused: ${shown.join(', ')} in ${size} bytes`, () => {
    expect(ggufProblem(ggufHeader(header), size)).toContain(problem)
  })
}

test('goal: a file shorter than a header is refused', () => {
  for (let length = 0; length < ggufHeaderBytes; length += 1) {
    expect(ggufProblem(ggufHeader().subarray(0, length), length)).toContain('too few')
  }
})

test('no bytes make it throw', async () => {
  // Goal: the first bytes of any file whatever give an answer.
  await fuzz({ samples: [ggufHeader()], count: 2_000 }, bytes => {
    const problem = ggufProblem(bytes, bytes.length)
    expect(problem === null || problem.length > 0).toBe(true)
  })
})

test('goal: a part of a model in several files is known by its name, as llama.cpp names it', () => {
  expect(ggufPart('llama-00001-of-00003.gguf')).toEqual({ part: 1, of: 3 })
  expect(ggufPart('llama-00003-of-00003.gguf')).toEqual({ part: 3, of: 3 })
  for (const name of ['llama.gguf', 'llama-00001-of-00001.gguf', 'llama-1-of-3.gguf', 'a-00001-of-00003.gguf.part']) {
    expect([name, ggufPart(name)]).toEqual([name, null])
  }
})
