// An image on disk of which something is gone, cut short or other than its manifest says.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'
import { Fault } from '../../../src/base/fault.ts'
import { loadImage } from '../../../src/vm/launch/image.driver.ts'

let directory: string

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'strongroom-image-'))
  await writeLaunchImage(directory)
})
afterEach(() => rmSync(directory, { recursive: true, force: true }))

const FILES = ['manifest.json', 'firmware', 'kernel', 'initrd', 'cmdline', 'root'] as const

/** Damage to a file. Null for damage that its size does not show. */
const DAMAGE: Record<string, (path: string) => void> = {
  gone: path => rmSync(path),
  'cut short': path => truncateSync(path, statSync(path).size - 1),
  empty: path => truncateSync(path, 0),
  'too long': path => truncateSync(path, statSync(path).size + 1),
  'a link to nothing': path => {
    rmSync(path)
    Bun.spawnSync(['ln', '--symbolic', '/nowhere/at/all', path])
  },
}

for (const file of FILES) {
  for (const [what, damage] of Object.entries(DAMAGE)) {
    // Goal: any damaged file makes a launch fail with a bad image and the file's name; nothing else is thrown.
    test(`${file} is ${what}`, () => {
      expect(loadImage(directory).manifest.name).toBe('instance')
      damage(join(directory, file))
      expect(thrownBy(() => loadImage(directory))).toEqual(['image.invalid', true])

      function thrownBy(work: () => unknown): unknown {
        try {
          work()
        } catch (error) {
          return error instanceof Fault ? [error.code, error.message.includes(join(directory, file))] : error
        }
        return 'nothing'
      }
    })
  }
}

// Goal: the parts of two images are not taken for one.
test('a command line of another root is refused', () => {
  const path = join(directory, 'cmdline')
  writeFileSync(path, 'x'.repeat(statSync(path).size))
  expect(() => loadImage(directory)).toThrow("does not name the manifest's root hash")
})
