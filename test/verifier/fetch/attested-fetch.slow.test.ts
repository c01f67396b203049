// Goal: requests go to the holder of verified keys, sealed, and to nobody else: whatever stands between, however old the evidence is.

import { afterAll, describe, expect, test } from 'bun:test'
import { systemRandom } from '../../../src/base/ids.ts'
import { type AttestedFetch, createAttestedFetch } from '../../../src/verifier/fetch/attested-fetch.ts'
import {
  AttestedFetchError,
  ConnectionError,
  type EncryptionError,
  EvidenceError,
  IncompleteResponseError,
  KeyChangedError,
  OptionError,
  RequestError,
  VerificationError,
} from '../../../src/verifier/fetch/errors.ts'
import type { AttestedFetchOptions } from '../../../src/verifier/fetch/options.ts'
import { attestedOptions } from '../../rigs/attested-gateway.ts'
import { createManualClock } from '../../rigs/clock.ts'
import {
  createFakeGateway,
  createFakeWire,
  type FakeAnswer,
  type FakeWire,
  keyConfigProblem,
  wholeAnswer,
  wireResponse,
} from '../../rigs/fake-wire.ts'
import { clearRig } from '../../rigs/gateway-attestation.ts'

afterAll(clearRig)

const url = 'https://gateway.example'
const options: AttestedFetchOptions = { ...(await attestedOptions()), url }

/** Small enough that the evidence's certificates outlive every test. */
const minuteMs = 60_000
const limits = { evidenceAgeMaxMs: 4 * minuteMs, reverifyAfterMs: 2 * minuteMs } as const

async function start(changes: Partial<AttestedFetchOptions> = {}, { pins = true, answer = () => wholeAnswer } = {}) {
  const clock = createManualClock(Date.now())
  const gateway = await createFakeGateway({ clock }, answer)
  const wire = createFakeWire(gateway, { pins })
  const fetch = createAttestedFetch(
    { ...options, ...limits, ...changes },
    { createTransport: () => wire.transport, clock, random: systemRandom },
  )
  return { clock, gateway, wire, fetch, another: () => createFakeGateway({ clock }, answer) }
}

const secret = 'the secret prompt'

function ask(fetch: AttestedFetch, init: RequestInit = {}): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, { method: 'POST', body: secret, ...init })
}

async function failureOf(promise: Promise<unknown>): Promise<AttestedFetchError> {
  const error = await promise.then(
    () => 'nothing failed',
    reason => reason,
  )
  if (error instanceof AttestedFetchError) return error
  throw new Error(`not an AttestedFetchError: ${error}`)
}

/** Nothing that was sent may hold it in the clear. */
function expectSealed({ sent }: FakeWire): void {
  for (const { body } of sent) expect(Buffer.from(body ?? []).includes(secret)).toBe(false)
}

