// EHBP's two halves against each other, against the stock client, and against another HPKE; every way to change what
// was sealed.

import { describe, expect, test } from 'bun:test'
import { AEAD_AES_256_GCM, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256, KEM_MLKEM768_X25519 } from '@panva/hpke-noble'
import { Identity } from 'ehbp'
import fc from 'fast-check'
import { CipherSuite } from 'hpke'
import {
  ehbpKeys,
  frameOf,
  framesOf,
  sealedParts,
  serverContext,
  splitBytes,
  withFlip,
} from '../../../scripts/rigs/gateway/ehbp.ts'
import { webAesGcm } from '../../../src/attest/ehbp/aes-gcm.ts'
import type { EhbpSuite, ResponseHead } from '../../../src/attest/ehbp/client.ts'
import { hpkeContext } from '../../../src/attest/ehbp/hpke.ts'
import { encodeKeyConfig } from '../../../src/attest/ehbp/key-config.ts'
import { responseCiphers } from '../../../src/attest/ehbp/response-keys.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import { framesMaxOf, NotOurs, sealedBytesMaxOf } from '../../../src/attest/ehbp/server.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { kemNames, kemPublicKey } from '../../../src/attest/receipt/kem.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { concat, fromHex, toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { nativeAesGcm } from '../../../src/linux/native-aes-gcm.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'
import { fuzz } from '../../rigs/hostile/fuzz.ts'

const plainBytesMax = 65_536
const json = 'application/json'
const stream = 'text/event-stream'

function seal(body: Uint8Array, suite: EhbpSuite = 'x25519', keys = ehbpKeys.publicKeys) {
  return sealRequest({ keys, suite, random: systemRandom }, body)
}

function headOf(headers: Record<string, string>): ResponseHead {
  return { headers: new Headers(headers) }
}

/** A request that the server has opened, and its response of these plain parts: the head and the frames of each. */
async function exchange(parts: readonly string[], { suite = 'x25519' as EhbpSuite, type = json } = {}) {
  const request = await seal(utf8('{"a":1}'), suite)
  const context = await serverContext(request.headers['ehbp-encapsulated-key'])
  await context.open(request.body, plainBytesMax)
  const sealing = await context.sealResponse(systemRandom(32))
  const frames: Uint8Array[] = []
  for (const part of parts) frames.push(await sealing.seal(utf8(part)))
  const head = { 'ehbp-response-nonce': sealing.nonce, 'content-type': type }
  return { request, context, sealing, frames, head }
}

type Exchange = Awaited<ReturnType<typeof exchange>>

/** Opens a body that arrives in these pieces. */
async function opened({ request, head }: Pick<Exchange, 'request' | 'head'>, pieces: readonly Uint8Array[]) {
  const opener = await request.openResponse(headOf(head))
  const plain: Uint8Array[] = []
  for (const piece of pieces) plain.push(await opener.push(piece))
  opener.finish()
  return new TextDecoder().decode(concat(...plain))
}

const EVENTS = ['data: {"choices":[]}\n\n', 'data: {"n":1}\n\n', ': strongroom-receipt x\n\ndata: [DONE]\n\n']

