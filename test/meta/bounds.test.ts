// Goal: each bound that clients share has its share of each, or the reason why it needs none, at the constant and in
// src/BOUNDS.md.

import { expect, test } from 'bun:test'
import { boundsText, findBounds, WITHOUT_NUMBER } from '../../scripts/lib/bounds.ts'
import { readTree } from './tree.ts'

const sources = readTree('src/**/*.{ts,tsx}')
const bounds = findBounds(sources)
const update = 'bun scripts/bounds.ts --write'

test('goal: the doc comment of each bound has a sentence about its share, and the file has them all', () => {
  const unexplained = bounds.filter(({ share }) => share === null || share.length < 15)
  expect(unexplained.map(({ path, name }) => `${path} ${name}`)).toEqual([])
  expect(bounds.length).toBeGreaterThan(100)
  const isCurrent = [...readTree('src/BOUNDS.md').values()].join('') === boundsText(bounds)
  expect([update, isCurrent]).toEqual([update, true])
})

test('goal: the files of bounds without a number exist', () => {
  expect(WITHOUT_NUMBER.filter(({ path }) => !sources.has(path))).toEqual([])
})

test('goal: what is a bound is found, however it is written, and what one sender alone meets is not', () => {
  const names = (text: string, path = 'src/builds/x.ts') => findBounds(new Map([[path, text]])).map(({ name }) => name)
  expect(names('const waitersMax = 5')).toEqual(['waitersMax'])
  expect(names('export const waitersMaxDefault = 5')).toEqual(['waitersMaxDefault'])
  expect(names('  static readonly #waitersMax: number = 5')).toEqual(['waitersMax'])
  expect(names('export const defaults = {\n  waitersMax: 5,\n}')).toEqual(['waitersMax'])
  expect(names('  waiters_max: Count(1, 2, 3)')).toEqual(['waiters_max'])
  expect(names('type X = { waitersMax: number }\nfunction f({ waitersMax }: X) {}')).toEqual([])
  for (const name of ['bodyBytesMax', 'nameCharsMax', 'depthMax', 'retryMaxMs', 'waitMsMax', 'linesMax']) {
    expect(names(`const ${name} = 5`)).toEqual([])
  }
  expect(names('  body_bytes_max: Count(1, 2, 3)')).toEqual([])
  expect(names('const waitersMax = 5', 'src/attest/x.ts')).toEqual([])
  expect(names('const toolsMax = 5', 'src/inference/openai/tools.ts')).toEqual([])
  expect(names('const childrenMax = 5', 'src/inference/schema-check/pool.ts')).toEqual(['childrenMax'])
})

test('goal: value and share are read from the source, and a comment of something else is not', () => {
  const only = (text: string) => findBounds(new Map([['src/builds/x.ts', text]])).at(-1)
  const bound = { path: 'src/builds/x.ts', name: 'waitersMax' }
  const share = 'Share: half for one organization.'
  expect(only(`/** Requests that wait. ${share} */\nconst waitersMax = 1_024`)).toEqual({
    ...bound,
    value: '1,024',
    share,
  })
  expect(only(`/**\n * Requests.\n * Share: half for\n * one organization.\n */\nexport const waitersMax = 8`)).toEqual(
    {
      ...bound,
      value: '8',
      share,
    },
  )
  expect(only('const o = {\n  /** No share: limits one VM. */\n  waitersMax: 2 * n,\n}')).toEqual({
    ...bound,
    value: null,
    share: 'No share: limits one VM.',
  })
  expect(only('const waitersMax = 2 ** 12')?.value).toBe('4,096')
  expect(only('const waitersMax = 1_000n')?.value).toBe('1,000')
  expect(only(`/** ${share} */\n  waiters_max: Count(\n    [64, 1, 128],\n    'x')`)?.value).toBe('64')
  expect(only(`/** ${share} */\nconst other = 1\nconst waitersMax = 8`)).toEqual({ ...bound, value: '8', share: null })
})

test('goal: an entry of the file has the place, the value and the share, in at most 100 columns', () => {
  const share = `Share: ${'a quarter for one organization, '.repeat(3)}and no more.`
  const lines = boundsText([{ path: 'src/builds/http/x.ts', name: 'waitersMax', value: '8', share }]).split('\n')
  const at = lines.indexOf('## `builds/`')
  expect(lines.slice(at, at + 4)).toEqual([
    '## `builds/`',
    '',
    '- `http/x.ts` `waitersMax` (8). Share: a quarter for one organization, a quarter for one',
    '  organization, a quarter for one organization, and no more.',
  ])
  expect(lines.filter(line => line.length > 100)).toEqual([])
})
