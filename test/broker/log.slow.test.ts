// Goal: a program keeps a connection to the log's socket for seconds at most, whether it is silent or sends on.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createEgressRing, serveLog } from '../../src/broker/log.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-log-'))
afterAll(() => rmSync(dir, { recursive: true }))

test('goal: a silent program is cut off after 10 s, and so is one that sends without end', async () => {
  const path = join(dir, 'log.sock')
  const server = await serveLog(path, 0o666, createEgressRing(Date.now))
  const startedMs = performance.now()
  const sockets = [connect(path), connect(path)].map(socket => socket.on('error', () => {}))
  const closed = sockets.map(socket => new Promise(resolve => socket.once('close', resolve)))
  const timer = setInterval(() => sockets[1]?.write('x'), 100)
  try {
    await Promise.all(closed)
    expect(performance.now() - startedMs).toBeGreaterThan(9_000)
  } finally {
    clearInterval(timer)
    for (const socket of sockets) socket.destroy()
    server.close()
  }
}, 60_000)
