// Goal: one encapsulation serves many requests: each has keys of its own, a response opens for its own request alone,
// and a gateway that has forgotten a session, or runs in another process, opens it as well.

import { describe, expect, test } from 'bun:test'
import { createCipheriv, hkdfSync } from 'node:crypto'
import { type SealedRequest, type SealingSession, sealRequest } from '../../../src/attest/ehbp/client.ts'
import { requestSecrets } from '../../../src/attest/ehbp/session.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { kemNames } from '../../../src/attest/receipt/kem.ts'
import type { ReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { present } from '../../../src/base/assert.ts'
import { fromHex, fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createEncryption } from '../../../src/inference/encryption/encryption.ts'
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
  const start = () => createEncryption({ keys, random: systemRandom })
  return { keys: made.publicKeys, start, decapsulations: () => decapsulations }
}

type PlainHeaders = Readonly<Record<string, string>>

/** The gateway's plain view of a request, and its encrypted answer that repeats it. */
async function carried(
  gateway: Encryption,
  { headers, body }: { readonly headers: PlainHeaders; readonly body: Uint8Array },
) {
  const request = new Request('https://gateway.example/v1/chat/completions', {
    method: 'POST',
    headers: { ...headers, 'content-length': String(body.length) },
  })
  const exchange = present(gateway.begin(request), 'it is encrypted')
  const plain = await exchange.decrypt(body, 65_536)
  const answer = Response.json({ heard: fromUtf8(plain) }, { headers: { 'x-strongroom-receipt': 'the receipt' } })
  return { plain: fromUtf8(plain), response: await exchange.encrypt(answer) }
}

async function read(sealed: SealedRequest, response: Response): Promise<string> {
  const opener = await sealed.openResponse(response)
  const text = fromUtf8(await opener.push(new Uint8Array(await response.clone().arrayBuffer())))
  opener.finish()
  expect(opener.headers).toEqual({ 'x-strongroom-receipt': 'the receipt' })
  return text
}

/** A session with a gateway that has seen its first request. */
async function opened(suite: (typeof kemNames)[number] = 'xwing') {
  const { keys, start, decapsulations } = rig()
  const gateway = start()
  const first = await sealRequest({ keys, suite, random: systemRandom }, utf8('first'))
  const { response } = await carried(gateway, first)
  const session = present(await first.openSession(response), 'the gateway has sessions')
  return { session, gateway, start, decapsulations, first, response }
}

async function faultOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => null,
    reason => reason,
  )
  return error instanceof Fault ? error.code : `no fault: ${error}`
}

async function sealedBy(session: SealingSession, text: string) {
  return await session.seal(utf8(text))
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
    expect(await sealed.openSession(response)).toBe(session)
  }
  expect([nonces.size, bodies.size]).toEqual([20, 20])
  // The first request, and the first of the session.
  expect(decapsulations()).toBe(2)
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
  test('another nonce, none, or one at the first request', async () => {
    const { session, gateway, first } = await opened()
    const { headers, body } = await sealedBy(session, 'a')
    const other = await sealedBy(session, 'b')
    const nonce = { 'x-strongroom-request-nonce': 'ab'.repeat(32) }
    const changed: readonly { readonly headers: PlainHeaders; readonly body: Uint8Array }[] = [
      { headers: { ...headers, ...nonce }, body },
      { headers: other.headers, body },
      { headers: { 'ehbp-encapsulated-key': headers['ehbp-encapsulated-key'] }, body },
      { headers: { ...first.headers, ...nonce }, body: first.body },
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
    expect(session.seal(new Uint8Array(0))).rejects.toThrow(Malformed)
  })
})

test('goal: sessions are bounded: of more than 1024 the longest unused is forgotten, and no stranger’s request counts', async () => {
  const { keys, start, decapsulations } = rig()
  const gateway = start()
  const open = async () => {
    const first = await sealRequest({ keys, suite: 'x25519', random: systemRandom }, utf8('first'))
    const answer = { headers: new Headers({ 'x-strongroom-session': '1' }) }
    return present(await first.openSession(answer), 'a session')
  }
  const use = async (session: SealingSession) => {
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

test('goal: no session with a gateway that does not offer this form of them', async () => {
  const { keys } = rig()
  const first = await sealRequest({ keys, suite: 'x25519', random: systemRandom }, utf8('first'))
  for (const headers of [{}, { 'x-strongroom-session': '2' }, { 'x-strongroom-session': '1, 1' }])
    expect(await first.openSession({ headers: new Headers(headers) })).toBeNull()
})

test('goal: keys are HKDF-SHA256 of the session’s secret and the nonce, as another implementation computes them', async () => {
  const [session, nonce] = [systemRandom(32), systemRandom(32)]
  const derived = (label: string, bytes: number) => Buffer.from(hkdfSync('sha256', session, nonce, label, bytes))
  const { body, exported } = requestSecrets(session, nonce, nativeAesGcm)
  expect(toHex(exported)).toBe(derived('strongroom request export', 32).toString('hex'))
  const cipher = createCipheriv(
    'aes-256-gcm',
    derived('strongroom request key', 32),
    derived('strongroom request nonce', 12),
  )
  const expected = Buffer.concat([cipher.update('text'), cipher.final(), cipher.getAuthTag()])
  expect(toHex(await body.seal(utf8('text')))).toBe(expected.toString('hex'))
  expect(() => requestSecrets(session, fromHex('ab') ?? new Uint8Array(0), nativeAesGcm)).toThrow(Malformed)
})
