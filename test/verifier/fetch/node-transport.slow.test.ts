// Goal: over real TLS, no byte of a request goes to a key that is not the pinned one, and nothing that a server does
// holds a client up for ever.

import { afterAll, describe, expect, test } from 'bun:test'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:tls'
import { runningClock } from '../../../scripts/rigs/clock.ts'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import { type Certified, serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { spkiDigestOf } from '../../../src/linux/keys/spki.ts'
import { ConnectionError, PeerKeyError } from '../../../src/verifier/fetch/errors.ts'
import { createNodeTransport } from '../../../src/verifier/fetch/node-transport.ts'
import type { Wire } from '../../../src/verifier/fetch/options.ts'
import type { WireRequest } from '../../../src/verifier/fetch/transport.ts'
import { httpResponse, newCertificate, startRecorder, startRelay } from '../../rigs/tls-peers.ts'

afterAll(clearRig)

const { caPem: ca } = await serverAuthority()
const wire: Wire = { ca, connectTimeoutMs: 30_000, idleTimeoutMs: 30_000 }
const good = await newCertificate()
const other = await newCertificate()
const secret = 'the secret prompt'.repeat(100)

function requestTo(url: string, changes: Partial<WireRequest> = {}): WireRequest {
  const headers = new Headers({ authorization: 'Bearer the-secret-key' })
  const body = new Uint8Array(Buffer.from(secret))
  return { method: 'POST', url: new URL('/v1/x', url), headers, body, signal: null, ...changes }
}

function open(pinned: Certified, changes: Partial<Wire> = {}) {
  return createNodeTransport({ ...wire, ...changes }).open(spkiDigestOf(pinned.cert))
}

function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => new Error('nothing failed'),
    error => error,
  )
}

async function textOf({ body }: { body: ReadableStream<Uint8Array<ArrayBuffer>> | null }): Promise<string> {
  return await new Response(body).text()
}

/** Holds the event loop up while connections go on, so that what is sent before a decision is sent. */
function block(ms: number): void {
  const endMs = performance.now() + ms
  while (performance.now() < endMs);
}

