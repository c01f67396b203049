// Goal: a person on a slow line gets the page soon: what it begins with is small, and its largest part comes only with
// the first verification.

import { expect, test } from 'bun:test'
import { buildPage } from '../../../src/console/page/build.ts'
import { indexPath, servedFiles } from '../../../src/console/page/files.ts'

const bytesMax = 150 * 1024

test('goal: the first page, and all that an operator ever loads, have at most 150 KiB as they are served', async () => {
  const built = await buildPage()
  const served = servedFiles(built)
  const sizeOf = (path: string) => served.get(path)?.gzip.length ?? 0
  const textOf = (path: string) => new TextDecoder().decode(built.find(file => file.path === path)?.bytes)
  const paths = built.map(({ path }) => path)
  // It has AMD's root keys.
  const [verifier = '', ...more] = paths.filter(path => textOf(path).includes('ARK-Milan'))
  expect([verifier.startsWith('/assets/part-'), more]).toEqual([true, []])
  const first = [...textOf(indexPath).matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path = '']) => path)
  expect(first).toHaveLength(2)
  const others = paths.filter(path => path !== verifier)
  expect(others).toEqual(expect.arrayContaining(first))
  expect(others.reduce((sum, path) => sum + sizeOf(path), 0)).toBeLessThan(bytesMax)
  expect(sizeOf(verifier)).toBeLessThan(bytesMax)
})
