// Encrypted requests and responses changed on their way, and hostile sizes: refused before anything reaches an
// upstream.

import { describe, expect, test } from 'bun:test'
import { sealedParts, withFlip } from '../../../scripts/rigs/gateway/ehbp.ts'
import {
  chatEncrypted,
  errorOf,
  openEncrypted,
  postEncrypted,
  postSealed,
} from '../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  chatBody,
  eachWithGateway,
  IMPATIENT,
  LIMITS,
  startGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { delta, openSse, sse, type TestUpstream, USAGE } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { sealedBytesMaxOf } from '../../../src/attest/ehbp/server.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { concat, utf8 } from '../../../src/base/bytes.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const CHAT = '/v1/chat/completions'

describe('a request that was changed on its way', () => {
  /** Status and whether it could be read by whoever encrypted. */
  async function outcomeOf(change: (sealed: Uint8Array) => Uint8Array): Promise<number> {
    return await chatEncrypted(gateway, {}, { change }).then(
      async response => {
        expect((await errorOf(response)).code).toBe('invalid_request')
        return response.response.status
      },
      (error: unknown) => {
        expect(error).toBeInstanceOf(Malformed)
        return 422
      },
    )
  }

  test('goal: no flipped bit, lost, doubled, moved or foreign frame reaches an upstream', async () => {
    const keys = await gateway.publicKeys()
    const length = (await sealedParts([utf8(JSON.stringify(chatBody()))])).frames[0]?.length ?? 0
    for (let at = 0; at < length; at += 7) expect([400, 422]).toContain(await outcomeOf(sealed => withFlip(sealed, at)))
    for (const cut of [1, 3, 4, 19, length - 1]) expect(await outcomeOf(sealed => sealed.slice(0, cut))).toBe(400)
    expect(await outcomeOf(sealed => concat(sealed, sealed))).toBe(400)
    expect(await outcomeOf(() => new Uint8Array(400))).toBe(400)
    const text = utf8(JSON.stringify(chatBody()))
    const { frames, headers } = await sealedParts([text.slice(0, 9), text.slice(9)], keys)
    const other = await sealedParts([text.slice(0, 9), text.slice(9)], keys)
    const [first = new Uint8Array(0), second = new Uint8Array(0)] = frames
    const [, foreign = new Uint8Array(0)] = other.frames
    for (const [body, status] of [
      [concat(second, first), 422],
      [concat(first, foreign), 400],
      [concat(first, first, second), 400],
      [second, 422],
      [first, 400],
    ] as const)
      expect((await postSealed(gateway, headers, body)).response.status).toBe(status)
    expect(upstream.seen).toEqual([])
    // The first frame alone was a body that opened.
    expect((await postSealed(gateway, headers, concat(first, second))).response.status).toBe(400)
    expect(upstream.seen).toEqual([])
    const again = await sealedParts([text.slice(0, 9), text.slice(9)], keys)
    const [begin = new Uint8Array(0), end = new Uint8Array(0)] = again.frames
    const padded = concat(begin, new Uint8Array(8), end)
    expect((await postSealed(gateway, again.headers, padded)).response.status).toBe(200)
    expect(upstream.seen.length).toBe(1)
  })

  test('goal: a response cannot be given to another request', async () => {
    const [item, two] = [await chatEncrypted(gateway), await chatEncrypted(gateway)]
    const swapped = await openEncrypted(item.request, two.response)
    await expect(swapped.text()).rejects.toThrow(Malformed)
  })

  test('goal: a response that was cut, changed or stripped on its way is refused', async () => {
    const saved = await chatEncrypted(gateway, { stream: true })
    const bytes = new Uint8Array(await saved.response.arrayBuffer())
    const reopened = async (body: Uint8Array, headers = saved.response.headers) =>
      await (await openEncrypted(saved.request, new Response(Uint8Array.from(body), { headers }))).text()
    expect(await reopened(bytes)).toEndWith('data: [DONE]\n\n')
    for (let at = 0; at < bytes.length; at += 11) await expect(reopened(withFlip(bytes, at))).rejects.toThrow(Malformed)
    for (let length = 0; length < bytes.length; length += 11)
      await expect(reopened(bytes.slice(0, length))).rejects.toThrow(Malformed)
    const stripped = new Headers(saved.response.headers)
    stripped.delete('ehbp-response-nonce')
    await expect(reopened(utf8('{}'), stripped)).rejects.toThrow('not sealed')
  })
})

