// Goal: the log keeps the newest destinations, each once with a count; a flood of refused ones hides no allowed one.
// Readers have a bound, and programs keep the owner from no answer.

import { afterAll, expect, test } from 'bun:test'
import { once } from 'node:events'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEgressRing, serveLog } from '../../src/broker/log.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-log-'))
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: a repeated destination is one row with its last time', () => {
  let now = 1
  const ring = createEgressRing(() => now++)
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  ring.add({ verdict: 'refused', host: 'github.com', port: 443, reason: 'because' })
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  expect(ring.rows()).toEqual([
    { atMs: 2, verdict: 'refused', host: 'github.com', port: 443, reason: 'because', count: 1 },
    { atMs: 3, verdict: 'allowed', host: 'github.com', port: 443, reason: null, count: 2 },
  ])
})

test('goal: a flood is bounded and removes rows of its own verdict alone', () => {
  const ring = createEgressRing(() => 0)
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  for (let at = 0; at < 2_000; at += 1) ring.add({ verdict: 'refused', host: `${at}.example`, port: 0, reason: 'x' })
  const rows = ring.rows()
  expect([rows.length, rows[0]?.host, rows.at(-1)?.host]).toEqual([501, 'github.com', '1999.example'])
})

test('goal: a long reason or host, which a peer may choose, is cut to what the client of the owner reads', () => {
  const ring = createEgressRing(() => 0)
  ring.add({ verdict: 'refused', host: `${'h'.repeat(300)}.example`, port: 443, reason: 'r'.repeat(2_592) })
  ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
  const sizes = ring.rows().map(({ host, reason }) => [host.length, reason?.length ?? null])
  expect(sizes.toSorted()).toEqual([
    [10, null],
    [253, 400],
  ])
})

async function startLogs() {
  const ring = createEgressRing(() => 7)
  ring.add({ verdict: 'refused', host: 'b\u00fccher.example', port: 443, reason: 'r'.repeat(400) })
  const paths = { programs: join(dir, 'log.sock'), owner: join(dir, 'owner-log.sock') }
  const servers = [await serveLog(paths.programs, 0o666, ring), await serveLog(paths.owner, 0o600, ring)]
  const rows = async (unix: string) =>
    ((await (await fetch('http://broker/', { unix })).json()) as { rows: unknown[] }).rows
  const close = () => {
    for (const server of servers) server.close()
  }
  return { ring, paths, rows, [Symbol.dispose]: close }
}

test('goal: each socket answers as often as it is asked, and only the one of root is closed to programs', async () => {
  using logs = await startLogs()
  for (const path of [logs.paths.programs, logs.paths.owner, logs.paths.programs]) {
    expect(await logs.rows(path)).toEqual([...logs.ring.rows()])
  }
  for (let at = 0; at < 1_000; at += 1) logs.ring.add({ verdict: 'allowed', host: `${at}.a`, port: 1, reason: null })
  expect(await logs.rows(logs.paths.programs)).toHaveLength(501)
  const modes = [logs.paths.programs, logs.paths.owner].map(path => statSync(path).mode & 0o777)
  expect(modes).toEqual([0o666, 0o600])
})

test('goal: silent programs take 16 connections, further ones end at once, and root is answered meanwhile', async () => {
  using logs = await startLogs()
  const silent: Socket[] = []
  try {
    for (let at = 0; at < 16; at += 1) {
      const socket = connect(logs.paths.programs)
      silent.push(socket)
      await once(socket, 'connect')
    }
    const further = connect(logs.paths.programs).on('error', () => {})
    silent.push(further)
    await new Promise(resolve => further.once('close', resolve))
    expect(silent.slice(0, 16).map(socket => socket.destroyed)).toEqual(Array.from({ length: 16 }, () => false))
    expect(await logs.rows(logs.paths.owner)).toHaveLength(1)
    // One that leaves makes room.
    silent[0]?.destroy()
    const readAgain = async (): Promise<number> =>
      await logs.rows(logs.paths.programs).then(
        rows => rows.length,
        () => readAgain(),
      )
    expect(await readAgain()).toBe(1)
  } finally {
    for (const socket of silent) socket.destroy()
  }
})
