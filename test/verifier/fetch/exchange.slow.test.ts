// Goal: what a request carries is sealed or goes over a pinned connection, what comes back is whole and the gateway's,
// and everything else is an error.

import { afterAll, describe, expect, test } from 'bun:test'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import {
  ConnectionError,
  type EncryptionError,
  IncompleteResponseError,
  OptionError,
  RequestError,
} from '../../../src/verifier/fetch/errors.ts'
import {
  ask,
  type FakeAnswer,
  failureOf,
  gatewayUrl,
  secret,
  sentInClear,
  startFakeFetch,
  wholeAnswer,
  wireResponse,
} from '../../rigs/fake-wire.ts'

afterAll(clearRig)

describe('encryption', () => {
  const plain = (body: string, type = 'application/json', status = 200) =>
    wireResponse(status, { 'content-type': type }, new TextEncoder().encode(body))

  test('goal: an answer in the clear is refused, however good it looks', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire } = await startFakeFetch({}, { pins })
      wire.respond = async () => plain(wholeAnswer.body)
      const error = (await failureOf(ask(fetch))) as EncryptionError
      expect([error.name, error.status]).toEqual(['EncryptionError', 200])
      expect(sentInClear(wire)).toBe(false)
    }
  })

  test('goal: an error in the clear is shown where the connection vouches for it, and nowhere else', async () => {
    for (const status of [400, 413, 422, 431, 500]) {
      const pinned = await startFakeFetch()
      pinned.wire.respond = async () => plain('{"error":{"code":"x"}}', 'application/json', status)
      const response = await ask(pinned.fetch)
      expect([response.status, await response.json()]).toEqual([status, { error: { code: 'x' } }])
      const page = await startFakeFetch({}, { pins: false })
      page.wire.respond = pinned.wire.respond
      expect((await failureOf(ask(page.fetch))).name).toBe('EncryptionError')
    }
  })

  test('goal: a frame that was changed is an error', async () => {
    const { fetch, wire, gateway } = await startFakeFetch()
    wire.respond = async request => {
      const response = await gateway.respond(request)
      const bytes = new Uint8Array(await new Response(response.body).arrayBuffer())
      bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1
      return { ...response, body: new Response(bytes).body }
    }
    expect((await failureOf(ask(fetch))).name).toBe('EncryptionError')
  })

  const done = 'data: {"a":1}\n\ndata: [DONE]\n\n'
  const rows: readonly (readonly [string, FakeAnswer, boolean])[] = [
    ['a whole document', wholeAnswer, true],
    ['a whole stream', { type: 'text/event-stream; charset=utf-8', body: done }, true],
    [
      'a stream that says that it failed',
      { type: 'text/event-stream', body: 'data: {"error":{"code":"x"}}\n\n' },
      true,
    ],
    ['a stream without its end', { type: 'text/event-stream', body: 'data: {"a":1}\n\n' }, false],
    ['a stream cut within its end', { type: 'text/event-stream', body: done.slice(0, -1) }, false],
    ['half a document', { body: '{"answer":"he' }, false],
    ['nothing', { body: '' }, false],
    ['a document that is called a stream', { ...wholeAnswer, type: 'text/event-stream' }, false],
    ['a cut stream that is called a document', { body: 'data: {"a":1}\n\n' }, false],
  ]
  test.each(rows)('goal: %s is whole, or an error: %#', async (_, answer, isWhole) => {
    for (const encryption of ['required', 'off'] as const) {
      const { fetch } = await startFakeFetch({ encryption }, { answer: () => answer })
      const read = ask(fetch).then(response => response.text())
      if (isWhole) expect(await read).toBe(answer.body)
      else expect(await failureOf(read)).toBeInstanceOf(IncompleteResponseError)
    }
  })

  test('goal: off means off only where the connection is pinned', async () => {
    const { fetch, wire, gateway } = await startFakeFetch({ encryption: 'off' })
    expect((await ask(fetch)).status).toBe(200)
    expect([gateway.seen, wire.sent[0]?.headers.has('ehbp-encapsulated-key')]).toEqual([[secret], false])
    await expect(startFakeFetch({ encryption: 'off' }, { pins: false })).rejects.toThrow(OptionError)
  })

  test('goal: what cannot be sealed, for want of a body, goes over a pinned connection or not at all', async () => {
    const pinned = await startFakeFetch()
    expect((await pinned.fetch(`${gatewayUrl}/v1/models`)).status).toBe(200)
    const page = await startFakeFetch({}, { pins: false })
    expect((await failureOf(page.fetch(`${gatewayUrl}/v1/models`))).name).toBe('RequestError')
    expect(page.wire.sent).toEqual([])
  })

  test('goal: a document beyond the bound is an error', async () => {
    for (const encryption of ['required', 'off'] as const) {
      const { fetch } = await startFakeFetch({ encryption, responseBytesMax: wholeAnswer.body.length - 1 })
      expect(await failureOf(ask(fetch))).toBeInstanceOf(ConnectionError)
      const { fetch: enough } = await startFakeFetch({ encryption, responseBytesMax: wholeAnswer.body.length })
      expect((await ask(enough)).status).toBe(200)
    }
  })

  test('goal: a stream is read no faster than the caller reads, and a caller that leaves ends it', async () => {
    let pulled = 0
    let cancelled = false
    const { fetch, wire } = await startFakeFetch({ encryption: 'off' })
    wire.respond = async () => ({
      ...plain('', 'text/event-stream'),
      body: new ReadableStream(
        {
          pull: controller => {
            pulled += 1
            controller.enqueue(Uint8Array.of(0x7b))
          },
          cancel: () => {
            cancelled = true
          },
        },
        { highWaterMark: 0 },
      ),
    })
    const reader = (await ask(fetch)).body?.getReader()
    await reader?.read()
    expect(pulled).toBe(1)
    await reader?.cancel()
    expect(cancelled).toBe(true)
  })
})

