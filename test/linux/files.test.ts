import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  chmodSync,
  existsSync,
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
import { systemClock } from '../../src/base/clock.ts'
import { checkSocketPath, socketPathBytesMax } from '../../src/host/qemu/socket-path.ts'
import {
  diskSpace,
  ensureDir,
  lockFile,
  lockFileOfDead,
  removeFile,
  removeTree,
  truncateAbove,
  writeFileAtomic,
} from '../../src/linux/files.ts'

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

test('goal: one holder at a time, in this process and in another; release and death let go; children do not inherit', async () => {
  const path = join(dir, 'lock')
  const lock = lockFile(path)
  expect(() => lockFile(path)).toThrow(`held by another strongroom (pid ${process.pid})`)
  const child = Bun.spawn(['sleep', '60'], { detached: true })
  lock.release()
  lock.release()
  // Not held on by the child that was started meanwhile.
  lockFile(path).release()
  child.kill('SIGKILL')

  const script = join(dir, 'holder.ts')
  const files = join(import.meta.dir, '../../src/linux/files.ts')
  writeFileSync(
    script,
    `import { lockFile } from ${JSON.stringify(files)}
globalThis.held = lockFile(${JSON.stringify(path)})
process.stdout.write('held')
setInterval(() => {}, 1000)
`,
  )
  const other = Bun.spawn([process.execPath, script], { stdout: 'pipe' })
  await other.stdout.getReader().read()
  expect(() => lockFile(path)).toThrow(`pid ${other.pid}`)
  other.kill('SIGKILL')
  await other.exited
  using mine = lockFile(path)
  expect(mine).toBeDefined()
})

test('goal: a lock that a dead holder has left with its child is waited for, that of a living one is not', async () => {
  const path = join(dir, 'lock-of-dead')
  const script = join(dir, 'parent.ts')
  const files = join(import.meta.dir, '../../src/linux/files.ts')
  // The child gets a copy of the lock as its standard input, as one between fork and execve has it.
  writeFileSync(
    script,
    `import { readdirSync, readlinkSync } from 'node:fs'
import { lockFile } from ${JSON.stringify(files)}
globalThis.held = lockFile(${JSON.stringify(path)})
const isLock = fd => { try { return readlinkSync('/proc/self/fd/' + fd) === ${JSON.stringify(path)} } catch { return false } }
const child = Bun.spawn(['sleep', '60'], { stdin: Number(readdirSync('/proc/self/fd').find(isLock)), detached: true })
process.stdout.write(String(child.pid))
setInterval(() => {}, 1000)
`,
  )
  const parent = Bun.spawn([process.execPath, script], { stdout: 'pipe' })
  const { value } = await parent.stdout.getReader().read()
  const child = Number(new TextDecoder().decode(value))
  const clock = systemClock
  try {
    // Longer than the test may take: it does not wait.
    await expect(lockFileOfDead(path, { timeoutMs: 600_000, clock })).rejects.toThrow(`pid ${parent.pid}`)
    parent.kill('SIGKILL')
    await parent.exited
    await expect(lockFileOfDead(path, { timeoutMs: 50, clock })).rejects.toThrow(`pid ${parent.pid}`)
    const taken = lockFileOfDead(path, { timeoutMs: 600_000, clock })
    process.kill(child, 'SIGKILL')
    using mine = await taken
    expect(mine).toBeDefined()
  } finally {
    parent.kill('SIGKILL')
    killIfThere(child)
  }
})

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {}
}

test('goal: a socket path over the limit of sun_path is a Fault that says the limit', () => {
  const path = `/${'x'.repeat(socketPathBytesMax - 1)}`
  expect(checkSocketPath(path)).toBe(path)
  expect(() => checkSocketPath(`${path}x`)).toThrow('108 bytes, the limit is 107')
  expect(() => checkSocketPath(`/${'é'.repeat(54)}`)).toThrow('109 bytes')
  for (const wrong of ['relative', '/a\0b']) expect(() => checkSocketPath(wrong)).toThrow('not absolute')
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
