// Goal: one encapsulation serves many bound requests: each has keys of its own, opens for its own method, path and API
// key alone, and once. A response opens for its own request alone. A gateway that has forgotten a session, or runs in
// another process, opens it as well.

import { describe, expect, test } from 'bun:test'
import { createCipheriv, createHash, hkdfSync } from 'node:crypto'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { ehbpKeys } from '../../../scripts/rigs/gateway/ehbp.ts'
import { type BoundRequest, bindingOf } from '../../../src/attest/ehbp/binding.ts'
import { type SealedRequest, SealingSession } from '../../../src/attest/ehbp/client.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import { requestSecrets } from '../../../src/attest/ehbp/session.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { encapsulate } from '../../../src/attest/receipt/encapsulate-portable.ts'
import { type KemName, kemNames } from '../../../src/attest/receipt/kem.ts'
import type { ReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { present } from '../../../src/base/assert.ts'
import { concat, fromHex, fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createEncryption } from '../../../src/inference/encryption/encryption.ts'
import { ReplayMemory } from '../../../src/inference/encryption/replays.ts'
import type { Encryption } from '../../../src/inference/types.ts'
import { nativeAesGcm } from '../../../src/linux/native-aes-gcm.ts'

/** Gateways with these keys, and how often one of them has decapsulated. */
function rig() {
  const made = makeReceiptKeys(systemRandom)
  let decapsulations = 0
  const keys: ReceiptKeys = {
    ...made,
    decapsulate: (...given) => {
      decapsulations += 1
      return made.decapsulate(...given)
    },
  }
  const replays = new ReplayMemory({ clock: createManualClock(0), random: systemRandom })
  const start = () => createEncryption({ keys, random: systemRandom, checkReplay: body => replays.check(body) })
  const open = (suite: KemName) =>
    SealingSession.open({ keys: made.publicKeys, suite, random: systemRandom, encapsulate })
  return { keys: made.publicKeys, start, open, epoch: () => replays.epoch, decapsulations: () => decapsulations }
}

const TARGET = '/v1/chat/completions'
const KEY = 'Bearer gw_abcdefgh_0123456789'

type PlainHeaders = Readonly<Record<string, string>>

/** The gateway's plain view of a request, and its encrypted answer that repeats it. */
async function carried(
  gateway: Encryption,
  { headers, body }: { readonly headers: PlainHeaders; readonly body: Uint8Array },
  target = TARGET,
) {
  const request = new Request(`https://gateway.example${target}`, {
    method: 'POST',
    headers: { authorization: KEY, ...headers, 'content-length': String(body.length) },
  })
  const exchange = present(gateway.begin(request), 'it is encrypted')
  const sender = { keyDigest: 'k1', request: 'r1' }
  const plain = await exchange.decrypt(body, { bytesMax: 65_536, sender })
  const answer = Response.json({ heard: fromUtf8(plain) }, { headers: { 'x-strongroom-receipt': 'the receipt' } })
  return { plain: fromUtf8(plain), response: await exchange.encrypt(answer), isBound: exchange.isBound }
}

async function read(sealed: SealedRequest, response: Response): Promise<string> {
  const opener = await sealed.openResponse(response)
  const text = fromUtf8(await opener.push(new Uint8Array(await response.clone().arrayBuffer())))
  opener.finish()
  expect(opener.headers).toEqual({ 'x-strongroom-receipt': 'the receipt' })
  return text
}

/** A session with a gateway that has seen its first request. */
async function opened(suite: KemName = 'xwing') {
  const { keys, start, open, epoch, decapsulations } = rig()
  const gateway = start()
  const session = { session: await open(suite), epoch }
  const first = await sealedBy(session, 'first')
  const { response } = await carried(gateway, first)
  return { keys, session, gateway, start, decapsulations, first, response }
}

async function faultOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    reason => reason,
  )
  return error instanceof Fault ? error.code : `no fault: ${error}`
}