describe('requests', () => {
  test('goal: nothing goes to another address than the attested one, however it is written', async () => {
    const { fetch, wire } = await startFakeFetch()
    const elsewhere = ['https://gateway.example:8443/v1', 'http://gateway.example/v1', 'https://other.example/', '/v1']
    for (const address of elsewhere) {
      expect(await failureOf(fetch(address, { method: 'POST', body: secret }))).toBeInstanceOf(RequestError)
    }
    expect(await failureOf(fetch(new Request('https://other.example/')))).toBeInstanceOf(RequestError)
    expect([wire.sent, wire.nonces]).toEqual([[], []])
  })

  test('goal: other ways than the attested connection are refused, not ignored', async () => {
    const { fetch, wire } = await startFakeFetch()
    for (const name of ['agent', 'client', 'dispatcher', 'proxy', 'tls', 'unix']) {
      expect((await failureOf(ask(fetch, { [name]: {} }))).message).toStartWith(`${name}: `)
    }
    expect(wire.nonces).toEqual([])
  })

  test('goal: every kind of body arrives as it was given, with its type, and what the connection decides is left out', async () => {
    const { fetch, wire, gateway } = await startFakeFetch()
    const bodies = [secret, new TextEncoder().encode(secret), new Blob([secret]), new Response(secret).body]
    for (const body of bodies) await ask(fetch, { body: body ?? '' })
    await fetch(
      new Request(`${gatewayUrl}/v1/x`, { method: 'POST', body: secret, headers: { 'X-A': 'b', connection: 'x' } }),
    )
    expect(gateway.seen).toEqual(Array(5).fill(secret))
    const last = wire.sent.at(-1)
    expect([last?.method, last?.url.pathname, last?.headers.get('x-a'), last?.headers.has('connection')]).toEqual([
      ...['POST', '/v1/x', 'b', false],
    ])
    const form = new FormData()
    form.set('a', secret)
    await ask(fetch, { body: form })
    expect(wire.sent.at(-1)?.headers.get('content-type')).toStartWith('multipart/form-data; boundary=')
  })

  test('goal: a body beyond the bound is refused before anything is sent', async () => {
    const { fetch, wire } = await startFakeFetch({ requestBytesMax: secret.length })
    expect((await ask(fetch)).status).toBe(200)
    expect((await failureOf(ask(fetch, { body: `${secret}.` }))).name).toBe('RequestError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: a redirect is an error, and is not followed', async () => {
    for (const encryption of ['required', 'off'] as const) {
      const { fetch, wire } = await startFakeFetch({ encryption })
      wire.respond = async () => wireResponse(302, { location: `${gatewayUrl}/other` }, new Uint8Array())
      expect(await failureOf(ask(fetch, { redirect: 'follow' }))).toBeInstanceOf(ConnectionError)
      expect(wire.sent.length).toBe(1)
    }
  })

  test('goal: a request that is aborted rejects with its reason, before and after the response has begun', async () => {
    const { fetch, wire } = await startFakeFetch({ encryption: 'off' })
    const leaving = new AbortController()
    wire.respond = async ({ signal }) => ({
      ...wireResponse(200, { 'content-type': 'text/event-stream' }, new Uint8Array()),
      body: new ReadableStream({
        start: controller => signal?.addEventListener('abort', () => controller.error(new Error('socket'))),
      }),
    })
    const response = await ask(fetch, { signal: leaving.signal })
    const reading = response.text()
    leaving.abort(new Error('enough'))
    await expect(reading).rejects.toThrow('enough')
  })
})