describe.each(kemNames)('suite %s', suite => {
  test('goal: whatever was sealed is what opens, in any frames and any pieces', async () => {
    const body = fc.uint8Array({ minLength: 1, maxLength: 4000 })
    const counts = fc.array(fc.integer({ min: 0, max: 700 }), { maxLength: 12 })
    const property = fc.asyncProperty(body, counts, counts, async (bytes, chunks, pieces) => {
      const request = await seal(bytes, suite)
      const context = await serverContext(request.headers['ehbp-encapsulated-key'])
      expect(await context.open(request.body, plainBytesMax)).toEqual(bytes)
      const text = JSON.stringify({ bytes: toHex(bytes) })
      const sealing = await context.sealResponse(systemRandom(32))
      const frames: Uint8Array[] = []
      for (const chunk of splitBytes(utf8(text), chunks)) frames.push(await sealing.seal(chunk))
      const head = { 'ehbp-response-nonce': sealing.nonce, 'content-type': json }
      expect(await opened({ request, head }, splitBytes(concat(...frames), pieces))).toBe(text)
    })
    await fc.assert(property, { numRuns: suite === 'x25519' ? 60 : 20 })
  })

  test('goal: another HPKE opens what our client sealed, and our server opens what it sealed', async () => {
    const kem = suite === 'x25519' ? KEM_DHKEM_X25519_HKDF_SHA256 : KEM_MLKEM768_X25519
    const other = new CipherSuite(kem, KDF_HKDF_SHA256, AEAD_AES_256_GCM)
    const info = utf8('ehbp request')
    const pair = await other.GenerateKeyPair(true)
    const raw = await other.SerializePublicKey(pair.publicKey)
    const keys = { mlkem768: suite === 'xwing' ? raw.slice(0, 1184) : new Uint8Array(1184), x25519: raw.slice(-32) }
    const request = await seal(utf8('hello'), suite, { ...ehbpKeys.publicKeys, ...keys })
    const enc = fromHex(request.headers['ehbp-encapsulated-key']) ?? new Uint8Array(0)
    const recipient = await other.SetupRecipient(pair.privateKey, enc, { info })
    expect(await recipient.Open(request.body.slice(4))).toEqual(utf8('hello'))

    const publicKey = await other.DeserializePublicKey(kemPublicKey(suite, ehbpKeys.publicKeys))
    const { ctx, encapsulatedSecret } = await other.SetupSender(publicKey, { info })
    const context = await serverContext(toHex(encapsulatedSecret))
    const frames = [frameOf(await ctx.Seal(utf8('he'))), new Uint8Array(4), frameOf(await ctx.Seal(utf8('llo')))]
    expect(await context.open(concat(...frames), plainBytesMax)).toEqual(utf8('hello'))
  })

  test('goal: another key opens nothing, and says so apart from other failures', async () => {
    const others = makeReceiptKeys(systemRandom, nativeKeys)
    const request = await seal(utf8('hello'), suite, others.publicKeys)
    const context = await serverContext(request.headers['ehbp-encapsulated-key'])
    await expect(context.open(request.body, plainBytesMax)).rejects.toThrow(NotOurs)
  })
})

describe('the stock client', () => {
  test('goal: it takes our key configuration, its requests open, and it opens our responses', async () => {
    const identity = await Identity.unmarshalPublicConfig(encodeKeyConfig(ehbpKeys.publicKeys))
    expect(await identity.getPublicKeyHex()).toBe(toHex(ehbpKeys.publicKeys.x25519))
    const url = 'https://gateway.example/v1/chat/completions'
    const body = 'x'.repeat(70_000)
    const { request, context } = await identity.encryptRequestWithContext(new Request(url, { method: 'POST', body }))
    const server = await serverContext(request.headers.get('ehbp-encapsulated-key') ?? '')
    const sealed = new Uint8Array(await request.arrayBuffer())
    expect(await server.open(sealed, 100_000)).toEqual(utf8(body))
    const sealing = await server.sealResponse(systemRandom(32))
    const response = new Response(await sealing.seal(utf8(body)), { headers: { 'ehbp-response-nonce': sealing.nonce } })
    if (context === null) throw new Error('no context')
    const plain = await identity.decryptResponseWithContext(response, context)
    expect(await plain.text()).toBe(body)
  })

  test('goal: its own encoding of a key configuration is ours, byte for byte', async () => {
    const identity = await Identity.fromPublicKeyHex(toHex(ehbpKeys.publicKeys.x25519))
    expect(toHex(await identity.marshalConfig())).toBe(toHex(encodeKeyConfig(ehbpKeys.publicKeys)))
  })
})

