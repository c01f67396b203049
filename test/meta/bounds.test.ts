// Goal: no bound that clients share comes in without its part for each of them, or the reason why none is needed, on
// the list.

import { expect, test } from 'bun:test'
import { findBounds, readRows } from './bounds.ts'
import { readTree } from './tree.ts'

const rows = readRows([...readTree('src/BOUNDS.md').values()].join('\n'))
const found = findBounds(readTree('src/**/*.{ts,tsx}'))
const textOf = ({ path, name }: { path: string; name: string }) => `${path} ${name}`

test('goal: each bound in the source is on the list, and each on the list is in the source', () => {
  const listed = rows.flatMap(({ paths, names }) => paths.flatMap(path => names.map(name => ({ path, name }))))
  const isListed = new Set(listed.map(textOf))
  const isFound = new Set(found.map(textOf))
  const unlisted = found.map(textOf).filter(text => !isListed.has(text))
  // A row may name several files and bounds: each name is in one of the files, and each file has one of the names.
  const gone = rows.flatMap(({ paths, names }) => {
    if (names.length === 0) return []
    const here = (path: string, name: string) => isFound.has(textOf({ path, name }))
    return [
      ...names.filter(name => !paths.some(path => here(path, name))),
      ...paths.filter(path => !names.some(name => here(path, name))),
    ]
  })
  expect({ unlisted, gone }).toEqual({ unlisted: [], gone: [] })
  expect(found.length).toBeGreaterThan(100)
})

test('goal: each row says something, and its files are there', () => {
  const sources = readTree('src/**/*.{ts,tsx}')
  for (const { paths, share } of rows) {
    expect([paths, paths.length > 0 && paths.every(path => sources.has(path))]).toEqual([paths, true])
    expect([paths, share.length >= 6]).toEqual([paths, true])
  }
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
