import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Socket } from 'bun'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { connectConsole, consoleFiles, followConsole, readConsole } from '../../../src/host/qemu/console.ts'

setDefaultTimeout(60_000)
const root = mkdtempSync(join(tmpdir(), 'console-test-'))
afterAll(() => rmSync(root, { recursive: true }))

let count = 0
function freshDir(): string {
  count += 1
  const dir = join(root, String(count))
  mkdirSync(dir)
  return dir
}

/** A guest console that says all of `text`, as fast as it is read, and then hangs up. */
function speaker(path: string, text: Uint8Array) {
  let at = 0
  const say = (socket: Socket) => {
    at += Math.max(0, socket.write(text.subarray(at)))
    if (at >= text.length) socket.end()
  }
  return Bun.listen({ unix: path, socket: { open: say, drain: say, data: () => {} } })
}

async function record(dir: string, bytesMax: number, text: Uint8Array) {
  const path = join(dir, 's')
  const listener = speaker(path, text)
  const { promise, resolve } = Promise.withResolvers<string>()
  const console = await connectConsole(path, { dir, bytesMax, timeoutMs: 20_000, onClose: resolve })
  await promise
  listener.stop(true)
  rmSync(path, { force: true })
  return console
}

const sizes = (dir: string) =>
  Object.values(consoleFiles).map(name => statSync(join(dir, name), { throwIfNoEntry: false })?.size ?? 0)

test('goal: what the guest says is there in order, across connections, tail first to go', async () => {
  const dir = freshDir()
  await record(dir, 100, Buffer.from('one '))
  await record(dir, 100, Buffer.from('two'))
  expect(Buffer.from(await readConsole(dir, 1_000)).toString()).toBe('one two')
  expect(Buffer.from(await readConsole(dir, 5)).toString()).toBe('e two')
  await record(dir, 100, Buffer.from('x'.repeat(60)))
  expect(Buffer.from(await readConsole(dir, 1_000)).toString()).toBe(`one two${'x'.repeat(60)}`)
  expect(Buffer.from(await readConsole(dir, 30)).toString()).toBe('x'.repeat(30))
  expect(Buffer.from(await readConsole(freshDir(), 30)).length).toBe(0)
})

test('goal: a flood of 10 MB keeps to the bound, ends with the last words, and does not grow memory', async () => {
  const dir = freshDir()
  const bytesMax = 65_536
  const lines = Buffer.from(Array.from({ length: 1_000_000 }, (_, n) => `${n}`.padStart(9, '0')).join('\n'))
  Bun.gc(true)
  const before = process.memoryUsage().rss
  const console = await record(dir, bytesMax, lines)
  expect(console.droppedBytes()).toBe(0)
  for (const size of sizes(dir)) expect(size).toBeLessThanOrEqual(bytesMax / 2)
  const kept = Buffer.from(await readConsole(dir, bytesMax))
  expect(kept.length).toBeGreaterThan(bytesMax / 2)
  expect(kept.equals(lines.subarray(-kept.length))).toBe(true)
  Bun.gc(true)
  expect(process.memoryUsage().rss - before).toBeLessThan(64 * 1_048_576)
})

test('goal: a follower sees the tail and then everything new, over turns of the ring, until aborted', async () => {
  const dir = freshDir()
  await record(dir, 100, Buffer.from('old text '))
  const stop = new AbortController()
  let seen = ''
  const following = (async () => {
    for await (const chunk of followConsole(dir, { signal: stop.signal, tailBytes: 5, pollMs: 5 })) {
      seen += Buffer.from(chunk).toString()
    }
  })()
  await until('the tail', 60_000, () => seen === 'text ')
  let expected = 'text '
  for (let n = 0; n < 20; n += 1) {
    const text = `line ${n} ${'.'.repeat(20)}\n`
    await record(dir, 100, Buffer.from(text))
    expected += text
    await until(`line ${n}`, 60_000, () => seen === expected)
  }
  stop.abort()
  await following
})

test('goal: a follower may be there before the console', async () => {
  const dir = freshDir()
  const stop = new AbortController()
  const following = followConsole(dir, { signal: stop.signal, tailBytes: 100, pollMs: 5 })
  const first = following.next()
  await Bun.sleep(20)
  appendFileSync(join(dir, consoleFiles.current), 'hello')
  expect(Buffer.from((await first).value ?? []).toString()).toBe('hello')
  stop.abort()
  expect((await following.next()).done).toBe(true)
})

test('goal: text that the disk does not take is dropped and counted, and nothing throws', async () => {
  const dir = freshDir()
  mkdirSync(join(dir, consoleFiles.previous))
  appendFileSync(join(dir, consoleFiles.current), 'y'.repeat(50))
  // The ring cannot turn over a directory.
  const console = await record(dir, 100, Buffer.from('x'.repeat(70)))
  expect(console.droppedBytes()).toBe(70)
  expect(readFileSync(join(dir, consoleFiles.current), 'utf8')).toBe('y'.repeat(50))
})

test('goal: a symbolic link in place of the ring is not followed', async () => {
  const dir = freshDir()
  symlinkSync('/dev/null', join(dir, consoleFiles.current))
  const options = { dir, bytesMax: 100, timeoutMs: 50, onClose: () => {} }
  expect((await failure(connectConsole(join(dir, 'none'), options))).message).toContain('ELOOP')
})

test('goal: a FIFO in place of the ring is refused at once, and holds up no other file access', async () => {
  // Opened for writing alone, or for reading alone: both together would let each other go on.
  const [written, read] = [freshDir(), freshDir()]
  Bun.spawnSync(['mkfifo', join(written, consoleFiles.current), join(read, consoleFiles.previous)])
  const socket = join(written, 's')
  const attempts = Array.from({ length: 32 }, (_, at) =>
    at % 2 === 0
      ? failure(connectConsole(socket, { dir: written, bytesMax: 10, timeoutMs: 100, onClose: () => {} }))
      : failure(readConsole(read, 10)),
  )
  const other = readFile(import.meta.path, 'utf8')
  expect(await Promise.race([other.then(() => 'read'), Bun.sleep(30_000).then(() => 'stalled')])).toBe('read')
  for (const { message } of await Promise.all(attempts)) expect(message).toMatch(/not a regular file|ENXIO/)
})

test('goal: no socket is a Fault at the deadline', async () => {
  const dir = freshDir()
  const options = { dir, bytesMax: 100, timeoutMs: 50, onClose: () => {} }
  expect((await failure(connectConsole(join(dir, 'none'), options))).code).toBe('qmp.closed')
})