describe('a changed request', () => {
  async function twoFrames() {
    const { frames, headers } = await sealedParts([utf8('{"model":'), utf8('"tiny"}')])
    const [first = new Uint8Array(0), second = new Uint8Array(0)] = frames
    return { first, second, key: headers['ehbp-encapsulated-key'] }
  }
  const failure = async (key: string, body: Uint8Array) => {
    const context = await serverContext(key)
    return context.open(body, plainBytesMax).then(
      () => 'opened',
      (error: unknown) => (error instanceof NotOurs || error instanceof Malformed ? error.name : `other: ${error}`),
    )
  }

  test('goal: a flipped bit at every byte of every frame is refused', async () => {
    const { first, second, key } = await twoFrames()
    const whole = concat(first, second)
    expect(await failure(key, whole)).toBe('opened')
    for (let at = 0; at < whole.length; at += 1) {
      const expected = at >= 4 && at < first.length ? ['NotOurs'] : at < 4 ? ['NotOurs', 'Malformed'] : ['Malformed']
      expect(expected).toContain(await failure(key, withFlip(whole, at)))
    }
  })

  test('goal: frames in another order, twice, left out at the front, or cut are refused', async () => {
    const { first, second, key } = await twoFrames()
    expect(await failure(key, concat(second, first))).toBe('NotOurs')
    expect(await failure(key, second)).toBe('NotOurs')
    expect(await failure(key, concat(first, first))).toBe('Malformed')
    expect(await failure(key, concat(first, second, second))).toBe('Malformed')
    for (let cut = 1; cut < second.length; cut += 1)
      expect(await failure(key, concat(first, second.slice(0, cut)))).toBe('Malformed')
  })

  test('goal: a last frame that is left out cannot be seen here: what is in the frames says so', async () => {
    const { first, key } = await twoFrames()
    const context = await serverContext(key)
    expect(await context.open(first, plainBytesMax)).toEqual(utf8('{"model":'))
  })

  test('goal: the encapsulated key of another request opens nothing', async () => {
    const [item, two] = [await twoFrames(), await twoFrames()]
    expect(await failure(two.key, concat(item.first, item.second))).toBe('NotOurs')
  })

  test('goal: lengths that lie, frames without room for a tag, and floods of frames cost an error and no memory', async () => {
    const { first, key } = await twoFrames()
    const lie = (length: number) => Uint8Array.of(length >>> 24, length >>> 16, length >>> 8, length)
    for (const length of [1, 15, 0x7fff_ffff, 0xffff_ffff])
      expect(await failure(key, concat(first, lie(length), first))).toBe('Malformed')
    const max = framesMaxOf(plainBytesMax)
    expect(await failure(key, concat(first, new Uint8Array(4 * max)))).toBe('opened')
    expect(await failure(key, concat(first, new Uint8Array(4 * (max + 1))))).toBe('Malformed')
    const { frames, headers } = await sealedParts(Array.from({ length: max + 1 }, () => new Uint8Array(0)))
    expect(await failure(headers['ehbp-encapsulated-key'], concat(...frames.slice(0, -1)))).toBe('opened')
    expect(await failure(headers['ehbp-encapsulated-key'], concat(...frames))).toBe('Malformed')
  })

  test('goal: the bound on a sealed body leaves room for every plain one in frames of a kilobyte', () => {
    for (const plain of [1, 1023, 1024, 65_536, 4_194_304]) {
      const frames = Math.ceil(plain / 1024)
      expect(sealedBytesMaxOf(plain)).toBeGreaterThanOrEqual(plain + frames * 20)
      expect(frames).toBeLessThanOrEqual(framesMaxOf(plain))
    }
  })

  test('goal: no bytes make the server throw anything but its two errors', async () => {
    const { first, second, key } = await twoFrames()
    await fuzz({ samples: [concat(first, second), first], count: 400 }, async bytes => {
      expect(['opened', 'NotOurs', 'Malformed']).toContain(await failure(key, bytes))
    })
  })
})

describe('a long request', () => {
  test('goal: the server gives way to others between its parts', async () => {
    const request = await seal(new Uint8Array(3_000_000))
    let pauses = 0
    const pause = async () => {
      pauses += 1
    }
    const context = await serverContext(request.headers['ehbp-encapsulated-key'], { pause })
    expect((await context.open(request.body, 3_000_000)).length).toBe(3_000_000)
    expect(pauses).toBe(1)
    const { frames, headers } = await sealedParts(Array.from({ length: 1000 }, () => new Uint8Array(100)))
    pauses = 0
    const small = await serverContext(headers['ehbp-encapsulated-key'], { pause })
    expect((await small.open(concat(...frames), 1_000_000)).length).toBe(100_000)
    expect(pauses).toBeGreaterThan(5)
  })
})

