// Bodies that are too large, of clients that write everything before they read: real TLS, real sockets.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { runsAll } from '../../scripts/rigs/all.ts'
import { type Clock, systemClock } from '../../src/base/clock.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { createDeadlines } from '../../src/base/work/deadlines.ts'
import { readSourceBody } from '../../src/builds/http/body.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { createEdge, readJson } from '../../src/http/edge.ts'
import { serveTls } from '../../src/http/serve.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-large-'))
afterAll(() => rmSync(dir, { recursive: true }))
const authority = await openAuthority({
  kind: 'clients',
  stateDir: dir,
  names: ['localhost'],
  nowMs: Date.now,
  random: systemRandom,
})
const pair = await authority.issue(['localhost'], 5)
const bytesMax = 65_536

/** Ten times slower than real: what is discarded here for each of many clients takes a busy machine long. */
const slowClock: Clock = {
  ...systemClock,
  monotonicMs: () => systemClock.monotonicMs() / 10,
  sleep: (ms, signal) => systemClock.sleep(10 * ms, signal),
}

function serve() {
  const deadlines = createDeadlines(slowClock)
  const sources = {
    sourceBytesMax: bytesMax,
    documentBytesMax: bytesMax,
    timeoutMs: 120_000,
    slowMs: 120_000,
    depthMax: 9,
  }
  const fetch = createEdge({
    log: silentLogger,
    clock: slowClock,
    random: systemRandom,
    admitChange: () => {},
    strangers: { level: level => level },
    failureDocument: (_context, error) => ({ error }),
    routes: [
      {
        method: 'POST',
        path: '/json',
        respond: async ({ request }) =>
          Response.json(await readJson(request, { bytesMax, timeoutMs: 120_000, depthMax: 9 }, deadlines)),
      },
      {
        method: 'POST',
        path: '/source',
        respond: async ({ request, requestId }) => {
          await readSourceBody(request, join(dir, requestId), { limits: sources, deadlines })
          return new Response()
        },
      },
    ],
  })
  return serveTls(request => fetch(request, {}), {
    hostname: '127.0.0.1',
    port: 0,
    tls: { current: () => pair, guestCertificate: () => '', onChange: () => {} },
    idleTimeoutSeconds: 120,
    requestBodyBytesMax: Number.MAX_SAFE_INTEGER,
    log: silentLogger,
  })
}

/** Reads nothing until its whole body is with the kernel. Returns the status, or how the connection ended. */
function post(port: number, path: string, { size, isChunked }: { size: number; isChunked: boolean }): Promise<string> {
  return new Promise(resolve => {
    let text = ''
    const socket = connect({ host: '127.0.0.1', port, ca: authority.caPem, servername: 'localhost' }, () => {
      socket.pause()
      const length = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${size}`
      socket.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\n${length}\r\n\r\n`)
      if (isChunked) socket.write(`${size.toString(16)}\r\n`)
      socket.write(Buffer.alloc(size, '{'), () => {
        if (isChunked) socket.write('\r\n0\r\n\r\n')
        socket.resume()
      })
    })
    const end = (how: string) => {
      resolve(/^HTTP\/1\.1 (\d+) /.exec(text)?.[1] ?? how)
      socket.destroy()
    }
    socket.on('data', (data: Buffer) => {
      text += data.toString()
      if (text.includes('\r\n\r\n')) end('')
    })
    socket.on('close', () => end('closed'))
    socket.on('error', (error: Error) => end(String(Reflect.get(error, 'code'))))
  })
}

/** Both ends of all bytes are in this process. */
const rounds = [
  { size: 1_000_000, clients: 20 },
  { size: 10_000_000, clients: runsAll ? 20 : 8 },
  { size: 40_000_000, clients: runsAll ? 4 : 2 },
]

for (const path of ['/json', '/source']) {
  // Goal: each of many clients with a body that is far too large gets its 413, with a declared length and without, and
  // none a connection that ends without a word.
  test(`every client gets its refusal: ${path}`, async () => {
    const server = serve()
    for (const { size, clients } of rounds) {
      const asked = Array.from({ length: clients }, (_, index) =>
        post(server.port, path, { size, isChunked: index % 2 === 1 }),
      )
      expect([size, [...new Set(await Promise.all(asked))]]).toEqual([size, ['413']])
    }
    await server.stop(true)
  }, 120_000)
}

// Goal: nobody is read for ever: beyond a bound the refusal is sent whatever is still to come.
test('an endless body', async () => {
  const deadlines = createDeadlines(systemClock)
  let sent = 0
  let cancelled = false
  const endless = new ReadableStream<Uint8Array>({
    pull: controller => {
      sent += 1_048_576
      controller.enqueue(new Uint8Array(1_048_576))
    },
    cancel: () => {
      cancelled = true
    },
  })
  const request = new Request('http://a.example/', { method: 'POST', body: endless })
  await expect(readJson(request, { bytesMax, timeoutMs: 120_000, depthMax: 9 }, deadlines)).rejects.toMatchObject({
    code: 'body_too_large',
  })
  expect(cancelled).toBe(true)
  expect(sent).toBeLessThan(80 * 1_048_576)
})