type TestSession = { readonly session: SealingSession; readonly epoch: () => string }

async function sealedBy({ session, epoch }: TestSession, text: string, changes: Partial<BoundRequest> = {}) {
  const headers = new Headers({ authorization: KEY })
  const binding = bindingOf({ method: 'POST', target: TARGET, headers, ...changes })
  return await session.seal(utf8(text), { binding, epoch: present(fromHex(epoch()), 'hexadecimal') })
}

test.each(kemNames)('goal: requests of a session, by %s, with one encapsulation on both sides', async suite => {
  const { session, gateway, decapsulations, first } = await opened(suite)
  const nonces = new Set<unknown>()
  const bodies = new Set<string>()
  for (let i = 0; i < 20; i += 1) {
    const sealed = await sealedBy(session, 'the same')
    expect(sealed.headers['ehbp-encapsulated-key']).toBe(first.headers['ehbp-encapsulated-key'])
    nonces.add(sealed.headers['x-strongroom-request-nonce'])
    bodies.add(toHex(sealed.body))
    const { plain, response } = await carried(gateway, sealed)
    expect([plain, await read(sealed, response)]).toEqual(['the same', '{"heard":"the same"}'])
  }
  expect([nonces.size, bodies.size]).toEqual([20, 20])
  expect(decapsulations()).toBe(1)
})

test('goal: a gateway that knows nothing of the session opens it by the encapsulated key', async () => {
  const { session, start } = await opened()
  const sealed = await sealedBy(session, 'elsewhere')
  const { response } = await carried(start(), sealed)
  expect(await read(sealed, response)).toBe('{"heard":"elsewhere"}')
})

test('goal: a response opens for its own request alone, whatever of the session it is', async () => {
  const { session, gateway, first, response } = await opened()
  const [a, b] = [await sealedBy(session, 'a'), await sealedBy(session, 'b')]
  const answers: readonly Response[] = [
    response,
    (await carried(gateway, a)).response,
    (await carried(gateway, b)).response,
  ]
  for (const [i, sealed] of [first, a, b].entries()) {
    for (const [j, answer] of answers.entries()) {
      const text = await read(sealed, answer.clone() as Response).catch(error => error)
      if (i === j) expect(text).toContain('heard')
      else expect(text).toBeInstanceOf(Malformed)
    }
  }
})

// Goal: nobody who sees the headers makes, moves or changes a request.
describe('refused', () => {
  test('another nonce, none, or one at an unbound body', async () => {
    const { keys, session, gateway } = await opened()
    const unbound = await sealRequest({ keys, suite: 'xwing', random: systemRandom }, utf8('a'))
    const { headers, body } = await sealedBy(session, 'a')
    const other = await sealedBy(session, 'b')
    const nonce = { 'x-strongroom-request-nonce': 'ab'.repeat(32) }
    const changed: readonly { readonly headers: PlainHeaders; readonly body: Uint8Array }[] = [
      { headers: { ...headers, ...nonce }, body },
      { headers: other.headers, body },
      { headers: { 'ehbp-encapsulated-key': headers['ehbp-encapsulated-key'] }, body },
      { headers: { ...unbound.headers, ...nonce }, body: unbound.body },
      { headers, body: body.map((byte, at) => (at === 10 ? byte ^ 1 : byte)) },
    ]
    for (const request of changed) expect(await faultOf(carried(gateway, request))).toBe('key_config_mismatch')
  })

  test.each([[''], ['ab'], ['ab'.repeat(31)], ['ab'.repeat(33)], ['zz'.repeat(32)], [`${'ab'.repeat(32)}, 00`]])(
    'a nonce of %j',
    async text => {
      const { session, gateway } = await opened()
      const { headers, body } = await sealedBy(session, 'a')
      const request = { headers: { ...headers, 'x-strongroom-request-nonce': text }, body }
      expect(await faultOf(carried(gateway, request))).toBe('invalid_request')
    },
  )

  test('an empty body is not sealed', async () => {
    const { session } = await opened()
    await expect(sealedBy(session, '')).rejects.toThrow(Malformed)
  })
})

