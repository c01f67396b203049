// Connecting to upstreams: names, refusals, silence, certificates. A server with the wrong identity gets no byte of a
// request.

import { dlopen, FFIType, ptr } from 'bun:ffi'
import { describe, expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import {
  countedDeadlines,
  jsonResponse,
  type Peer,
  readText,
  reasonOf,
  selfSigned,
  selfSignedUntil,
  startRaw,
} from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { target } from '../../../scripts/rigs/gateway/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'

const own = await selfSigned('127.0.0.1')
const named = await selfSigned('localhost')
const other = await selfSigned('127.0.0.2', 'upstream.example')
const six = await selfSigned('::1')
const ended = await selfSignedUntil(Date.now() - 60_000, ['127.0.0.1'])
const shortMs = 400

/** `connectMs`: a server that is there takes a small part of it, on whatever machine. */
function openClient({ connectMs = 10_000 } = {}) {
  const deadlines = countedDeadlines()
  const client = new UpstreamClient({ deadlines, timeouts: { connectMs, firstByteMs: 15_000 } })
  return {
    pending: deadlines.pending,
    probe: (to: UpstreamTarget, signal: AbortSignal) => client.probe(to, signal),
    send: (to: UpstreamTarget, attempt = openAttempt()) =>
      client.send(to, { path: '/x', body: '1', stream: false, attempt }),
    [Symbol.dispose]: () => client.close(),
  }
}

const echo = (peer: Peer, { body }: { body: Buffer }) => void peer.write(jsonResponse(body.toString()))

describe('not to be reached', () => {
  // Goal: a refusing port, a missing socket and an unresolvable name are unreachable and leave nothing behind.
  test('at once', async () => {
    const gone = await startRaw({ kind: 'tcp' }, {})
    await gone[Symbol.asyncDispose]()
    using client = openClient()
    const rows = [
      gone.target,
      target('http://localhost/v1', { unixSocket: '/nonexistent/upstream.sock' }),
      target(`http://${'a'.repeat(64)}.invalid/v1`),
      target(`https://127.0.0.1:${gone.port}/v1`, { ca: own.cert }),
    ]
    for (const row of rows) expect([row.url, await reasonOf(client.send(row))]).toEqual([row.url, 'unreachable'])
    expect(client.pending()).toBe(0)
  })

  // Goal: if a connection is neither accepted nor refused, the connect timeout ends the wait, long before the
  // first-byte timeout.
  test('a black hole', async () => {
    using hole = openBlackHole()
    // The only one that its queue has room for.
    const first = await Bun.connect({ hostname: '127.0.0.1', port: hole.port, socket: { data: () => {} } })
    using client = openClient({ connectMs: shortMs })
    const startMs = performance.now()
    const asked = Array.from({ length: 3 }, () => reasonOf(client.send(target(`http://127.0.0.1:${hole.port}/v1`))))
    expect(await Promise.all(asked)).toEqual(['unreachable', 'unreachable', 'unreachable'])
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(shortMs - 20)
    expect(client.pending()).toBe(0)
    first.terminate()
  }, 10_000)

  // Goal: the connect timeout covers a server that accepts and never begins TLS, and its connection is closed.
  test('a handshake that stalls', async () => {
    await using upstream = await startRaw({ kind: 'tcp' }, {})
    using client = openClient({ connectMs: shortMs })
    const to = target(`https://127.0.0.1:${upstream.port}/v1`, { ca: own.cert })
    expect(await reasonOf(client.send(to))).toBe('unreachable')
    await until('the server has seen it', 15_000, () => upstream.peers.length > 0)
    await upstream.peers[0]?.closed
    expect([upstream.peers.length, upstream.open(), client.pending()]).toEqual([1, 0, 0])
  })
})

describe('TLS', () => {
  const ROWS: Record<
    string,
    [host: string, server: typeof own, ca: string | null, pin: string | null, isRight: boolean]
  > = {
    'an address, its chain': ['127.0.0.1', own, own.cert, null, true],
    'an address, its chain, its pin': ['127.0.0.1', own, own.cert, own.spkiSha256, true],
    'a name, its chain, its pin': ['localhost', named, named.cert, named.spkiSha256, true],
    'an IPv6 address, its chain, its pin': ['[::1]', six, six.cert, six.spkiSha256, true],
    'another pin': ['127.0.0.1', own, own.cert, other.spkiSha256, false],
    'another IPv6 address': ['[::1]', own, own.cert, own.spkiSha256, false],
    'one that has ended': ['127.0.0.1', ended, ended.cert, ended.spkiSha256, false],
    'no chain': ['127.0.0.1', own, null, null, false],
    'no chain, but the pin': ['127.0.0.1', own, null, own.spkiSha256, false],
    'another chain': ['127.0.0.1', own, other.cert, own.spkiSha256, false],
    'another address': ['127.0.0.1', other, other.cert, other.spkiSha256, false],
    'a name for an address': ['127.0.0.1', named, named.cert, named.spkiSha256, false],
    'another name': ['localhost', other, other.cert, other.spkiSha256, false],
    'an address for a name': ['localhost', own, own.cert, own.spkiSha256, false],
  }
  // Goal: while an upstream changes its key, the one that it has and the one that comes next count, and no third.
  test.each([
    ['its key comes next', own, other.spkiSha256, own.spkiSha256, true],
    ['its key is the present one', own, own.spkiSha256, other.spkiSha256, true],
    ['a third', own, other.spkiSha256, named.spkiSha256, false],
  ])('two pins: %s', async (_, server, spkiSha256, spkiSha256Next, isRight) => {
    await using upstream = await startRaw({ kind: 'tls', own: server }, { onRequest: echo })
    using client = openClient()
    const to = target(`https://127.0.0.1:${upstream.port}/v1`, { ca: server.cert, spkiSha256, spkiSha256Next })
    const end = isRight ? await readText(await client.send(to)) : await reasonOf(client.send(to))
    expect(end).toBe(isRight ? '1' : 'unreachable')
  })

  const hasIpv6 = existsSync('/proc/net/if_inet6')
  for (const [name, [host, server, ca, spkiSha256, isRight]] of Object.entries(ROWS)) {
    test.skipIf(skipUnless(host !== '[::1]' || hasIpv6, 'needs IPv6 on loopback'))(name, async () => {
      // Goal: a server with the right chain, name and key gets the request, every time; any other gets no byte of it.
      const place = { kind: 'tls', own: server } as const
      await using upstream = await startRaw(place, { onRequest: echo }, host === '[::1]' ? '::1' : '127.0.0.1')
      using client = openClient()
      const to = target(`https://${host}:${upstream.port}/v1`, { ca, spkiSha256 })
      for (let round = 0; round < 3; round += 1) {
        const end = isRight ? await readText(await client.send(to)) : await reasonOf(client.send(to))
        expect(end).toBe(isRight ? '1' : 'unreachable')
      }
      if (isRight) return expect(upstream.peers.length).toBe(1)
      await until('all are closed', 15_000, () => upstream.open() === 0)
      expect(upstream.peers.map(peer => peer.bytes())).toEqual(upstream.peers.map(() => 0))
    })
  }

  // Goal: a server without TLS behind an https url gets no byte of a request; a server with TLS behind an http url
  // fails.
  test('on one side only', async () => {
    await using plain = await startRaw({ kind: 'tcp' }, { onBytes: peer => void peer.write(jsonResponse('1')) })
    await using secure = await startRaw({ kind: 'tls', own }, { onRequest: echo })
    using client = openClient()
    expect(await reasonOf(client.send(target(`https://127.0.0.1:${plain.port}/v1`, { ca: own.cert })))).toBe(
      'unreachable',
    )
    const answered = await reasonOf(client.send(target(`http://127.0.0.1:${secure.port}/v1`)))
    expect(['unreachable', 'malformed']).toContain(answered)
    await until('all are closed', 15_000, () => plain.open() + secure.open() === 0)
    expect(secure.peers.map(peer => peer.bytes())).toEqual(secure.peers.map(() => 0))
    expect(client.pending()).toBe(0)
  })
})

describe('probes', () => {
  const models = (status: number) =>
    `HTTP/1.1 ${status} X\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{`

  // Goal: the status of the answer decides; the probe lists the models with the key and closes its connection after any
  // response.
  test.each([200, 204, 401, 404, 500, 503])('an answer of %d', async status => {
    await using upstream = await startRaw({ kind: 'tls', own }, { onRequest: peer => void peer.write(models(status)) })
    using client = openClient()
    expect(await client.probe(upstream.target, new AbortController().signal)).toBe(status)
    await upstream.peers[0]?.closed
    expect([upstream.peers.length, client.pending()]).toEqual([1, 0])
    expect(upstream.peers[0]?.asked.map(({ head }) => head.split('\r\n'))).toEqual([
      [
        'GET /v1/models HTTP/1.1',
        `host: 127.0.0.1:${upstream.port}`,
        'accept-encoding: identity',
        'user-agent: strongroom',
        'authorization: Bearer upstream-key-canary',
        'accept: application/json',
      ],
    ])
  })

  // Goal: an aborted probe, and a probe of an unreachable upstream, fail and leave no connection and no deadline.
  test('no answer', async () => {
    const asked = Promise.withResolvers<void>()
    await using upstream = await startRaw({ kind: 'tcp' }, { onRequest: () => asked.resolve() })
    using client = openClient()
    const stop = new AbortController()
    const probed = reasonOf(client.probe(upstream.target, stop.signal))
    await asked.promise
    stop.abort()
    expect(await probed).toBe('cut')
    await upstream.peers[0]?.closed
    await upstream[Symbol.asyncDispose]()
    expect(await reasonOf(client.probe(upstream.target, new AbortController().signal))).toBe('unreachable')
    expect(client.pending()).toBe(0)
  })
})

/**
 * A port that listens with the shortest queue and never accepts: the kernel drops the excess instead of refusing it
 * (listen(2)).
 */
function openBlackHole(): Disposable & { readonly port: number } {
  const libc = dlopen('libc.so.6', {
    socket: { args: [FFIType.i32, FFIType.i32, FFIType.i32], returns: FFIType.i32 },
    bind: { args: [FFIType.i32, FFIType.ptr, FFIType.i32], returns: FFIType.i32 },
    listen: { args: [FFIType.i32, FFIType.i32], returns: FFIType.i32 },
    getsockname: { args: [FFIType.i32, FFIType.ptr, FFIType.ptr], returns: FFIType.i32 },
    close: { args: [FFIType.i32], returns: FFIType.i32 },
  })
  const call = libc.symbols
  // sockaddr_in, ip(7): family, port and address in network order.
  const address = new Uint8Array([2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
  const length = new Uint32Array([address.length])
  const fd = call.socket(2, 1 | 0o2000000, 0)
  const failed = call.bind(fd, ptr(address), address.length) | call.listen(fd, 0)
  expect([fd >= 0, failed, call.getsockname(fd, ptr(address), ptr(length))]).toEqual([true, 0, 0])
  return {
    port: new DataView(address.buffer).getUint16(2),
    [Symbol.dispose]: () => {
      call.close(fd)
      libc.close()
    },
  }
}
