// Goal: requests go to the holder of verified keys and to nobody else, however old the evidence is and whoever answers.

import { afterAll, describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { clearRig } from '../../../scripts/rigs/gateway/attestation.ts'
import { attestedOptions } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createAttestedFetch } from '../../../src/verifier/fetch/attested-fetch.ts'
import { EvidenceError, KeyChangedError, VerificationError } from '../../../src/verifier/fetch/errors.ts'
import type { AttestedFetchOptions } from '../../../src/verifier/fetch/options.ts'
import { portableCrypto } from '../../../src/verifier/fetch/portable-crypto.ts'
import {
  ask,
  createFakeGateway,
  createFakeWire,
  failureOf,
  fakeLimits,
  gatewayUrl,
  keyConfigProblem,
  secret,
  sentInClear,
  startFakeFetch,
} from '../../rigs/fake-wire.ts'

afterAll(clearRig)

const options: AttestedFetchOptions = { ...(await attestedOptions()), url: gatewayUrl }

describe('evidence', () => {
  test('goal: the first request verifies, further ones rely on it, and all of them are sealed', async () => {
    const { fetch, wire, gateway } = await startFakeFetch()
    expect(fetch.evidence()).toBeNull()
    for (const _ of [1, 2, 3]) expect(await (await ask(fetch)).json()).toEqual({ answer: 'here' })
    expect([wire.nonces.length, gateway.seen]).toEqual([1, [secret, secret, secret]])
    expect(sentInClear(wire)).toBe(false)
    const evidence = fetch.evidence()
    expect([evidence?.simulated, evidence?.verdict.ok, evidence?.tlsSpkiDigest]).toEqual([
      ...[true, true, gateway.tlsSpkiDigest],
    ])
    expect(evidence?.keys).toEqual(gateway.keys.publicKeys)
  })

  test('goal: many requests at once share one verification, and one that is aborted leaves the others alone', async () => {
    const { fetch, wire } = await startFakeFetch()
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
    const { fetch, wire, clock } = await startFakeFetch()
    await ask(fetch)
    const first = fetch.evidence()
    clock.advance(fakeLimits.reverifyAfterMs + 1)
    await ask(fetch)
    await fetch.verify()
    // The verification beside the request and the one that was asked for are one.
    expect([wire.nonces.length, new Set(wire.nonces).size, fetch.evidence() === first]).toEqual([2, 2, false])
    clock.advance(fakeLimits.evidenceAgeMaxMs + 1)
    expect(fetch.evidence()).toBeNull()
    const unreachable = async () => Promise.reject(new Error('unreachable'))
    wire.attest = unreachable
    expect(await failureOf(ask(fetch))).toBeInstanceOf(EvidenceError)
    expect(wire.sent.length).toBe(2)
  })

  test('goal: a clock that is set back, or one that stands still while the machine sleeps, makes no evidence younger', async () => {
    const { fetch, wire, clock } = await startFakeFetch()
    await ask(fetch)
    clock.set(clock.nowMs() + fakeLimits.evidenceAgeMaxMs + 1)
    expect(fetch.evidence()).toBeNull()
    clock.set(clock.nowMs() - fakeLimits.evidenceAgeMaxMs - 1)
    clock.advance(fakeLimits.evidenceAgeMaxMs + 1)
    clock.set(clock.nowMs() - fakeLimits.evidenceAgeMaxMs - 1)
    expect(fetch.evidence()).toBeNull()
    expect(wire.nonces.length).toBe(1)
  })

  test('goal: a renewal that finds nobody is tried again later; the evidence stays until its age ends it', async () => {
    const { fetch, wire, clock } = await startFakeFetch()
    await ask(fetch)
    const { attest } = wire
    wire.attest = () => Promise.reject(new Error('unreachable'))
    clock.advance(fakeLimits.reverifyAfterMs + 1)
    for (const _ of [1, 2, 3]) await ask(fetch)
    expect([wire.nonces.length, wire.sent.length]).toEqual([2, 4])
    wire.attest = attest
    clock.advance(10_001)
    await ask(fetch)
    await fetch.verify()
    expect(wire.nonces.length).toBe(3)
  })

  test('goal: who gives bad evidence when asked again is relied on no more, although the old evidence is young', async () => {
    const { fetch, wire, gateway } = await startFakeFetch()
    await ask(fetch)
    const recorded = await gateway.attest(new URL(`${gatewayUrl}/attestation?nonce=${'A'.repeat(43)}`))
    wire.attest = async () => ({ ...recorded, tlsSpkiDigest: gateway.tlsSpkiDigest })
    const error = (await failureOf(fetch.verify())) as VerificationError
    expect([error.name, error.failed.map(check => check.name)]).toEqual(['VerificationError', ['attestation-nonce']])
    expect([fetch.evidence(), wire.closed()]).toEqual([null, 1])
    expect((await failureOf(ask(fetch))).name).toBe('VerificationError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: whoever does not answer is waited for only so long', async () => {
    const { fetch, wire, clock } = await startFakeFetch()
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

  // Goal: a refusal says what to do.
  test.each([
    [503, '{"error":{"code":"attestation_unavailable"}}', 'try again in 7 s'],
    [429, '{"error":{"code":"rate_limited"}}', 'try again in 7 s'],
    [404, '<html>', 'it must be that of a gateway'],
    [302, '', 'it must be that of a gateway'],
  ])('status %d', async (status, body, advice) => {
    const { fetch, wire } = await startFakeFetch()
    const bytes = new TextEncoder().encode(body)
    wire.attest = async () => ({ status, body: bytes, retryAfter: '7', epoch: null, tlsSpkiDigest: 'any' })
    const error = (await failureOf(ask(fetch))) as EvidenceError
    expect([error.name, error.status, error.message]).toEqual([
      'EvidenceError',
      status,
      expect.stringContaining(advice),
    ])
  })

  test('goal: after close the evidence is gone, and a later request verifies anew', async () => {
    const { fetch, wire } = await startFakeFetch()
    await ask(fetch)
    fetch.close()
    expect([fetch.evidence(), wire.closed()]).toEqual([null, 1])
    expect((await ask(fetch)).status).toBe(200)
    expect([wire.nonces.length, fetch.evidence()?.simulated]).toEqual([2, true])
  })
})

describe('other keys', () => {
  test('goal: a gateway with new keys and evidence for them gets the request, after one verification for all', async () => {
    const { fetch, wire, gateway, another } = await startFakeFetch()
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
      const { fetch, wire, another } = await startFakeFetch({}, { pins })
      await ask(fetch)
      const { tlsSpkiDigest } = wire
      const next = await another()
      // Its evidence names the TLS key that answers.
      wire.connect({ ...next, tlsSpkiDigest: pins ? next.tlsSpkiDigest : tlsSpkiDigest })
      expect(await (await ask(fetch)).json()).toEqual({ answer: 'here' })
      expect([wire.nonces.length, next.seen]).toEqual([2, [secret]])
      expect(sentInClear(wire)).toBe(false)
    }
  })

  test('goal: another key without evidence gets nothing: not when the evidence is for another connection, is old, or is not there', async () => {
    const { fetch, wire, gateway } = await startFakeFetch()
    await ask(fetch)
    const good = wire.nonces.length
    // In the middle: evidence is forwarded, and comes over a connection with another key.
    wire.tlsSpkiDigest = systemRandom(32)
    const forwarded = await failureOf(ask(fetch))
    const { cause } = forwarded as { cause: VerificationError }
    expect([forwarded.name, cause.name, cause.failed.map(check => check.name)]).toEqual([
      ...['KeyChangedError', 'VerificationError', ['tls-binding']],
    ])
    expect([wire.sent.length, gateway.seen.length, wire.nonces.length - good]).toEqual([1, 1, 1])
    // Earlier evidence is dropped with it: the next request asks first.
    expect((await failureOf(ask(fetch))).name).toBe('VerificationError')
    expect(wire.sent.length).toBe(1)
  })

  test('goal: another key is asked for evidence once for a request; who changes keys all the time does not get it', async () => {
    const { fetch, wire, another } = await startFakeFetch()
    await ask(fetch)
    const next = await another()
    wire.tlsSpkiDigest = systemRandom(32)
    wire.attest = async address => ({
      ...(await next.attest(address)),
      tlsSpkiDigest: next.tlsSpkiDigest,
    })
    const error = await failureOf(ask(fetch))
    expect([error.name, (error.cause as Error).name]).toEqual(['KeyChangedError', 'PeerKeyError'])
    expect([wire.nonces.length, wire.sent.length]).toEqual([2, 1])
  })

  test('goal: no evidence for another key is a KeyChangedError that says why', async () => {
    const { fetch, wire } = await startFakeFetch()
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
      const { fetch, wire } = await startFakeFetch({}, { pins })
      wire.respond = async () => keyConfigProblem()
      expect((await failureOf(ask(fetch))).name).toBe('KeyChangedError')
      expect([wire.nonces.length, wire.sent.length]).toEqual([2, 1])
      expect(sentInClear(wire)).toBe(false)
    }
  })

  test('goal: receipts with other encryption keys in them than the hardware vouches for are refused', async () => {
    for (const pins of [true, false]) {
      const { fetch, wire, gateway, another } = await startFakeFetch({}, { pins })
      const other = await another()
      const swap = (text: string, name: 'x25519' | 'mlkem768') => {
        const [from, to] = [gateway, other].map(({ keys }) => Buffer.from(keys.publicKeys[name]).toString('base64url'))
        return text.replaceAll(`${from}`, `${to}`)
      }
      wire.attest = async address => {
        const { status, body } = await gateway.attest(address)
        const text = swap(swap(new TextDecoder().decode(body), 'x25519'), 'mlkem768')
        const tlsSpkiDigest = pins ? gateway.tlsSpkiDigest : 'any'
        return { status, body: new TextEncoder().encode(text), retryAfter: null, epoch: null, tlsSpkiDigest }
      }
      const error = (await failureOf(ask(fetch))) as VerificationError
      expect([error.name, error.failed.map(check => check.name)]).toEqual([
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
    // An allowlist does not list upstreams, so its gateway's configuration has to be named.
    [{ configuration: undefined } as unknown as Partial<AttestedFetchOptions>, 'gateway-configuration'],
    [{ policy: { ...policy, minimumGuestSvn: 4_000_000_000 } }, 'gateway/evidence'],
  ]
  for (const [changes, name] of rows) {
    const { fetch, wire } = await startFakeFetch(changes)
    const error = (await failureOf(ask(fetch))) as VerificationError
    expect([error.name, error.failed.map(check => check.name), wire.sent]).toEqual([
      ...['VerificationError', expect.arrayContaining([name]), []],
    ])
    expect(error.message).toContain('What to do: ')
  }
  // Without its root simulated evidence is nobody's.
  const { simulatedRoot: _, ...rest } = options
  const clock = createManualClock(Date.now())
  const gateway = await createFakeGateway({ clock })
  const wire = createFakeWire(gateway, { pins: true })
  const fetch = createAttestedFetch(rest, {
    createTransport: () => wire.transport,
    clock,
    random: systemRandom,
    crypto: portableCrypto,
  })
  expect((await failureOf(ask(fetch))) as VerificationError).toBeInstanceOf(VerificationError)
  expect(wire.sent).toEqual([])
})

test('goal: errors are told apart by class and by name', async () => {
  const { fetch, wire } = await startFakeFetch()
  await ask(fetch)
  wire.tlsSpkiDigest = systemRandom(32)
  const error = await failureOf(ask(fetch))
  expect([error instanceof KeyChangedError, error instanceof Error, error.name]).toEqual([
    true,
    true,
    'KeyChangedError',
  ])
})