test('goal: sessions are bounded: of more than 1024 the longest unused is forgotten, and no stranger’s request counts', async () => {
  const { start, epoch, decapsulations, ...keys } = rig()
  const gateway = start()
  const open = async () => ({ session: await keys.open('x25519'), epoch })
  const use = async (session: TestSession) => {
    const before = decapsulations()
    await carried(gateway, await sealedBy(session, 'a'))
    return decapsulations() - before
  }
  const [first, second] = [await open(), await open()]
  expect([await use(first), await use(second), await use(first)]).toEqual([1, 1, 0])
  for (let i = 0; i < 1022; i += 1) await use(await open())
  // Requests that do not open: with keys of their own and somebody else's nonce.
  for (let i = 0; i < 10; i += 1) {
    const { headers, body } = await sealedBy(await open(), 'a')
    const request = { headers: { ...headers, 'x-strongroom-request-nonce': '00'.repeat(32) }, body }
    expect(await faultOf(carried(gateway, request))).toBe('key_config_mismatch')
  }
  expect([await use(first), await use(second)]).toEqual([0, 0])
  for (let i = 0; i < 1023; i += 1) await use(await open())
  expect([await use(second), await use(first)]).toEqual([0, 1])
}, 60_000)

test('goal: keys are HKDF-SHA256 of secret, nonce and binding, as another implementation computes them', async () => {
  const [session, requestNonce, binding] = [systemRandom(32), systemRandom(32), systemRandom(32)]
  const derived = (label: string, bytes: number) => {
    const info = Buffer.concat([Buffer.from(label), binding])
    return Buffer.from(hkdfSync('sha256', session, requestNonce, info, bytes))
  }
  const { body, exported } = requestSecrets(session, { requestNonce, binding }, nativeAesGcm)
  expect(toHex(exported)).toBe(derived('strongroom request export', 32).toString('hex'))
  const cipher = createCipheriv(
    'aes-256-gcm',
    derived('strongroom request key', 32),
    derived('strongroom request nonce', 12),
  )
  const expected = Buffer.concat([cipher.update('text'), cipher.final(), cipher.getAuthTag()])
  expect(toHex(await body.seal(utf8('text')))).toBe(expected.toString('hex'))
  const short = { requestNonce: fromHex('ab') ?? new Uint8Array(0), binding }
  expect(() => requestSecrets(session, short, nativeAesGcm)).toThrow(Malformed)
})

// Goal: the binding is a hash of method, path with query, and the digest of the key's secret: each in its own line.
test.each([
  ['Bearer gw_abcdefgh_0123456789', null, '84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882'],
  ['bEARER   gw_abcdefgh_0123456789', 'other', '84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882'],
  [null, 'gw_abcdefgh_0123456789', '84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882'],
  [null, null, ''],
])('a binding under %j and %j', (authorization, apiKey, keyDigest) => {
  const headers = new Headers()
  if (authorization !== null) headers.set('authorization', authorization)
  if (apiKey !== null) headers.set('x-api-key', apiKey)
  const expected = createHash('sha256')
    .update(`strongroom binding\nPOST\n/v1/responses?a=b\n${keyDigest}`)
    .digest('hex')
  expect(toHex(bindingOf({ method: 'POST', target: '/v1/responses?a=b', headers }))).toBe(expected)
})

