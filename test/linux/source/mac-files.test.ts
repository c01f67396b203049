import { heapStats } from 'bun:jsc'
import { afterAll, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { dropMacFiles } from '../../../src/linux/source/mac-files.ts'

const dir = fs.mkdtempSync('/tmp/strongroom-mac-files-')
afterAll(() => fs.rmSync(dir, { recursive: true, force: true }))

function tree(files: Readonly<Record<string, string>>): string {
  const root = fs.mkdtempSync(join(dir, 'case-'))
  for (const [path, text] of Object.entries(files)) {
    fs.mkdirSync(join(root, path, '..'), { recursive: true })
    fs.writeFileSync(join(root, path), text)
  }
  return root
}

// Goal: the innermost listing decides, in whatever order the paths come, and one that is no JSON does not count.
test('listings of nested packages', () => {
  const root = tree({
    'v/.cargo-checksum.json': '{"files":{"._a":"00","w/._a":"00","x/._a":"00"}}',
    'v/w/.cargo-checksum.json': '{"files":{"._b":"00"}}',
    'v/x/.cargo-checksum.json': '{"files"',
  })
  const paths = ['v/w/._b', 'v/._a', '._a', 'v/w/._a', 'v/x/._a', 'v/._b', 'v/x/._b']
  for (const path of paths) fs.writeFileSync(join(root, path), '')
  expect(dropMacFiles(root, paths)).toEqual(['._a', 'v/w/._a', 'v/._b', 'v/x/._b'])
  expect(paths.filter(path => fs.existsSync(join(root, path)))).toEqual(['v/w/._b', 'v/._a', 'v/x/._a'])
})

// Goal: the memory for listings does not grow with their number.
test('many large listings', () => {
  const dirs = Array.from({ length: 30 }, (_, at) => `v${at}`)
  const listingOf = (name: string) => {
    const others = Array.from({ length: 10_000 }, (_, at) => `"${name}_${at}":0`).join(',')
    return `{"files":{"._a":0,${others}}}`
  }
  const root = tree(Object.fromEntries(dirs.map(name => [`${name}/.cargo-checksum.json`, listingOf(name)])))
  const paths = dirs.map(name => `${name}/._a`)
  for (const path of paths) fs.writeFileSync(join(root, path), '')
  const { parse } = JSON
  const heapBytes: number[] = []
  // A spy would hold the results.
  JSON.parse = text => {
    Bun.gc(true)
    heapBytes.push(heapStats().heapSize)
    return parse(text)
  }
  try {
    expect(dropMacFiles(root, paths)).toEqual([])
  } finally {
    JSON.parse = parse
  }
  expect(heapBytes).toHaveLength(dirs.length)
  // All of them take 15 MiB.
  expect((heapBytes.at(-1) ?? 0) - (heapBytes[0] ?? 0)).toBeLessThan(4 * 1024 * 1024)
})
