import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  closeSync,
  existsSync,
  constants as fsConstants,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { diskSpace } from '../../src/linux/files/disk-space.ts'
import { openRegular, truncateAbove } from '../../src/linux/files/regular.ts'
import { removeFile, removeTree } from '../../src/linux/files/removal.ts'
import { ensureDir, writeFileAtomic } from '../../src/linux/files.ts'

setDefaultTimeout(20_000)
const dir = mkdtempSync(join(tmpdir(), 'files-test-'))
afterAll(() => rmSync(dir, { recursive: true }))
const modeOf = (path: string) => statSync(path).mode & 0o7777

test('goal: a write replaces the whole content with the mode asked for and leaves no temporary file', () => {
  const path = join(dir, 'a')
  writeFileAtomic(path, 'one', { mode: 0o666 })
  expect(modeOf(path)).toBe(0o666)
  // A crash left this behind.
  writeFileSync(`${path}.tmp`, 'half', { mode: 0o777 })
  writeFileAtomic(path, Uint8Array.of(1, 2), { mode: 0o600 })
  expect([...readFileSync(path)]).toEqual([1, 2])
  expect(modeOf(path)).toBe(0o600)
  expect(readdirSync(dir)).toEqual(['a'])
})

test('goal: a write that fails keeps the old content and says which file', () => {
  const path = join(dir, 'there')
  mkdirSync(path)
  writeFileSync(join(path, 'x'), '')
  expect(() => writeFileAtomic(path, 'x', { mode: 0o600 })).toThrow(`write ${path}: `)
  expect(() => writeFileAtomic(join(dir, 'none', 'x'), 'x', { mode: 0o600 })).toThrow('ENOENT')
  expect(existsSync(`${path}.tmp`)).toBe(false)
  removeTree(path)
})

test('goal: a directory has its mode whether it was there or not; a file or link in its place is a Fault', () => {
  const path = join(dir, 'p', 'q')
  ensureDir(path, { mode: 0o710 })
  expect(modeOf(path)).toBe(0o710)
  chmodSync(path, 0o777)
  ensureDir(path, { mode: 0o700 })
  expect(modeOf(path)).toBe(0o700)
  writeFileSync(join(dir, 'file'), '')
  symlinkSync(path, join(dir, 'link'))
  for (const name of ['file', 'link'])
    expect(() => ensureDir(join(dir, name), { mode: 0o700 })).toThrow('make directory')
})

test('goal: removal takes whole trees, does not follow links, and of nothing is fine', () => {
  removeTree(join(dir, 'link'))
  expect(existsSync(join(dir, 'p', 'q'))).toBe(true)
  removeTree(join(dir, 'p'))
  removeTree(join(dir, 'p'))
  removeFile(join(dir, 'file'))
  removeFile(join(dir, 'file'))
  expect(existsSync(join(dir, 'p'))).toBe(false)
  mkdirSync(join(dir, 'd'))
  expect(() => removeFile(join(dir, 'd'))).toThrow(`remove ${join(dir, 'd')}`)
})

test('goal: disk space is that of the file system', () => {
  const { freeBytes, totalBytes } = diskSpace(dir)
  expect(freeBytes).toBeGreaterThan(0)
  expect(totalBytes).toBeGreaterThanOrEqual(freeBytes)
  expect(() => diskSpace(join(dir, 'none'))).toThrow('disk space of')
})

test('goal: what others append to cannot fill the disk: emptied above its bound, left alone below it, and absent is fine', () => {
  const path = join(dir, 'log')
  truncateAbove(path, 4)
  writeFileSync(path, '1234')
  truncateAbove(path, 4)
  expect(readFileSync(path, 'utf8')).toBe('1234')
  writeFileSync(path, '12345')
  truncateAbove(path, 4)
  expect(readFileSync(path, 'utf8')).toBe('')
})

test('goal: nothing that somebody else may have put in the place of a file is emptied, read or waited for', () => {
  const precious = join(dir, 'precious')
  writeFileSync(precious, 'database')
  const place = join(dir, 'place')
  const PUT: Record<string, () => void> = {
    'a symbolic link': () => symlinkSync(precious, place),
    'a hard link': () => linkSync(precious, place),
    'a FIFO': () => Bun.spawnSync(['mkfifo', place]),
    'a directory': () => mkdirSync(place),
  }
  const { O_RDONLY, O_WRONLY, O_CREAT, O_APPEND } = fsConstants
  for (const [what, put] of Object.entries(PUT)) {
    put()
    expect(() => truncateAbove(place, 4), what).toThrow(place)
    for (const flags of [O_RDONLY, O_WRONLY | O_CREAT | O_APPEND])
      expect(() => openRegular(place, flags), what).toThrow(place)
    rmSync(place, { recursive: true })
    expect(readFileSync(precious, 'utf8'), what).toBe('database')
  }
  closeSync(openRegular(place, O_WRONLY | O_CREAT | O_APPEND))
  expect(modeOf(place)).toBe(0o600)
})