describe('evidence', () => {
  test('goal: the first request verifies, further ones rely on it, and all of them are sealed', async () => {
    const { fetch, wire, gateway } = await start()
    expect(fetch.evidence()).toBeNull()
    for (const _ of [1, 2, 3]) expect(await (await ask(fetch)).json()).toEqual({ answer: 'here' })
    expect([wire.nonces.length, gateway.seen]).toEqual([1, [secret, secret, secret]])
    expectSealed(wire)
    const evidence = fetch.evidence()
    expect([evidence?.simulated, evidence?.verdict.ok, evidence?.tlsSpkiDigest]).toEqual([
      ...[true, true, gateway.tlsSpkiDigest],
    ])
    expect(evidence?.keys).toEqual(gateway.keys.publicKeys)
  })

  test('goal: many requests at once share one verification, and one that is aborted leaves the others alone', async () => {
    const { fetch, wire } = await start()
    const leaving = new AbortController()
    const left = ask(fetch, { signal: leaving.signal })
    const others = Array.from({ length: 20 }, () => ask(fetch))
    leaving.abort(new Error('left'))
    await expect(left).rejects.toThrow('left')
    expect((await Promise.all(others)).every(({ status }) => status === 200)).toBe(true)
    expect([wire.nonces.length, wire.sent.length]).toEqual([1, 20])
    // An aborted one asks for nothing.
    await expect(ask(fetch, { signal: AbortSignal.abort(new Error('before')) })).rejects.toThrow('before')
    expect(wire.sent.length).toBe(20)
  })

  test('goal: evidence that grows old is renewed beside a request, and evidence that is too old is not relied on', async () => {
    const { fetch, wire, clock } = await start()
    await ask(fetch)
    const first = fetch.evidence()
    clock.advance(limits.reverifyAfterMs + 1)
    await ask(fetch)
    await fetch.verify()
    // The verification beside the request and the one that was asked for are one.
    expect([wire.nonces.length, new Set(wire.nonces).size, fetch.evidence() === first]).toEqual([2, 2, false])
    clock.advance(limits.evidenceAgeMaxMs + 1)
    expect(fetch.evidence()).toBeNull()
    const unreachable = async () => Promise.reject(new Error('unreachable'))
    wire.attest = unreachable
    expect(await failureOf(ask(fetch))).toBeInstanceOf(EvidenceError)
    expect(wire.sent.length).toBe(2)
  })

  test('goal: a clock that is set back, or one that stands still while the machine sleeps, makes no evidence younger', async () => {
    const { fetch, wire, clock } = await start()
    await ask(fetch)
    clock.set(clock.nowMs() + limits.evidenceAgeMaxMs + 1)
    expect(fetch.evidence()).toBeNull()
    clock.set(clock.nowMs() - limits.evidenceAgeMaxMs - 1)
    clock.advance(limits.evidenceAgeMaxMs + 1)
    clock.set(clock.nowMs() - limits.evidenceAgeMaxMs - 1)
    expect(fetch.evidence()).toBeNull()
    expect(wire.nonces.length).toBe(1)
  })

  test('goal: a renewal that finds nobody is tried again later; the evidence stays until its age ends it', async () => {
    const { fetch, wire, clock } = await start()
    await ask(fetch)
    const { attest } = wire
    wire.attest = () => Promise.reject(new Error('unreachable'))
    clock.advance(limits.reverifyAfterMs + 1)
    for (const _ of [1, 2, 3]) await ask(fetch)
    expect([wire.nonces.length, wire.sent.length]).toEqual([2, 4])
    wire.attest = attest
    clock.advance(10_001)
    await ask(fetch)
    await fetch.verify()
    expect(wire.nonces.length).toBe(3)
  })

  test('goal: who gives bad evidence when asked again is relied on no more, although the old evidence is young', async () => {
    const { fetch, wire, gateway } = await start()
    await ask(fetch)
    const recorded = await gateway.attest(new URL(`${url}/attestation?nonce=${'A'.repeat(43)}`))
    wire.attest = async () => ({ ...recorded, retryAfter: null, tlsSpkiDigest: gateway.tlsSpkiDigest })
    const error = (await failureOf(fetch.verify())) as VerificationError
    expect([error.name, error.failed.map(one => one.name)]).toEqual(['VerificationError', ['attestation-nonce']])
    expect([fetch.evidence(), wire.closed()]).toEqual([null, 1])
    expect((await failureOf(ask(fetch))).name).toBe('VerificationError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: whoever does not answer is waited for only so long', async () => {
    const { fetch, wire, clock } = await start()
    let aborted = false
    wire.attest = (_, signal) =>
      new Promise(() => {
        signal.addEventListener('abort', () => {
          aborted = true
        })
      })
    const failed = failureOf(ask(fetch))
    await clock.sleepers(1)
    clock.advance(30_000)
    const error = await failed
    expect([error.name, error.message, aborted]).toEqual([
      ...['EvidenceError', expect.stringContaining('nothing within 30000 ms'), true],
    ])
  })

  test.each([
    [503, '{"error":{"code":"attestation_unavailable"}}', 'try again in 7 s'],
    [429, '{"error":{"code":"rate_limited"}}', 'try again in 7 s'],
    [404, '<html>', 'it must be that of a gateway'],
    [302, '', 'it must be that of a gateway'],
  ])('goal: a refusal with status %d says what to do', async (status, body, advice) => {
    const { fetch, wire } = await start()
    const bytes = new TextEncoder().encode(body)
    wire.attest = async () => ({ status, body: bytes, retryAfter: '7', tlsSpkiDigest: 'any' })
    const error = (await failureOf(ask(fetch))) as EvidenceError
    expect([error.name, error.status, error.message]).toEqual([
      'EvidenceError',
      status,
      expect.stringContaining(advice),
    ])
  })

  test('goal: after close the evidence is gone, and a later request verifies anew', async () => {
    const { fetch, wire } = await start()
    await ask(fetch)
    fetch.close()
    expect([fetch.evidence(), wire.closed()]).toEqual([null, 1])
    expect((await ask(fetch)).status).toBe(200)
    expect([wire.nonces.length, fetch.evidence()?.simulated]).toEqual([2, true])
  })
})

describe('other keys', () => {
  test('goal: a gateway with new keys and evidence for them gets the request, after one verification for all', async () => {
    const { fetch, wire, gateway, another } = await start()
    await ask(fetch)
    const next = await another()
    wire.connect(next)
    const responses = await Promise.all(Array.from({ length: 5 }, () => ask(fetch)))
    expect(responses.every(({ status }) => status === 200)).toBe(true)
    expect([wire.nonces.length, gateway.seen.length, next.seen.length]).toEqual([2, 1, 5])
    expect(fetch.evidence()?.tlsSpkiDigest).toEqual(next.tlsSpkiDigest)
    // The way to the old key is given up.
    expect(wire.closed()).toBe(1)
  })

  test('goal: a new encryption key behind the old TLS key is found by the answer that says so, and needs fresh evidence', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire, another } = await start({}, { pins })
      await ask(fetch)
      const { tlsSpkiDigest } = wire
      const next = await another()
      // Its evidence names the TLS key that answers.
      wire.connect({ ...next, tlsSpkiDigest: pins ? next.tlsSpkiDigest : tlsSpkiDigest })
      expect(await (await ask(fetch)).json()).toEqual({ answer: 'here' })
      expect([wire.nonces.length, next.seen]).toEqual([2, [secret]])
      expectSealed(wire)
    }
  })

  test('goal: another key without evidence gets nothing: not when the evidence is for another connection, is old, or is not there', async () => {
    const { fetch, wire, gateway } = await start()
    await ask(fetch)
    const good = wire.nonces.length
    // In the middle: evidence is forwarded, and comes over a connection with another key.
    wire.tlsSpkiDigest = systemRandom(32)
    const forwarded = await failureOf(ask(fetch))
    const { cause } = forwarded as { cause: VerificationError }
    expect([forwarded.name, cause.name, cause.failed.map(one => one.name)]).toEqual([
      ...['KeyChangedError', 'VerificationError', ['tls-binding']],
    ])
    expect([wire.sent.length, gateway.seen.length, wire.nonces.length - good]).toEqual([1, 1, 1])
    // What was verified before is gone with it: the next request asks first.
    expect((await failureOf(ask(fetch))).name).toBe('VerificationError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: another key is asked for evidence once for a request; who changes keys all the time does not get it', async () => {
    const { fetch, wire, another } = await start()
    await ask(fetch)
    const next = await another()
    wire.tlsSpkiDigest = systemRandom(32)
    wire.attest = async address => ({
      ...{ ...(await next.attest(address)), retryAfter: null, tlsSpkiDigest: next.tlsSpkiDigest },
    })
    const error = await failureOf(ask(fetch))
    expect([error.name, (error.cause as Error).name]).toEqual(['KeyChangedError', 'PeerKeyError'])
    expect([wire.nonces.length, wire.sent.length]).toEqual([2, 1])
  })

  test('goal: no evidence for another key is a KeyChangedError that says why', async () => {
    const { fetch, wire } = await start()
    await ask(fetch)
    wire.tlsSpkiDigest = systemRandom(32)
    wire.attest = () => Promise.reject(new Error('unreachable'))
    const error = await failureOf(ask(fetch))
    expect([error.name, (error.cause as Error).name, error.message]).toEqual([
      ...['KeyChangedError', 'EvidenceError', expect.stringContaining('unreachable')],
    ])
  })

  test('goal: who says that he does not know the key that his evidence names gets the request once', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire } = await start({}, { pins })
      wire.respond = async () => keyConfigProblem()
      expect((await failureOf(ask(fetch))).name).toBe('KeyChangedError')
      expect([wire.nonces.length, wire.sent.length]).toEqual([2, 1])
      expectSealed(wire)
    }
  })

  test('goal: receipts with other encryption keys in them than the hardware vouches for are refused', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire, gateway, another } = await start({}, { pins })
      const other = await another()
      const swap = (text: string, name: 'x25519' | 'mlkem768') => {
        const [from, to] = [gateway, other].map(({ keys }) => Buffer.from(keys.publicKeys[name]).toString('base64url'))
        return text.replaceAll(`${from}`, `${to}`)
      }
      wire.attest = async address => {
        const { status, body } = await gateway.attest(address)
        const text = swap(swap(new TextDecoder().decode(body), 'x25519'), 'mlkem768')
        const tlsSpkiDigest = pins ? gateway.tlsSpkiDigest : 'any'
        return { status, body: new TextEncoder().encode(text), retryAfter: null, tlsSpkiDigest }
      }
      const error = (await failureOf(ask(fetch))) as VerificationError
      expect([error.name, error.failed.map(one => one.name)]).toEqual([
        ...['VerificationError', expect.arrayContaining(['gateway/evidence'])],
      ])
      expect(wire.sent).toEqual([])
    }
  })
})

