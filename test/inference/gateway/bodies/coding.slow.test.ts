// Compressed request bodies: decoded within the limit of a body, and each fault told apart.

import { describe, expect, test } from 'bun:test'
import { gzipSync } from 'node:zlib'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  chatBody,
  eachWithGateway,
  KEY,
  LIMITS,
  MODEL,
  startGateway,
  type TestGateway,
  target,
} from '../../../../scripts/rigs/gateway/server.ts'
import type { TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { verifyResponse } from '../../../../src/attest/receipt/response-verify.ts'
import { utf8 } from '../../../../src/base/bytes.ts'
import {
  type CodedBody,
  type Coding,
  codingOf,
  createDecodeBody,
} from '../../../../src/inference/gateway/bodies/coding.ts'
import { BodyRoom } from '../../../../src/inference/limits/body-room.ts'
import { faultOf } from '../../../rigs/fault-of.ts'
import { upstreamIn } from '../../../rigs/receipt-upstream.ts'

const mib = 1_048_576
const CODINGS = ['gzip', 'zstd'] as const
const encode: Record<Coding, (bytes: Uint8Array) => Uint8Array> = {
  gzip: bytes => gzipSync(bytes),
  zstd: bytes => Bun.zstdCompressSync(bytes),
}

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const CHAT = '/v1/chat/completions'

function post(
  path: string,
  body: Uint8Array | ReadableStream<Uint8Array>,
  coding: string,
  more: Record<string, string> = {},
) {
  const headers = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', 'content-encoding': coding }
  return fetch(gateway.url + path, {
    method: 'POST',
    headers: { ...headers, ...more },
    body: body as Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array>,
  })
}

const errorOf = async (answer: Response) => ((await answer.json()) as { error: Record<string, unknown> }).error

describe('over HTTP', () => {
  // Goal: every route that takes a body reads both codings, with a declared length and in chunks.
  test.each(CODINGS)('%s on every metered route', async coding => {
    await using embedding = await startGateway([
      target(upstream.url, { models: [MODEL, 'embed'], embeddingModels: ['embed'] }),
    ])
    gateway = embedding
    const messages = { ...chatBody(), max_tokens: 9 }
    for (const [path, body] of [
      [CHAT, chatBody()],
      ['/v1/completions', { model: MODEL, prompt: 'Hi' }],
      ['/v1/responses', { model: MODEL, input: 'Hi' }],
      ['/v1/messages', messages],
      ['/v1/messages/count_tokens', messages],
    ] as const) {
      const coded = encode[coding](utf8(JSON.stringify(body)))
      for (const sent of [coded, new Blob([coded as Uint8Array<ArrayBuffer>]).stream()]) {
        const answer = await post(path, sent, coding)
        expect([path, answer.status, await answer.text()]).toEqual([path, 200, expect.any(String)])
      }
    }
    // No upstream here makes embeddings; the request gets as far as any other.
    const body = { model: MODEL, input: 'Hi' }
    const plain = await gateway.post('/v1/embeddings', body)
    const answer = await post('/v1/embeddings', encode[coding](utf8(JSON.stringify(body))), coding)
    expect([answer.status, await answer.text()]).toEqual([plain.status, await plain.text()])
  })

  // Goal: names are compared as HTTP compares them, and "identity" is a plain body.
  test('spellings', async () => {
    const plain = utf8(JSON.stringify(chatBody()))
    for (const [coding, body] of [
      ['identity', plain],
      ['Identity', plain],
      ['GZIP', encode.gzip(plain)],
      ['x-gzip', encode.gzip(plain)],
      ['Zstd', encode.zstd(plain)],
    ] as const) {
      expect([coding, (await post(CHAT, body, coding)).status]).toEqual([coding, 200])
    }
  })

  // Goal: another coding, or more than one, is a 415 that names the header, what works and the remedy. Nothing is read.
  test.each(['br', 'deflate', 'gzip, zstd', 'identity, gzip', 'gzip,gzip', 'x'])('415 for %j', async coding => {
    for (const path of [CHAT, '/v1/messages']) {
      const answer = await post(path, utf8(JSON.stringify(chatBody())), coding)
      const { code, message, param } = await errorOf(answer)
      expect([answer.status, code, param]).toEqual([415, 'unsupported_media_type', 'content-encoding'])
      expect(message).toMatch(/Content-Encoding.*gzip.*zstd.*remove the header/)
      expect(answer.headers.get('x-should-retry')).toBe('false')
    }
    const unknown = await post(CHAT, utf8('{}'), coding, { authorization: 'Bearer nonsense' })
    expect(unknown.status).toBe(401)
    expect(upstream.seen).toEqual([])
  })

  // Goal: 413 at exactly limit + 1 decoded bytes; at the limit the body passes. A bomb is a 413.
  test.each(CODINGS)('%s beyond the limit', async coding => {
    const textOf = (bytes: number) => {
      const empty = JSON.stringify(chatBody({ messages: [{ role: 'user', content: '' }] }))
      return JSON.stringify(chatBody({ messages: [{ role: 'user', content: 'x'.repeat(bytes - empty.length) }] }))
    }
    for (const [bytes, status] of [
      [LIMITS.bodyBytesMax, 200],
      [LIMITS.bodyBytesMax + 1, 413],
      [64 * mib, 413],
    ] as const) {
      const answer = await post(CHAT, encode[coding](utf8(textOf(bytes))), coding)
      expect([bytes, answer.status]).toEqual([bytes, status])
      if (status === 413) expect((await errorOf(answer)).code).toBe('body_too_large')
    }
  })

  // Goal: a client sees that its compressed body is broken, and how.
  test.each(CODINGS)('broken %s', async coding => {
    const whole = encode[coding](utf8(JSON.stringify(chatBody())))
    const bad = {
      'cut by one byte': whole.subarray(0, -1),
      'half of it': whole.subarray(0, whole.length >> 1),
      'a head alone': whole.subarray(0, 5),
      'plain JSON': utf8(JSON.stringify(chatBody())),
      'bytes after it': Buffer.concat([whole, utf8('garbage garbage')]),
      'one byte after it': Buffer.concat([whole, utf8('{')]),
      'a changed byte': whole.map((byte, at) => (at === whole.length >> 1 ? byte ^ 0xff : byte)),
    }
    for (const [name, body] of Object.entries(bad)) {
      const answer = await post(CHAT, body, coding)
      const { code, message } = await errorOf(answer)
      expect([name, answer.status, code]).toEqual([name, 400, 'invalid_request'])
      if (name !== 'a changed byte')
        expect([name, message]).toEqual([name, expect.stringContaining(`not valid ${coding}`)])
    }
    expect((await errorOf(await post(CHAT, encode[coding](new Uint8Array(0)), coding))).message).toMatch(
      /^The body is empty/,
    )
    expect(upstream.seen).toEqual([])
  })

  // Goal: the receipt is over the decoded body, so that a stranger verifies it with the JSON alone.
  test.each(CODINGS)('the receipt of a %s body', async coding => {
    const request = utf8(JSON.stringify(chatBody()))
    const answer = await post(CHAT, encode[coding](request), coding, { 'x-strongroom-receipt': '1' })
    const response = new Uint8Array(await answer.arrayBuffer())
    const receipt = answer.headers.get('x-strongroom-receipt') ?? ''
    const question = { keys: await gateway.publicKeys(), response, outside: [upstreamIn(receipt)] } as const
    const failed = async (given: Uint8Array) => {
      const { checks } = await verifyResponse(receipt, { ...question, request: given })
      return checks.filter(check => check.outcome === 'fail').map(check => check.name)
    }
    expect(await failed(request)).toEqual([])
    expect(await failed(encode[coding](request))).toEqual(['response-request'])
  })

  // Goal: EHBP seals the body that HTTP would carry, so it is opened first and decoded then. The header is in the
  // clear: a body whose header was removed or added is refused.
  test.each(CODINGS)('%s inside an encrypted body', async coding => {
    const plain = utf8(JSON.stringify(chatBody()))
    const send = (body: Uint8Array, headers: Record<string, string>) => postEncrypted(gateway, CHAT, body, { headers })
    const named = { 'content-encoding': coding }
    const good = await send(encode[coding](plain), named)
    expect([good.response.status, JSON.parse(await good.text()).object]).toEqual([200, 'chat.completion'])
    for (const bad of [await send(encode[coding](plain), {}), await send(plain, named)]) {
      expect([bad.response.status, JSON.parse(await bad.text()).error.code]).toEqual([400, 'invalid_request'])
    }
  })

  // Goal: tokens are reserved for the decoded body: compression is no way around a key's limit.
  test.each(CODINGS)('tokens of a %s body', async coding => {
    await using limited = await startGateway([target(upstream.url)], { caller: { tokensPerMinute: 15_000 } })
    gateway = limited
    const body = chatBody({ messages: [{ role: 'user', content: 'x'.repeat(40_000) }] })
    const coded = encode[coding](utf8(JSON.stringify(body)))
    const begun = Promise.withResolvers<void>()
    const { behave } = upstream
    upstream.behave = async (_response, _seen, gone) => {
      begun.resolve()
      await gone
    }
    const leaving = new AbortController()
    const first = gateway.chat(body, { signal: leaving.signal }).catch(() => null)
    await begun.promise
    const answer = await post(CHAT, coded, coding)
    const { message } = await errorOf(answer)
    expect([answer.status, answer.headers.has('retry-after'), upstream.seen.length]).toEqual([429, true, 1])
    expect(message).toContain('tokens')
    leaving.abort()
    await first
    upstream.behave = behave
  })
})

describe('decoding', () => {
  const decodeBody = createDecodeBody()
  const decode = (body: Uint8Array, coding: Coding, more: Partial<CodedBody> = {}) =>
    decodeBody({
      ...{ body, coding, owner: 'o', signal: new AbortController().signal, bytesMax: 32 * mib, freeBytes: 4 * mib },
      takeRoom: () => {},
      ...more,
    })
  const codeOf = (work: Promise<unknown>) => work.then(() => 'good', faultCode)
  const faultCode = (error: unknown) => (error as { code?: string }).code ?? String(error)

  test('goal: the header as HTTP has it', () => {
    const of = (value: string) => codingOf(new Headers({ 'content-encoding': value }))
    expect([codingOf(new Headers()), of(''), of('identity'), of('gzip'), of('X-GZIP'), of('zstd')]).toEqual([
      ...[null, null, null],
      ...(['gzip', 'gzip', 'zstd'] as const),
    ])
    expect(faultOf(() => of('gzip, gzip'))).toMatchObject({ code: 'unsupported_media_type', status: 415 })
  })

  // Goal: bytes come out as they went in: several members or frames, raw and repeated blocks, checksums.
  test.each(CODINGS)('%s round trips', async coding => {
    const random = crypto.getRandomValues(new Uint8Array(60_000))
    const large = new Uint8Array(9 * mib).map((_, at) => at % 251)
    for (const bytes of [utf8('{}'), random, new Uint8Array(200_000), large]) {
      expect(Buffer.compare(await decode(encode[coding](bytes), coding), bytes)).toBe(0)
    }
    const twice = Buffer.concat([encode[coding](utf8('{"a"')), encode[coding](utf8(':1}'))])
    expect(Buffer.from(await decode(twice, coding)).toString()).toBe('{"a":1}')
  })

  // Goal: memory is taken before the body grows into it: nothing up to 4 MiB, then as much as the body's memory has.
  test.each(CODINGS)('room for a %s body', async coding => {
    const takenFor = async (bytes: number, bytesMax = 32 * mib) => {
      const taken: number[] = []
      const body = encode[coding](new Uint8Array(bytes))
      await decode(body, coding, { bytesMax, takeRoom: more => void taken.push(more / mib) })
      return taken
    }
    expect(await takenFor(4 * mib)).toEqual([])
    expect(await takenFor(4 * mib + 1)).toEqual([8])
    expect(await takenFor(17 * mib)).toEqual([8, 8, 16])
    expect(await takenFor(17 * mib, 20 * mib)).toEqual([8, 8, 4])
    const room = new BodyRoom(32 * mib)
    room.take(60 * mib, 'o')
    const refused = decode(encode[coding](new Uint8Array(5 * mib)), coding, {
      takeRoom: bytes => void room.take(bytes, 'o'),
    })
    expect(await codeOf(refused)).toBe('rate_limited')
  })

  // Goal: a bomb holds neither the event loop nor memory beyond the limit, and stops at the limit.
  test.each(CODINGS)('a bomb of %s', async coding => {
    const bomb = encode[coding](new Uint8Array(128 * mib))
    Bun.gc(true)
    const before = process.memoryUsage().rss
    let most = 0
    const timer = setInterval(() => {
      most = Math.max(most, process.memoryUsage().rss - before)
    }, 1)
    const taken: number[] = []
    const work = decode(bomb, coding, { takeRoom: bytes => void taken.push(bytes) })
    expect(await codeOf(work)).toBe('body_too_large')
    clearInterval(timer)
    expect(taken).toEqual([8 * mib, 8 * mib, 16 * mib])
    expect(most).toBeLessThan(120 * mib)
  })

  // Goal: a frame cannot demand a window of 128 MiB of each request.
  test('a window of more than 8 MiB', async () => {
    // Magic, a descriptor without size, a window of 2^27 bytes, and one empty block.
    const frame = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0, (27 - 10) << 3, 1, 0, 0)
    await expect(decode(frame, 'zstd')).rejects.toMatchObject({
      code: 'invalid_request',
      message: expect.stringContaining('window of at most 8 MiB'),
    })
  })

  // Goal: a body of tiny blocks cannot make the check of its frames long.
  test('many empty blocks', async () => {
    const head = Uint8Array.of(0x28, 0xb5, 0x2f, 0xfd, 0, (17 - 10) << 3)
    const frame = new Uint8Array(head.length + 3 * 200_000)
    frame.set(head)
    frame[frame.length - 3] = 1
    expect(await codeOf(decode(frame, 'zstd'))).toBe('invalid_request')
  })

  // Goal: an organization with many bodies delays another by one of them at most.
  test('organizations in turn', async () => {
    const order: string[] = []
    const slow = encode.gzip(new Uint8Array(8 * mib))
    const jobs = ['a', 'a', 'a', 'a', 'b'].map(owner =>
      decode(slow, 'gzip', { owner }).then(() => void order.push(owner)),
    )
    await Promise.all(jobs)
    expect(order).toEqual(['a', 'b', 'a', 'a', 'a'])
  })

  test('goal: a client that left costs nothing more', async () => {
    const signal = AbortSignal.abort('gone')
    expect(await decode(encode.gzip(utf8('{}')), 'gzip', { signal }).catch(reason => reason)).toBe('gone')
  })
})
