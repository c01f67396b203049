// Requests that hosts of a fleet pass on, over real TLS and a real PostgreSQL: bodies both ways, and what breaks on the
// way.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect as connectTcp, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asOwner, newFleet } from '../../../scripts/rigs/postgres/fleet.ts'
import { hasPostgres, type PostgresServer, startPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { type Clock, systemClock } from '../../../src/base/clock.ts'
import type { ForwardedFetch, ForwardingPeer } from '../../../src/fleet/peers/peer-server.ts'
import { publishPeer } from '../../../src/fleet/peers/peers.query.ts'
import { UnavailableFault } from '../../../src/http/limited.ts'
import { type PeerHost, startPeerHost } from '../../rigs/fleet/peer-host.ts'

const mib = 1_048_576

describe.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))('requests passed on', () => {
  let server: PostgresServer
  let root: string
  beforeAll(async () => {
    server = await startPostgres()
    root = mkdtempSync(join(tmpdir(), 'srt-peers-'))
  })
  afterAll(async () => {
    await server[Symbol.asyncDispose]()
    rmSync(root, { recursive: true, force: true })
  })

  /** West answers by `service`; east passes on. */
  async function pair(service: ForwardedFetch, clock: Clock = systemClock) {
    const stack = new AsyncDisposableStack()
    const database = await newFleet(server)
    const directory = mkdtempSync(join(root, 'fleet-'))
    const open = async (name: string, answer: ForwardedFetch): Promise<PeerHost> =>
      stack.use(await startPeerHost(server, database, { root: directory, name, service: answer, clock }))
    const west = await open('west', service)
    const east = await open('east', async () => new Response('east'))
    await until('they know each other', 60_000, async () => {
      await east.look()
      return !east.peers.watch.isDown(west.hostId)
    })
    return { database, west, east, url: east.front(west.hostId), [Symbol.asyncDispose]: () => stack.disposeAsync() }
  }

  // Goal: the other host sees the client's request, whole, and the client the other host's answer.
  test('all of a request and its answer', async () => {
    await using hosts = await pair(async (request, { address, principal }) => {
      const { method, url, headers } = request
      const body = await request.text()
      const seen = { method, url, headers: Object.fromEntries(headers), address: address(), principal, body }
      return Response.json(seen, {
        status: 418,
        headers: { 'X-Own': 'yes', 'Retry-After': '7', 'Set-Cookie': 'a=b', Connection: 'close, X-Hop', 'X-Hop': '1' },
      })
    })
    const sent = await fetch(`${hosts.url}/v1/a%2Fb/../c?d=%20e&nonce=x`, {
      method: 'POST',
      headers: {
        // None of what proves who the client is goes on.
        ...{ Authorization: 'Bearer ca_1', Cookie: 'session=1', 'X-Api-Key': 'k' },
        ...{ 'X-Correlation-ID': 'mine', Host: 'instances.agents.example' },
        ...{ Connection: 'X-Mine', 'X-Mine': '1', TE: 'trailers' },
      },
      body: 'the body',
    })
    expect(sent.status).toBe(418)
    expect(sent.headers.get('x-own')).toBe('yes')
    expect(sent.headers.get('retry-after')).toBe('7')
    expect(sent.headers.get('x-hop')).toBeNull()
    const seen = (await sent.json()) as { readonly headers: Record<string, string> }
    expect(seen).toMatchObject({
      method: 'POST',
      url: 'https://instances.agents.example/v1/c?d=%20e&nonce=x',
      address: '127.0.0.1',
      body: 'the body',
      principal: { organizationId: 'o-1', keyPrefix: 'abcd1234', scope: 'write' },
      headers: { 'x-correlation-id': 'mine', 'content-length': '8' },
    })
    for (const name of ['x-mine', 'authorization', 'cookie', 'x-api-key']) expect(seen.headers[name]).toBeUndefined()
    await nothingUnderWay(hosts)
    expect(hosts.west.answering.view()).toMatchObject({ refused: 0, served: { instances: 1 } })
  })

  // Goal: what is asked for by HEAD, and answers without a body, keep their form.
  test('answers without a body', async () => {
    await using hosts = await pair(async ({ method }) =>
      method === 'DELETE' ? new Response(null, { status: 204 }) : new Response('ten bytes!'),
    )
    const head = await fetch(hosts.url, { method: 'HEAD' })
    expect([head.status, await head.text()]).toEqual([200, ''])
    const none = await fetch(hosts.url, { method: 'DELETE' })
    expect([none.status, await none.text()]).toEqual([204, ''])
    await nothingUnderWay(hosts)
  })

  // Goal: large bodies pass both ways, whole and without filling memory.
  test('hundreds of MiB each way', async () => {
    const length = 300 * mib
    await using hosts = await pair(async request => {
      if (request.method === 'POST') {
        let count = 0
        for await (const piece of request.body ?? []) count += piece.length
        return Response.json({ count, declared: request.headers.get('content-length') })
      }
      return new Response(zeros(length))
    })
    const before = process.memoryUsage.rss()
    const up = await fetch(hosts.url, { method: 'POST', body: zeros(length) })
    expect(await up.json()).toMatchObject({ count: length })
    const down = await fetch(hosts.url)
    let count = 0
    for await (const piece of down.body ?? []) count += piece.length
    expect(count).toBe(length)
    // Client, both hosts and the service are this process.
    expect(process.memoryUsage.rss() - before).toBeLessThan(250 * mib)
  }, 120_000)

  // Goal: events reach the client as they happen, and the other host learns when it leaves.
  test('a stream that the client leaves', async () => {
    let left = 0
    let cancelled = 0
    let send: (text: string) => void = () => {}
    await using hosts = await pair(async request => {
      request.signal.addEventListener('abort', () => (left += 1))
      const events = new ReadableStream<Uint8Array>({
        start: controller => {
          send = text => controller.enqueue(Buffer.from(text))
          send('data: 1\n\n')
        },
        cancel: () => {
          cancelled += 1
        },
      })
      return new Response(events, { headers: { 'Content-Type': 'text/event-stream' } })
    })
    const client = new AbortController()
    const response = await fetch(hosts.url, { signal: client.signal })
    expect(response.headers.get('content-type')).toBe('text/event-stream')
    const reader = response.body?.getReader()
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('data: 1\n\n')
    send('data: 2\n\n')
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('data: 2\n\n')
    expect(hosts.west.answering.view().underWay).toBe(1)
    client.abort()
    await until('the other host knows that the client has left', 60_000, () => left === 1)
    await until('nobody makes events any more', 60_000, () => cancelled === 1)
    await nothingUnderWay(hosts)
  })

  // Goal: an answer that begins before the request has ended is not given up for what the request took.
  test('an answer within the request', async () => {
    let waits = 0
    const clock: Clock = {
      ...systemClock,
      sleep: (ms, signal) => {
        if (ms >= 20_000) {
          waits += 1
          signal?.addEventListener('abort', () => (waits -= 1))
        }
        return systemClock.sleep(ms, signal)
      },
    }
    await using hosts = await pair(async request => {
      const reader = request.body?.getReader()
      await reader?.read()
      // Reads on beside the answer.
      void (async () => {
        while ((await reader?.read())?.done === false);
      })().catch(() => {})
      return new Response(new ReadableStream({ start: controller => controller.enqueue(Buffer.from('early')) }))
    }, clock)
    let pieces: ReadableStreamDefaultController<Uint8Array> | null = null
    let pulls = 0
    const body = new ReadableStream<Uint8Array>({
      start: controller => {
        pieces = controller
        controller.enqueue(Buffer.from('first'))
      },
      pull: () => {
        pulls += 1
      },
    })
    const sent = new Request('http://x/', { method: 'POST', body })
    const answer = await hosts.east.peers.caller.forward(hosts.west.hostId, sent, {
      ...{ service: 'instances', clientAddress: '10.0.0.1', principal: null },
    })
    const reader = answer.body?.getReader()
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('early')
    const before = pulls
    for (const text of ['second', 'third'])
      (pieces as ReadableStreamDefaultController<Uint8Array> | null)?.enqueue(Buffer.from(text))
    await until('more of the request has gone', 60_000, () => pulls > before)
    expect(waits).toBe(0)
    await reader?.cancel()
    await until('nothing is under way', 60_000, () => hosts.east.peers.caller.count === 0)
  })

  // Goal: a client that leaves before the answer begins ends the request on the other host.
  test('a client that leaves before the answer', async () => {
    let left = 0
    let begun = 0
    await using hosts = await pair(request => {
      begun += 1
      return new Promise(resolve => {
        request.signal.addEventListener('abort', () => {
          left += 1
          resolve(new Response('late'))
        })
      })
    })
    const client = new AbortController()
    const asked = fetch(hosts.url, { signal: client.signal }).catch(() => null)
    await until('it has begun', 60_000, () => begun === 1)
    client.abort()
    expect(await asked).toBeNull()
    await until('the other host knows', 60_000, () => left === 1)
    await nothingUnderWay(hosts)
    // It was the client: the host counts as reached.
    expect(hosts.east.peers.watch.isDown(hosts.west.hostId)).toBe(false)
  })

  // Goal: an answer that breaks off reaches the client as one that broke off, never as a whole one.
  test('a host that dies within its answer', async () => {
    await using hosts = await pair(async () => {
      const pieces = new ReadableStream<Uint8Array>({
        start: controller => controller.enqueue(Buffer.from('the first half')),
      })
      return new Response(pieces)
    })
    const response = await fetch(hosts.url)
    const reader = response.body?.getReader()
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('the first half')
    await hosts.west.stop()
    expect(
      await (reader?.read() ?? Promise.resolve()).then(
        () => 'a whole answer',
        () => 'broken off',
      ),
    ).toBe('broken off')
    await until('nothing is under way', 60_000, () => hosts.east.peers.caller.count === 0)
  })

  // Goal: nobody waits for a host that does not answer, and the refusal names nothing of the fleet.
  test('a host that is away, or silent', async () => {
    await using hosts = await pair(async () => new Response('west'))
    const { east, west } = hosts
    await west.stop()
    const forward = () =>
      east.peers.caller.forward(west.hostId, new Request('http://x/'), {
        service: 'instances',
        clientAddress: '',
        principal: null,
      })
    const refused = await refusalOf(forward())
    expect(refused).toMatchObject({ code: 'fleet.unavailable', retryAfterSeconds: 2 })
    expect(refused.message).not.toContain(west.hostId)
    expect(refused.message).not.toContain('127.0.0.1')
    expect(east.peers.watch.view()).toMatchObject([{ name: 'west', isReached: false, problem: expect.any(String) }])
    // A listener that accepts and never says a word.
    const mute = createServer(() => {})
    await new Promise<void>(resolve => mute.listen(0, '127.0.0.1', resolve))
    const { port } = mute.address() as { port: number }
    await publishPeer(west.postgres, west.hostId, { ...west.own, address: `127.0.0.1:${port}` })
    await until('east has read the new address', 60_000, async () => {
      await refusalOf(forward())
      return east.peers.watch.view()[0]?.problem === 'it does not answer in time'
    })
    mute.close()
  }, 120_000)

  // Goal: a host that has not read the directory yet says nothing about a client's key: its answer to strangers is none
  // to the client.
  test('a host that does not know this one', async () => {
    await using hosts = await pair(async () => new Response('west'))
    const { database, east, west, url } = hosts
    const known = west.answering.view().strangers
    await asOwner(database, owner => owner.query('DELETE FROM peers WHERE host_id = $1', [east.hostId]))
    let status = 200
    await until('west has read that, and refuses', 60_000, async () => {
      status = (await fetch(url)).status
      return status === 503 && west.answering.view().strangers > known
    })
    expect(status).toBe(503)
    const forward = () =>
      east.peers.caller.forward(west.hostId, new Request('http://x/'), {
        service: 'instances',
        clientAddress: '',
        principal: null,
      })
    expect(await refusalOf(forward())).toMatchObject({ code: 'fleet.unavailable', retryAfterSeconds: 2 })
    expect(east.peers.watch.view()).toMatchObject([{ isReached: false, problem: expect.stringContaining('know') }])
  })

  // Goal: a refusal of the service itself is the client's, whatever its status.
  test.each([401, 503])("the service's own %p", async status => {
    await using hosts = await pair(async () => Response.json({ own: true }, { status }))
    const answer = await fetch(hosts.url)
    expect([answer.status, await answer.json()]).toEqual([status, { own: true }])
  })

  // Goal: a host that fails at a call leaves its client with an answer that says when to come again.
  test('a service that throws', async () => {
    await using hosts = await pair(async () => {
      throw new Error('broken')
    })
    const answer = await fetch(hosts.url)
    expect([answer.status, await answer.json()]).toEqual([503, { code: 'fleet.unavailable' }])
  })

  // Goal: no request goes to a process that does not have the key of the directory, whoever has the address.
  test('another process in its place', async () => {
    await using hosts = await pair(async () => new Response('west'))
    const { east, west } = hosts
    expect(await (await fetch(hosts.url)).text()).toBe('west')
    let heard = 0
    const impostor = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      // A certificate of this fleet, and not of that host.
      tls: { cert: east.key.certificate, key: east.key.privateKey },
      fetch: () => {
        heard += 1
        return new Response('impostor')
      },
    })
    await publishPeer(west.postgres, west.hostId, { ...west.own, address: `127.0.0.1:${impostor.port}` })
    await until('it is refused', 60_000, async () => (await fetch(hosts.url)).status === 503)
    expect(east.peers.watch.view()[0]?.problem).toContain('another process answers there')
    expect(heard).toBe(0)
    await impostor.stop(true)
  })

  // Goal: two hosts that each think the other has a thing do not send a request to and fro.
  test('a request is passed on once', async () => {
    let west: PeerHost | null = null
    let east: PeerHost | null = null
    let code: unknown = null
    await using hosts = await pair(async (request, { address }) => {
      try {
        const again = { service: 'instances', clientAddress: address(), principal: null } as const
        return (await west?.peers.caller.forward(east?.hostId ?? '', request, again)) ?? new Response()
      } catch (error) {
        code = Reflect.get(Object(error), 'code')
        return new Response('refused', { status: 503 })
      }
    })
    west = hosts.west
    east = hosts.east
    expect((await fetch(hosts.url)).status).toBe(503)
    expect(String(code)).toBe('fleet.unavailable')
    expect(hosts.east.answering.view().served.instances).toBe(0)
  })

  // Goal: clients of one address do not take all the ways to a host.
  test('one client has its share', async () => {
    const waiting: (() => void)[] = []
    await using hosts = await pair(
      (_request: Request, { address }: ForwardingPeer) =>
        new Promise(resolve => waiting.push(() => resolve(new Response(address())))),
    )
    const { east, west } = hosts
    const ask = (clientAddress: string) =>
      east.peers.caller.forward(west.hostId, new Request('http://x/'), {
        service: 'instances',
        clientAddress,
        principal: null,
      })
    const many = Array.from({ length: 64 }, () => ask('10.0.0.1'))
    await until('all of them wait', 60_000, () => waiting.length === 64)
    expect(await refusalOf(ask('10.0.0.1'))).toMatchObject({ code: 'fleet.unavailable' })
    const other = ask('10.0.0.2')
    await until('another client is heard', 60_000, () => waiting.length === 65)
    for (const answer of waiting) answer()
    expect(await (await other).text()).toBe('10.0.0.2')
    for (const response of await Promise.all(many)) expect(await response.text()).toBe('10.0.0.1')
    await nothingUnderWay(hosts)
  }, 60_000)

  test('a client of plain TCP that stops reading holds up nobody else', async () => {
    // Goal: a reader that is slow keeps the sender waiting, not memory growing.
    let pieces = 0
    await using hosts = await pair(async () => {
      const body = new ReadableStream<Uint8Array>({
        pull: controller => {
          pieces += 1
          if (pieces > 400) controller.close()
          else controller.enqueue(new Uint8Array(mib))
        },
      })
      return new Response(body)
    })
    const url = new URL(hosts.url)
    const socket = connectTcp(Number(url.port), '127.0.0.1')
    socket.pause()
    socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n')
    await until('some of it is on the way', 60_000, () => pieces > 0)
    // Another client gets its answers meanwhile.
    expect((await fetch(hosts.url, { method: 'HEAD' })).status).toBe(200)
    expect(pieces).toBeLessThan(200)
    socket.destroy()
    await until('nothing is under way', 60_000, () => hosts.west.answering.view().underWay === 0)
  }, 30_000)
})

/** A client has its whole answer before hosts have noticed its end. */
async function nothingUnderWay({ west, east }: { readonly west: PeerHost; readonly east: PeerHost }): Promise<void> {
  await until('nothing is under way', 60_000, () => west.answering.view().underWay === 0)
  await until('nothing is under way here', 60_000, () => east.peers.caller.count === 0)
}

/** Why it was rejected, as a client would see it. */
function refusalOf(work: Promise<unknown>): Promise<UnavailableFault> {
  return work.then(
    () => Promise.reject(new Error('it was answered')),
    error => (error instanceof UnavailableFault ? error : Promise.reject(error)),
  )
}

function zeros(length: number): ReadableStream<Uint8Array> {
  let left = length
  return new ReadableStream({
    pull: controller => {
      if (left === 0) return controller.close()
      const piece = Math.min(left, 256 * 1024)
      left -= piece
      controller.enqueue(new Uint8Array(piece))
    },
  })
}