describe('the pin', () => {
  test('goal: the holder of the key gets requests, over one connection', async () => {
    await using server = await startRecorder(good, () => httpResponse('ok'))
    const channel = open(good)
    for (const _ of [1, 2, 3]) expect(await textOf(await channel.send(requestTo(server.url)))).toBe('ok')
    expect(server.text().split(secret)).toHaveLength(4)
    expect(server.handshakeCount()).toBe(1)
    channel.close()
    // Idle connections end with the channel.
    await server.ended(1)
  })

  test('goal: another key of the same authority gets a handshake and not a byte more', async () => {
    await using server = await startRecorder(other, () => httpResponse('ok'))
    const channel = open(good)
    for (let round = 0; round < 20; round += 1) {
      const sending = failureOf(channel.send(requestTo(server.url)))
      if (round % 2 === 0) block(30)
      expect(await sending).toBeInstanceOf(PeerKeyError)
    }
    await server.ended(20)
    expect(server.text()).toBe('')
  })

  test('goal: requests at once, and connections that come after a good one, are judged one by one', async () => {
    await using first = await startRecorder(good, () => httpResponse('ok'))
    await using second = await startRecorder(other, () => httpResponse('ok'))
    await using relay = await startRelay(first.port)
    const channel = open(good)
    await textOf(await channel.send(requestTo(relay.url)))
    relay.lead(second.port)
    const failures = await Promise.all(Array.from({ length: 8 }, () => failureOf(channel.send(requestTo(relay.url)))))
    // One of them may have taken the connection that the relay has cut: it is sent again over a new one, which is
    // judged as the others are.
    expect(failures.map(error => error.name)).toEqual(Array(8).fill('PeerKeyError'))
    expect(second.text()).toBe('')
    relay.lead(first.port)
    expect(await textOf(await channel.send(requestTo(relay.url)))).toBe('ok')
  })

  test('goal: an idle connection that the server has ended costs no request; one that ends without an answer is an error', async () => {
    let answers = true
    await using server = await startRecorder(good, () => (answers ? httpResponse('ok') : null))
    await using relay = await startRelay(server.port)
    const channel = open(good)
    for (let round = 0; round < 10; round += 1) {
      expect(await textOf(await channel.send(requestTo(relay.url)))).toBe('ok')
      relay.lead(server.port)
    }
    answers = false
    const sent = server.text().length
    const failing = failureOf(channel.send(requestTo(relay.url)))
    await until('the request is there', 60_000, () => server.text().length > sent + secret.length)
    relay.lead(server.port)
    expect((await failing).name).toBe('ConnectionError')
    expect(server.text().slice(sent).split(secret)).toHaveLength(2)
  })

  test('goal: over a kept connection that is cut, only what may be done twice is sent twice', async () => {
    const arrived: string[] = []
    await using server = await startRecorder(good, head => {
      const method = head.split(' ')[0] ?? ''
      arrived.push(method)
      if (arrived.length % 2 === 1) return httpResponse('ok')
      setTimeout(() => relay.lead(server.port), 400)
      return null
    })
    await using relay = await startRelay(server.port)
    const channel = open(good)
    const ask = (method: string) => channel.send(requestTo(relay.url, { method, body: null }))
    for (const [method, isAgain] of [
      ['POST', false],
      ['PATCH', false],
      ['GET', true],
    ] as const) {
      arrived.length = 0
      expect(await textOf(await ask('GET'))).toBe('ok')
      const answer = await ask(method).then(textOf, (error: Error) => `${error.name}: ${error.message}`)
      expect(arrived).toEqual(['GET', method, ...(isAgain ? [method] : [])])
      if (isAgain) expect(answer).toBe('ok')
      else expect(answer).toMatch(/^ConnectionError: .* was sent and may have been carried out\. What to do: /)
    }
    // Nothing was sent where nobody listens: then nothing can have been carried out.
    const nobody = await failureOf(open(good).send(requestTo('https://127.0.0.1:9')))
    expect([nobody.name, nobody.message.includes('carried out')]).toEqual(['ConnectionError', false])
  })

  test('goal: a request that was written once is not called unsent, though its repetition cannot connect', async () => {
    let requests = 0
    const server = createServer(good, socket => {
      socket.on('error', () => {})
      socket.on('data', () => {
        requests += 1
        if (requests === 1) return void socket.write('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok')
        server.close()
        socket.destroy()
      })
    })
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
    const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
    const channel = open(good)
    const send = () => channel.send(requestTo(url, { method: 'DELETE', body: null }))
    expect(await textOf(await send())).toBe('ok')
    const failed = await failureOf(send())
    expect([failed.name, requests]).toEqual(['ConnectionError', 2])
    expect(failed).toMatchObject({ isUnsent: false, message: expect.stringContaining('may have been carried out') })
    channel.close()
  })

  test('goal: any certificate is accepted only when that was said, and the pin holds all the same', async () => {
    await using server = await startRecorder(good, () => httpResponse('ok'))
    const strangers = open(good, { ca: undefined })
    expect(await failureOf(strangers.send(requestTo(server.url)))).toBeInstanceOf(ConnectionError)
    expect(server.text()).toBe('')
    const any = open(good, { ca: 'any' })
    expect(await textOf(await any.send(requestTo(server.url)))).toBe('ok')
    const before = server.text()
    expect(await failureOf(open(other, { ca: 'any' }).send(requestTo(server.url)))).toBeInstanceOf(PeerKeyError)
    expect(server.text()).toBe(before)
  })

  test('goal: a certificate for another name is refused, pinned key or not', async () => {
    const named = await (await serverAuthority()).issue(['localhost'], 1)
    await using server = await startRecorder(named, () => httpResponse('ok'))
    expect(await failureOf(open(named).send(requestTo(server.url)))).toBeInstanceOf(ConnectionError)
    expect(server.text()).toBe('')
  })
})

describe('evidence', () => {
  const ask = (url: string, signal = AbortSignal.timeout(60_000)) => {
    const questions = ['/attestation?nonce=x', '/workload.json'].map(path => ({
      url: new URL(path, url),
      bodyBytesMax: 1000,
    }))
    return createNodeTransport(wire).askEvidence(questions, signal)
  }

  test('goal: it comes with the key of the very connection, over one, and nothing is sent but the questions', async () => {
    await using server = await startRecorder(other, head =>
      head.startsWith('GET /attestation') ? httpResponse('{}', ['retry-after: 7'], '503 No') : httpResponse('x'),
    )
    expect(await ask(server.url)).toEqual({
      answers: [
        { status: 503, retryAfter: '7', epoch: null, body: new Uint8Array(Buffer.from('{}')) },
        { status: 200, retryAfter: null, epoch: null, body: new Uint8Array(Buffer.from('x')) },
      ],
      tlsSpkiDigest: spkiDigestOf(other.cert),
    })
    expect(
      server
        .text()
        .match(/^[A-Z]+ \/.*$/gm)
        ?.map(String),
    ).toEqual([...['GET /attestation?nonce=x HTTP/1.1', 'GET /workload.json HTTP/1.1']])
    expect(server.text().toLowerCase()).not.toContain('authorization')
    await server.ended(1)
    expect(server.handshakeCount()).toBe(1)
  })

  test('goal: answers of two servers are no evidence', async () => {
    let next = () => {}
    await using second = await startRecorder(good, () => httpResponse('{}'))
    await using first = await startRecorder(other, () => {
      next()
      return httpResponse('{}', ['connection: close'])
    })
    await using relay = await startRelay(first.port)
    // A server that ends its connection after the first answer is asked on, as long as it is the same.
    expect((await ask(relay.url)).answers).toHaveLength(2)
    next = () => relay.leadNew(second.port)
    expect((await failureOf(ask(relay.url))).message).toContain('two servers answer')
    expect(second.text()).toBe('')
  })

  test('goal: a body without end is cut at the bound', async () => {
    await using server = await startRecorder(other, () => `HTTP/1.1 200 OK\r\n\r\n${'x'.repeat(100_000)}`)
    expect((await failureOf(ask(server.url))).message).toContain('larger than 1000 bytes')
    await server.ended(1)
  })

  test('goal: who is asked and is silent is left when the caller says so', async () => {
    await using server = await startRecorder(other)
    await failureOf(ask(server.url, AbortSignal.timeout(100)))
    await server.ended(1)
  })
})

