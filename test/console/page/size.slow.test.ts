// Goal: a person on a slow line gets the page soon, and the page has no verifier: what it would say of its own host
// proves nothing.

import { expect, test } from 'bun:test'
import { buildPage } from '../../../src/console/page/build.ts'
import { indexPath, servedFiles } from '../../../src/console/page/files.ts'

const bytesMax = 100 * 1024

test('goal: all that an operator or a tenant ever loads has at most 100 KiB as it is served, and judges no evidence', async () => {
  const built = await buildPage()
  const served = servedFiles(built)
  const textOf = (path: string) => new TextDecoder().decode(built.find(file => file.path === path)?.bytes)
  const paths = built.map(({ path }) => path)
  // AMD's root keys, what a receipt begins with, and the archive of a result.
  for (const trace of ['ARK-Milan', 'ARK-Genoa', 'DecompressionStream', 'mlkem', 'PASS', 'VERDICT']) {
    expect([trace, paths.filter(path => textOf(path).includes(trace))]).toEqual([trace, []])
  }
  const first = [...textOf(indexPath).matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path = '']) => path)
  expect(first).toHaveLength(2)
  expect(paths).toEqual(expect.arrayContaining(first))
  expect(paths.reduce((sum, path) => sum + (served.get(path)?.gzip.length ?? 0), 0)).toBeLessThan(bytesMax)
})
