import { afterEach, beforeEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type CacheDirs, lockCache } from '../../../scripts/image/image-cache.ts'

let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'strongroom-leftovers-'))
})
afterEach(() => {
  for (const point of mountsBelow(root)) Bun.spawnSync(['umount', '--lazy', point])
  rmSync(root, { recursive: true, force: true })
})

const mountsBelow = (directory: string) =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap(line => line.split(' ')[4] ?? [])
    .filter(point => point.startsWith(`${directory}/`))
    .reverse()

test('a build that was killed with file systems mounted does not stop the next one, and nothing mounted is deleted', async () => {
  // Goal: a later build removes the directory, and never reaches into a mount, such as the /dev of the machine.
  const below = (name: string) => join(root, name)
  const dirs: CacheDirs = {
    root,
    downloads: below('d'),
    bases: below('b'),
    images: below('images'),
    work: below('work'),
  }
  mkdirSync(dirs.images)
  const kept = join(root, 'kept')
  mkdirSync(kept)
  writeFileSync(join(kept, 'file'), 'of the machine')
  const tree = join(dirs.work, '.scratch-killed', 'tree')
  mkdirSync(join(tree, 'dev'), { recursive: true })
  expect(Bun.spawnSync(['mount', '-t', 'tmpfs', 'none', join(tree, 'dev')]).exitCode).toBe(0)
  mkdirSync(join(tree, 'dev', 'bound'))
  expect(Bun.spawnSync(['mount', '--bind', '-o', 'ro', kept, join(tree, 'dev', 'bound')]).exitCode).toBe(0)
  expect(mountsBelow(root)).toHaveLength(2)
  await using _lock = await lockCache(dirs)
  expect(existsSync(join(dirs.work, '.scratch-killed'))).toBe(false)
  expect(mountsBelow(root)).toEqual([])
  expect(readFileSync(join(kept, 'file'), 'utf8')).toBe('of the machine')
})

test('a build that cannot remove what the last one left gives its lock back', async () => {
  // Goal: one failed build does not make every later one wait for the lock.
  const below = (name: string) => join(root, name)
  const dirs: CacheDirs = {
    root,
    downloads: below('d'),
    bases: below('b'),
    images: below('images'),
    work: below('work'),
  }
  mkdirSync(dirs.work)
  // There is no directory of images to look through.
  expect(
    await lockCache(dirs).then(
      () => 'locked',
      error => error.code,
    ),
  ).toBe('ENOENT')
  mkdirSync(dirs.images)
  await using _lock = await lockCache(dirs)
})