describe('bounds', () => {
  test('goal: a server that never ends its handshake, never answers, or stops in between ends in time', async () => {
    using deaf = Bun.listen({ hostname: '127.0.0.1', port: 0, socket: { data: () => {} } })
    const url = `https://127.0.0.1:${deaf.port}`
    const late = await failureOf(open(good, { connectTimeoutMs: 300 }).send(requestTo(url)))
    expect([late.name, late.message]).toEqual([
      'ConnectionError',
      expect.stringContaining('no connection within 300 ms'),
    ])
    await using silent = await startRecorder(good)
    const waiting = await failureOf(open(good, { idleTimeoutMs: 300 }).send(requestTo(silent.url)))
    expect([waiting.name, waiting.message]).toEqual(['ConnectionError', expect.stringContaining('nothing for 300 ms')])
    await using half = await startRecorder(good, () => 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf')
    const response = await open(good, { idleTimeoutMs: 8_000 }).send(requestTo(half.url))
    expect((await failureOf(textOf(response))).message).not.toBe('nothing failed')
  })

  test('goal: a response that the connection cuts short is an error of its body', async () => {
    await using server = await startRecorder(good, () => 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf')
    await using relay = await startRelay(server.port)
    const response = await open(good).send(requestTo(relay.url))
    const reading = failureOf(textOf(response))
    relay.lead(server.port)
    expect((await reading).message).not.toBe('nothing failed')
  })

  // Goal: what cannot be used is an error.
  test.each([
    ['a compressed body', httpResponse('x', ['content-encoding: gzip'])],
    ['no HTTP', 'SSH-2.0-x\r\n\r\n'],
    ['a head without end', `HTTP/1.1 200 OK\r\nx: ${'y'.repeat(200_000)}`],
  ])('%s', async (_, answer) => {
    await using server = await startRecorder(good, () => answer)
    expect(await failureOf(open(good, { idleTimeoutMs: 1_000 }).send(requestTo(server.url)))).toBeInstanceOf(
      ConnectionError,
    )
  })

  test('goal: a caller that leaves ends its connection at once, before the response and within it', async () => {
    const reason = new Error('left')
    await using silent = await startRecorder(good)
    const leaving = new AbortController()
    const sending = failureOf(open(good).send(requestTo(silent.url, { signal: leaving.signal })))
    setTimeout(() => leaving.abort(reason), 100)
    expect(await sending).toBe(reason)
    await silent.ended(1)
    await using half = await startRecorder(good, () => 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf')
    const again = new AbortController()
    const response = await open(good).send(requestTo(half.url, { signal: again.signal }))
    again.abort(reason)
    await failureOf(textOf(response))
    await half.ended(1)
    const third = await open(good).send(requestTo(half.url))
    await third.body?.cancel()
    await half.ended(2)
  })

  test('goal: an idle connection ends after four seconds, and an answer that takes longer than that is waited for', async () => {
    const slow = async () => {
      await using server = await startRecorder(good, () => Bun.sleep(4_500).then(() => httpResponse('late')))
      expect(await textOf(await open(good, { idleTimeoutMs: 30_000 }).send(requestTo(server.url)))).toBe('late')
    }
    const idle = async () => {
      await using server = await startRecorder(good, () => httpResponse('ok'))
      await textOf(await open(good).send(requestTo(server.url)))
      const late = runningClock.sleep(8_000).then(() => 'still open')
      expect(await Promise.race([server.ended(1).then(() => 'ended'), late])).toBe('ended')
    }
    await Promise.all([slow(), idle()])
  }, 60_000)

  test('goal: headers arrive as they were sent, doubled ones too', async () => {
    await using server = await startRecorder(good, () => httpResponse('ok', ['X-A: 1', 'x-a: 2', 'X-B: 3']))
    const { status, headers } = await open(good).send(requestTo(server.url))
    expect([status, headers.get('x-a'), headers.get('x-b')]).toEqual([200, '1, 2', '3'])
  })
})