describe('a changed response', () => {
  test('goal: streams and objects open as they were sealed, by WebCrypto and natively alike', async () => {
    for (const newAesGcm of [webAesGcm, nativeAesGcm]) {
      const request = await sealRequest(
        { keys: ehbpKeys.publicKeys, suite: 'x25519', random: systemRandom, newAesGcm },
        utf8('{}'),
      )
      const context = await serverContext(request.headers['ehbp-encapsulated-key'], { newAesGcm })
      await context.open(request.body, plainBytesMax)
      const sealing = await context.sealResponse(systemRandom(32))
      const head = { 'ehbp-response-nonce': sealing.nonce, 'content-type': json }
      expect(await opened({ request, head }, [await sealing.seal(utf8('{"a":"b"}'))])).toBe('{"a":"b"}')
    }
    const streamed = await exchange(EVENTS, { type: stream })
    expect(await opened(streamed, streamed.frames)).toBe(EVENTS.join(''))
  })

  test('goal: a long body is in frames of at most 64 KiB', async () => {
    const text = JSON.stringify({ text: 'x'.repeat(200_000) })
    const long = await exchange([text])
    const lengths = framesOf(concat(...long.frames)).map(frame => frame.length)
    expect(lengths).toEqual([65_556, 65_556, 65_556, text.length - 3 * 65_536 + 20])
    expect(await opened(long, long.frames)).toBe(text)
  })

  test('goal: a flipped bit at every byte of every frame is refused', async () => {
    const streamed = await exchange(EVENTS, { type: stream })
    const whole = concat(...streamed.frames)
    for (let at = 0; at < whole.length; at += 1)
      await expect(opened(streamed, [withFlip(whole, at)])).rejects.toThrow(Malformed)
  })

  test('goal: frames moved, doubled, left out or of another response are refused', async () => {
    const streamed = await exchange(EVENTS, { type: stream })
    const other = await exchange(EVENTS, { type: stream })
    const [a, b, c] = streamed.frames as [Uint8Array, Uint8Array, Uint8Array]
    const wrong = [
      [b, a, c],
      [a, a, b, c],
      [a, c],
      [b, c],
      [a, b, c, c],
      other.frames,
      [a, b, ...other.frames.slice(2)],
    ]
    for (const frames of wrong) await expect(opened(streamed, frames)).rejects.toThrow(Malformed)
  })

  test('goal: a cut at every byte is seen, also between frames', async () => {
    const streamed = await exchange(EVENTS, { type: stream })
    const whole = concat(...streamed.frames)
    for (let length = 0; length < whole.length; length += 1)
      await expect(opened(streamed, [whole.slice(0, length)])).rejects.toThrow('cut short')
    const object = await exchange(['{"a":"}', '","b":{}', '}'])
    expect(await opened(object, object.frames)).toBe('{"a":"}","b":{}}')
    for (const count of [0, 1, 2])
      await expect(opened(object, object.frames.slice(0, count))).rejects.toThrow('cut short')
  })

  test('goal: the response to another request, or with another nonce, does not open', async () => {
    const [item, two] = [await exchange(['{}']), await exchange(['{}'])]
    await expect(opened({ request: two.request, head: item.head }, item.frames)).rejects.toThrow(Malformed)
    const again = await item.context.sealResponse(systemRandom(32))
    const head = { ...item.head, 'ehbp-response-nonce': again.nonce }
    await expect(opened({ request: item.request, head }, item.frames)).rejects.toThrow(Malformed)
  })

  test('goal: without a nonce, or with one that is none, nothing is taken for the response', async () => {
    const { request } = await exchange(['{}'])
    for (const nonce of [
      '',
      '00',
      'g'.repeat(64),
      '0'.repeat(63),
      '0'.repeat(66),
      `${'0'.repeat(64)}, ${'0'.repeat(64)}`,
    ])
      await expect(request.openResponse(headOf({ 'ehbp-response-nonce': nonce }))).rejects.toThrow(Malformed)
    await expect(request.openResponse(headOf({}))).rejects.toThrow('not sealed')
  })

  test('goal: after a failure an opener gives nothing more', async () => {
    const streamed = await exchange(EVENTS, { type: stream })
    const opener = await streamed.request.openResponse(headOf(streamed.head))
    const [first = new Uint8Array(0)] = streamed.frames
    await expect(opener.push(withFlip(first, 9))).rejects.toThrow(Malformed)
    await expect(opener.push(first)).rejects.toThrow('failed before')
    expect(() => opener.finish()).toThrow('failed before')
  })

  test('goal: a server cannot make a client keep a long frame or count empty ones for ever', async () => {
    const { request, head } = await exchange([])
    const opener = () => request.openResponse(headOf(head), { frameBytesMax: 1000, emptyFramesMax: 3 })
    await expect((await opener()).push(Uint8Array.of(0, 0, 3, 0xe9))).rejects.toThrow('more than 1000 bytes')
    expect(await (await opener()).push(new Uint8Array(12))).toEqual(new Uint8Array(0))
    await expect((await opener()).push(new Uint8Array(16))).rejects.toThrow('too many empty frames')
  })

  test('goal: no bytes make the client throw anything but Malformed', async () => {
    const streamed = await exchange(EVENTS, { type: stream })
    await fuzz({ samples: [concat(...streamed.frames)], count: 300 }, async bytes => {
      await opened(streamed, [bytes]).catch(error => expect(error).toBeInstanceOf(Malformed))
    })
  })
})