test('goal: each wrong expectation fails under its own name, and nothing is sent', async () => {
  const policy = options.policy as Readonly<Record<string, unknown>>
  const rows: readonly (readonly [Partial<AttestedFetchOptions>, string])[] = [
    [{ policy: { ...policy, measurements: ['07'.repeat(48)] } }, 'gateway/measurement'],
    [{ policy: { ...policy, idKeyDigest: '07'.repeat(48) } }, 'gateway/operator-key'],
    [{ policy: { ...policy, hostData: '07'.repeat(32) }, allowlist: 'any' }, 'gateway/allowlist'],
    [{ allowlist: `${options.allowlist}`.replace('--part=0', '--part=9') }, 'gateway/allowlist'],
    [{ configuration: '{}' }, 'gateway-configuration'],
    [{ policy: { ...policy, minimumGuestSvn: 4_000_000_000 } }, 'gateway/evidence'],
  ]
  for (const [changes, name] of rows) {
    const { fetch, wire } = await start(changes)
    const error = (await failureOf(ask(fetch))) as VerificationError
    expect([error.name, error.failed.map(one => one.name), wire.sent]).toEqual([
      ...['VerificationError', expect.arrayContaining([name]), []],
    ])
    expect(error.message).toContain('What to do: ')
  }
  // Without its root simulated evidence is nobody's.
  const { simulatedRoot: _, ...rest } = options
  const clock = createManualClock(Date.now())
  const gateway = await createFakeGateway({ clock })
  const wire = createFakeWire(gateway, { pins: true })
  const fetch = createAttestedFetch(rest, { createTransport: () => wire.transport, clock, random: systemRandom })
  expect((await failureOf(ask(fetch))) as VerificationError).toBeInstanceOf(VerificationError)
  expect(wire.sent).toEqual([])
})

