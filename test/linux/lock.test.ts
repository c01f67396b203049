import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { lockFile, lockFileOfDead } from '../../src/linux/lock.ts'

setDefaultTimeout(20_000)
const dir = mkdtempSync(join(tmpdir(), 'lock-test-'))
afterAll(() => rmSync(dir, { recursive: true }))

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
  const module = join(import.meta.dir, '../../src/linux/lock.ts')
  writeFileSync(
    script,
    `import { lockFile } from ${JSON.stringify(module)}
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
  const module = join(import.meta.dir, '../../src/linux/lock.ts')
  // The child gets a copy of the lock as its standard input, as one between fork and execve has it.
  writeFileSync(
    script,
    `import { readdirSync, readlinkSync } from 'node:fs'
import { lockFile } from ${JSON.stringify(module)}
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