describe('sealed headers', () => {
  const names = { 'x-strongroom-receipt': 'r'.repeat(5000), 'x-strongroom-ignored': 'a, b' }

  test('goal: they come back in the clear, and only to whom they were sealed', async () => {
    const { request, sealing, head } = await exchange(['{}'])
    const sealed = await sealing.sealHeaders(names)
    const withSealed = (value: string) => headOf({ ...head, 'x-strongroom-sealed-headers': value })
    expect((await request.openResponse(withSealed(sealed))).headers).toEqual(names)
    const other = await exchange(['{}'])
    await expect(other.request.openResponse(withSealed(sealed))).rejects.toThrow(Malformed)
    const changed = (sealed[10] === 'A' ? 'B' : 'A') + sealed.slice(11)
    for (const wrong of [sealed.slice(0, 10) + changed, '', 'AAAA', '*', 'A'.repeat(20_000)])
      await expect(request.openResponse(withSealed(wrong))).rejects.toThrow(Malformed)
  })

  test('goal: a frame of the body cannot stand in for them, and names that nobody agreed on are refused', async () => {
    const { request, sealing, head } = await exchange(['{}'])
    const frame = framesOf(await sealing.seal(utf8(JSON.stringify(names))))[0] ?? new Uint8Array(0)
    const asHeader = (bytes: Uint8Array) =>
      headOf({ ...head, 'x-strongroom-sealed-headers': Buffer.from(bytes).toString('base64url') })
    await expect(request.openResponse(asHeader(frame.slice(4)))).rejects.toThrow('do not open')
    for (const plain of [
      '{"content-type":"x"}',
      '{"x-strongroom-receipt":1}',
      '[]',
      'null',
      '{"x-strongroom-ignored":"a\\nb"}',
    ]) {
      const ciphertext = await headersCiphertext(head['ehbp-response-nonce'], request, plain)
      await expect(request.openResponse(asHeader(ciphertext))).rejects.toThrow(Malformed)
    }
  })

  /** A ciphertext that a hostile server could put there. */
  async function headersCiphertext(nonce: string, request: Exchange['request'], plain: string) {
    const encapsulated = fromHex(request.headers['ehbp-encapsulated-key']) ?? new Uint8Array(0)
    const sharedSecret = await ehbpKeys.decapsulate('x25519', encapsulated)
    const exported = hpkeContext('x25519', sharedSecret, nativeAesGcm).exportSecret(utf8('ehbp response'))
    const responseNonce = fromHex(nonce) ?? new Uint8Array(0)
    return await responseCiphers({ exported, encapsulated, responseNonce }, nativeAesGcm).headers().seal(utf8(plain))
  }
})

test('goal: an empty body is refused: EHBP does not seal one', async () => {
  await expect(seal(new Uint8Array(0))).rejects.toThrow('empty body')
})