describe('encryption', () => {
  const plain = (body: string, type = 'application/json', status = 200) =>
    wireResponse(status, { 'content-type': type }, new TextEncoder().encode(body))

  test('goal: an answer in the clear is refused, however good it looks', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire } = await start({}, { pins })
      wire.respond = async () => plain(wholeAnswer.body)
      const error = (await failureOf(ask(fetch))) as EncryptionError
      expect([error.name, error.status]).toEqual(['EncryptionError', 200])
      expectSealed(wire)
    }
  })

  test('goal: an error in the clear is shown where the connection vouches for it, and nowhere else', async () => {
    for (const status of [400, 413, 422, 431, 500]) {
      const pinned = await start()
      pinned.wire.respond = async () => plain('{"error":{"code":"x"}}', 'application/json', status)
      const response = await ask(pinned.fetch)
      expect([response.status, await response.json()]).toEqual([status, { error: { code: 'x' } }])
      const page = await start({}, { pins: false })
      page.wire.respond = pinned.wire.respond
      expect((await failureOf(ask(page.fetch))).name).toBe('EncryptionError')
    }
  })

  test('goal: a frame that was changed is an error', async () => {
    const { fetch, wire, gateway } = await start()
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
      const { fetch } = await start({ encryption }, { answer: () => answer })
      const read = ask(fetch).then(response => response.text())
      if (isWhole) expect(await read).toBe(answer.body)
      else expect(await failureOf(read)).toBeInstanceOf(IncompleteResponseError)
    }
  })

  test('goal: off means off only where the connection is pinned', async () => {
    const { fetch, wire, gateway } = await start({ encryption: 'off' })
    expect((await ask(fetch)).status).toBe(200)
    expect([gateway.seen, wire.sent[0]?.headers.has('ehbp-encapsulated-key')]).toEqual([[secret], false])
    await expect(start({ encryption: 'off' }, { pins: false })).rejects.toThrow(OptionError)
  })

  test('goal: what cannot be sealed, for want of a body, goes over a pinned connection or not at all', async () => {
    const pinned = await start()
    expect((await pinned.fetch(`${url}/v1/models`)).status).toBe(200)
    const page = await start({}, { pins: false })
    expect((await failureOf(page.fetch(`${url}/v1/models`))).name).toBe('RequestError')
    expect(page.wire.sent).toEqual([])
  })

  test('goal: a document beyond the bound is an error', async () => {
    for (const encryption of ['required', 'off'] as const) {
      const { fetch } = await start({ encryption, responseBytesMax: wholeAnswer.body.length - 1 })
      expect(await failureOf(ask(fetch))).toBeInstanceOf(ConnectionError)
      const { fetch: enough } = await start({ encryption, responseBytesMax: wholeAnswer.body.length })
      expect((await ask(enough)).status).toBe(200)
    }
  })

  test('goal: a stream is read no faster than the caller reads, and a caller that leaves ends it', async () => {
    let pulled = 0
    let cancelled = false
    const { fetch, wire } = await start({ encryption: 'off' })
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
    const { fetch, wire } = await start()
    const elsewhere = ['https://gateway.example:8443/v1', 'http://gateway.example/v1', 'https://other.example/', '/v1']
    for (const address of elsewhere) {
      expect(await failureOf(fetch(address, { method: 'POST', body: secret }))).toBeInstanceOf(RequestError)
    }
    expect(await failureOf(fetch(new Request('https://other.example/')))).toBeInstanceOf(RequestError)
    expect([wire.sent, wire.nonces]).toEqual([[], []])
  })

  test('goal: other ways than the attested connection are refused, not ignored', async () => {
    const { fetch, wire } = await start()
    for (const name of ['agent', 'client', 'dispatcher', 'proxy', 'tls', 'unix']) {
      expect((await failureOf(ask(fetch, { [name]: {} }))).message).toStartWith(`${name}: `)
    }
    expect(wire.nonces).toEqual([])
  })

  test('goal: every kind of body arrives as it was given, with its type, and what the connection decides is left out', async () => {
    const { fetch, wire, gateway } = await start()
    const bodies = [secret, new TextEncoder().encode(secret), new Blob([secret]), new Response(secret).body]
    for (const body of bodies) await ask(fetch, { body: body ?? '' })
    await fetch(new Request(`${url}/v1/x`, { method: 'POST', body: secret, headers: { 'X-A': 'b', connection: 'x' } }))
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
    const { fetch, wire } = await start({ requestBytesMax: secret.length })
    expect((await ask(fetch)).status).toBe(200)
    expect((await failureOf(ask(fetch, { body: `${secret}.` }))).name).toBe('RequestError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: a redirect is an error, and is not followed', async () => {
    for (const encryption of ['required', 'off'] as const) {
      const { fetch, wire } = await start({ encryption })
      wire.respond = async () => wireResponse(302, { location: `${url}/other` }, new Uint8Array())
      expect(await failureOf(ask(fetch, { redirect: 'follow' }))).toBeInstanceOf(ConnectionError)
      expect(wire.sent.length).toBe(1)
    }
  })

  test('goal: a request that is aborted rejects with its reason, before and after the response has begun', async () => {
    const { fetch, wire } = await start({ encryption: 'off' })
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

test('goal: errors are told apart by class and by name', async () => {
  const { fetch, wire } = await start()
  await ask(fetch)
  wire.tlsSpkiDigest = systemRandom(32)
  const error = await failureOf(ask(fetch))
  expect([error instanceof KeyChangedError, error instanceof Error, error.name]).toEqual([
    true,
    true,
    'KeyChangedError',
  ])
})