describe('a bound body', () => {
  test('goal: opens for no other path, query, key or method', async () => {
    const { session, gateway } = await opened()
    for (const changes of [
      { target: '/v1/responses' },
      { target: `${TARGET}?a=b` },
      { method: 'PUT' },
      { headers: new Headers({ authorization: 'Bearer gw_abcdefgh_9876543210' }) },
      { headers: new Headers() },
    ]) {
      const sealed = await sealedBy(session, 'a', changes)
      expect(await faultOf(carried(gateway, sealed))).toBe('key_config_mismatch')
    }
    const elsewhere = await sealedBy(session, 'a', { target: '/v1/responses?a=b' })
    expect((await carried(gateway, elsewhere, '/v1/responses?a=b')).isBound).toBe(true)
  })

  test('goal: is taken once by all processes of a gateway, and by one that has forgotten the session', async () => {
    const { session, gateway, start } = await opened()
    const sealed = await sealedBy(session, 'a')
    expect((await carried(gateway, sealed)).plain).toBe('a')
    for (const process of [gateway, start()]) expect(await faultOf(carried(process, sealed))).toBe('invalid_request')
    const upper = Object.fromEntries(Object.entries(sealed.headers).map(([name, value]) => [name, value.toUpperCase()]))
    expect(await faultOf(carried(gateway, { headers: upper, body: sealed.body }))).toBe('invalid_request')
    const padded = concat(new Uint8Array(4), sealed.body)
    expect(await faultOf(carried(gateway, { headers: sealed.headers, body: padded }))).toBe('invalid_request')
  })

  test('goal: of an epoch that has ended, or never was, is refused by an answer that the client can open', async () => {
    const { session, gateway } = await opened()
    for (const epoch of ['00'.repeat(16), toHex(systemRandom(16))]) {
      const sealed = await sealedBy({ ...session, epoch: () => epoch }, 'a')
      const { headers, body } = sealed
      const request = new Request(`https://gateway.example${TARGET}`, {
        method: 'POST',
        headers: { authorization: KEY, ...headers, 'content-length': String(body.length) },
      })
      const exchange = present(gateway.begin(request), 'it is encrypted')
      const given = { bytesMax: 65_536, sender: { keyDigest: 'k1', request: 'r1' } }
      expect(await faultOf(exchange.decrypt(body, given))).toBe('key_config_mismatch')
      const opener = await sealed.openResponse(await exchange.encrypt(new Response('{}', { status: 422 })))
      expect(opener.headers).toEqual({ 'x-strongroom-epoch': `stale ${session.epoch()}` })
    }
    expect((await carried(gateway, await sealedBy(session, 'a'))).plain).toBe('a')
    expect(gateway.counts.xwing).toEqual({ decrypted: 2, key_config_mismatch: 0, malformed: 0, replayed: 2 })
  })

  test('goal: leaves no room to requests that do not open', async () => {
    const marks: unknown[] = []
    const counted = createEncryption({
      keys: ehbpKeys,
      random: systemRandom,
      checkReplay: body => {
        marks.push(body)
        return { outcome: 'new', epoch: '' }
      },
    })
    const unbound = await sealRequest({ keys: ehbpKeys.publicKeys, suite: 'x25519', random: systemRandom }, utf8('a'))
    const changed = unbound.body.map((byte, at) => (at === 10 ? byte ^ 1 : byte))
    expect(await faultOf(carried(counted, { ...unbound, body: changed }))).toBe('key_config_mismatch')
    expect(await faultOf(carried(counted, { ...unbound, body: unbound.body.slice(0, 9) }))).toBe('invalid_request')
    expect(marks).toEqual([])
    await carried(counted, unbound)
    expect(marks).toEqual([{ keyDigest: 'k1', request: 'r1', epoch: null, mark: expect.any(String) }])
  })
})

test('goal: an unbound body is taken once under whatever key, and is known as unbound', async () => {
  const { keys, gateway } = await opened()
  for (const suite of kemNames) {
    const unbound = await sealRequest({ keys, suite, random: systemRandom }, utf8('a'))
    expect((await carried(gateway, unbound)).isBound).toBe(false)
    expect(await faultOf(carried(gateway, unbound))).toBe('invalid_request')
    const other = { headers: { ...unbound.headers, authorization: 'Bearer gw_hosthost_1' }, body: unbound.body }
    expect(await faultOf(carried(gateway, other, '/v1/responses'))).toBe('invalid_request')
  }
})