describe('bounds', () => {
  /** A chat whose JSON has exactly so many bytes. */
  function bodyOf(bytes: number): Uint8Array {
    const empty = JSON.stringify(chatBody({ user: '' })).length
    return utf8(
      JSON.stringify(chatBody({ messages: [{ role: 'user', content: 'Hello' }], user: '' })).padEnd(
        Math.max(bytes, empty),
      ),
    )
  }

  test('goal: the limit is on the plain body, to the byte, with a declared length and chunked alike', async () => {
    for (const [bytes, status] of [
      [LIMITS.bodyBytesMax, 200],
      [LIMITS.bodyBytesMax + 1, 413],
    ] as const) {
      const body = new TextDecoder().decode(bodyOf(bytes))
      expect((await postEncrypted(gateway, CHAT, body)).response.status).toBe(status)
      const change = (sealed: Uint8Array) => new Blob([Uint8Array.from(sealed)]).stream()
      expect((await postEncrypted(gateway, CHAT, body, { change })).response.status).toBe(status)
    }
  })

  test('goal: frames of a kilobyte fit, a flood of small or empty ones does not, and a sealed body over the bound is not read', async () => {
    const text = bodyOf(LIMITS.bodyBytesMax)
    const partsOf = (bytes: number) =>
      Array.from({ length: Math.ceil(text.length / bytes) }, (_, i) => text.slice(i * bytes, (i + 1) * bytes))
    const kilobytes = await sealedParts(partsOf(1024), await gateway.publicKeys())
    expect((await postSealed(gateway, kilobytes.headers, concat(...kilobytes.frames))).response.status).toBe(200)
    const tiny = await sealedParts(partsOf(16), await gateway.publicKeys())
    expect((await postSealed(gateway, tiny.headers, concat(...tiny.frames.slice(0, 300)))).response.status).toBe(400)
    const [first = new Uint8Array(0)] = kilobytes.frames
    expect((await postSealed(gateway, kilobytes.headers, concat(first, new Uint8Array(8_000)))).response.status).toBe(
      400,
    )
    const over = sealedBytesMaxOf(LIMITS.bodyBytesMax) + 1
    expect((await postSealed(gateway, kilobytes.headers, new Uint8Array(over))).response.status).toBe(413)
    const lie = Uint8Array.of(0xff, 0xff, 0xff, 0xff, 1, 2, 3)
    expect((await postSealed(gateway, kilobytes.headers, concat(first, lie))).response.status).toBe(400)
  })

  test('goal: a body that stops arriving is a 408, encrypted', async () => {
    const change = (sealed: Uint8Array) =>
      new ReadableStream<Uint8Array>({ start: controller => controller.enqueue(sealed.slice(0, 30)) })
    await using impatient = await startGateway([target(upstream.url)], { limits: IMPATIENT })
    const late = await chatEncrypted(impatient, {}, { change })
    expect(late.response.status).toBe(408)
    expect((await errorOf(late)).code).toBe('body_timeout')
  })

  test('goal: what is reserved is the plain length, and the type of the body is the plain one’s', async () => {
    const remaining = ({ headers }: Response) => Number(headers.get('x-ratelimit-remaining-tokens'))
    const plain = await gateway.chat()
    await plain.text()
    const encrypted = await chatEncrypted(gateway)
    await encrypted.text()
    // The difference is exactly the usage of the first.
    expect(remaining(plain) - remaining(encrypted.response)).toBe(USAGE.total_tokens)
    const typed = await chatEncrypted(gateway, {}, { headers: { 'content-type': 'text/plain' } })
    expect([typed.response.status, (await errorOf(typed)).code]).toEqual([400, 'invalid_request'])
  })

  test('goal: when the client leaves, the upstream is free at once, whole and streamed', async () => {
    upstream.behave = async (response, seen, gone) => {
      if (seen.body.stream === true) {
        openSse(response)
        response.write(sse(delta({ content: 'one' })))
      }
      await gone
    }
    for (const stream of [false, true]) {
      const leaving = new AbortController()
      const sent = chatEncrypted(gateway, { stream }, { signal: leaving.signal })
      await until('the upstream is asked', 15_000, () => upstream.active() === 1)
      if (stream) await (await sent).pieces().next()
      leaving.abort()
      await sent.catch(() => {})
      await until('the upstream is free', 15_000, () => upstream.active() === 0)
    }
    await until('both are on record', 15_000, async () => (await gateway.records()).length === 2)
    expect((await gateway.records()).map(record => record.outcome)).toEqual(['aborted', 'aborted'])
  })
})
