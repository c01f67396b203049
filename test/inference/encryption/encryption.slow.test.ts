// Encrypted requests over HTTP: the same contract as plain ones, whoever stands in between.

import { describe, expect, test } from 'bun:test'
import { Value } from '@sinclair/typebox/value'
import { ehbpKeys, sealedParts, withFlip } from '../../../scripts/rigs/gateway/ehbp.ts'
import { chatEncrypted, errorOf, postEncrypted, postSealed } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import {
  chatBody,
  eachWithGateway,
  KEY,
  LIMITS,
  startGateway,
  type TestGateway,
  target,
} from '../../../scripts/rigs/gateway/server.ts'
import { chargedTo, samplesOf, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { delta, openSse, sendJson, sse, type TestUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { isKeyConfigProblem } from '../../../src/attest/ehbp/key-config-problem.ts'
import { kemNames } from '../../../src/attest/receipt/kem.ts'
import { makeReceiptKeys } from '../../../src/attest/receipt/receipt-keys.ts'
import { splitResponse } from '../../../src/attest/receipt/response-read.ts'
import { verifyResponse } from '../../../src/attest/receipt/response-verify.ts'
import { concat, toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { GatewayError } from '../../../src/contract/http/inference.ts'
import { createEncryption } from '../../../src/inference/encryption/encryption.ts'
import { GatewayProblem } from '../../../src/inference/gateway/openapi/gateway-problem.ts'
import { nativeKeys } from '../../../src/linux/native-keys.ts'
import { eventsOf } from '../../rigs/gateway/openai-schema.ts'

let upstream: TestUpstream
let gateway: TestGateway
eachWithGateway((freshUpstream, freshGateway) => {
  upstream = freshUpstream
  gateway = freshGateway
})

const CHAT = '/v1/chat/completions'

describe.each(kemNames)('suite %s', suite => {
  test('goal: completions, whole and streamed, are those of plain requests, and nothing of them is in the clear', async () => {
    for (const stream of [false, true]) {
      const plain = await (await gateway.chat({ stream })).text()
      const encrypted = await chatEncrypted(gateway, { stream }, { suite })
      expect(encrypted.response.status).toBe(200)
      const text = await encrypted.text()
      const varies = /chatcmpl-[0-9a-f]{32}|"created":\d+/g
      expect(text.replaceAll(varies, '')).toBe(plain.replaceAll(varies, ''))
      expect(encrypted.response.headers.get('content-length')).toBeNull()
      expect(encrypted.response.headers.get('ehbp-response-nonce')).toMatch(/^[0-9a-f]{64}$/)
    }
    expect(upstream.seen.map(seen => seen.body.messages)).toEqual(Array(4).fill(chatBody().messages))
    expect(upstream.seen.every(seen => seen.headers.get('ehbp-encapsulated-key') === null)).toBe(true)
    expect((await gateway.records()).map(record => [record.tokens, record.outcome])).toEqual(
      Array(4).fill([{ prompt: 11, completion: 3 }, 'completed']),
    )
  })

  test('goal: each piece of a stream is sent when it comes, not at the end', async () => {
    const turn = byTurns(['one', 'two', 'three'])
    const encrypted = await chatEncrypted(gateway, { stream: true }, { suite })
    const seen: string[] = []
    for await (const piece of encrypted.pieces()) {
      seen.push(piece)
      turn()
    }
    expect(seen.length).toBeGreaterThanOrEqual(4)
    expect(seen.slice(0, 3).map(piece => eventsOf(piece).length)).toEqual([1, 1, 1])
    expect(seen[0]).toContain('one')
  })
})

describe('refusals', () => {
  test('goal: what a plain request is refused with comes encrypted, with the same status, document and headers', async () => {
    const rows: [body: unknown, status: number, key?: string, path?: string][] = [
      ['{', 400],
      [chatBody({ n: 'x' }), 400],
      [chatBody({ model: 'unknown' }), 404],
      [chatBody(), 401, 'gw_wrong'],
      [chatBody(), 404, KEY, '/v1/unknown'],
      [chatBody(), 405, KEY, '/v1/models'],
      [chatBody({ padding: 'x'.repeat(LIMITS.bodyBytesMax) }), 413],
    ]
    for (const [body, status, key = KEY, path = CHAT] of rows) {
      const plain = await gateway.post(path, body, { headers: { authorization: `Bearer ${key}` } })
      const encrypted = await postEncrypted(gateway, path, body, { key })
      expect([body, plain.status, encrypted.response.status]).toEqual([body, status, status])
      expect(await errorOf(encrypted)).toEqual(Value.Decode(GatewayError, await plain.json()).error)
      for (const name of ['x-should-retry', 'allow', 'www-authenticate', 'connection', 'content-type'])
        expect([name, encrypted.response.headers.get(name)]).toEqual([name, plain.headers.get(name)])
    }
    expect(upstream.seen).toEqual([])
    expect(await gateway.records()).toEqual([])
  })

  test('goal: failures of the upstream come encrypted, before the first byte and in the stream', async () => {
    upstream.behave = response => sendJson(response, 500, { error: 'engine words' })
    const failed = await chatEncrypted(gateway)
    expect(failed.response.status).toBe(502)
    expect((await errorOf(failed)).code).toBe('upstream_failed')
    upstream.behave = async response => {
      openSse(response)
      response.write(sse(delta({ content: 'one' })))
      response.end()
    }
    const broken = await chatEncrypted(gateway, { stream: true })
    const text = await broken.text()
    expect(text).toContain('one')
    expect(text).toContain('"upstream_failed"')
    expect(text).not.toContain('[DONE]')
  })

  test('goal: a refusal for too many requests comes encrypted, with the time to wait in the clear', async () => {
    await using other = await startGateway([target(upstream.url)], { caller: { requestsPerMinute: 1 } })
    await (await chatEncrypted(other)).text()
    const limited = await chatEncrypted(other)
    const retryAfter = expect.stringMatching(/^[1-9][0-9]?$/)
    expect([limited.response.status, limited.response.headers.get('retry-after')]).toEqual([429, retryAfter])
    const wait = `Retry in ${limited.response.headers.get('retry-after')} s.`
    expect((await errorOf(limited)).message).toBe(`Limit of 1 requests per minute reached. ${wait}`)
  })

  test('goal: other keys are a 422 in the clear that says to take the keys again, and nothing is asked of an upstream', async () => {
    const others = makeReceiptKeys(systemRandom, nativeKeys).publicKeys
    for (const suite of kemNames) {
      const sent: Uint8Array[] = []
      const change = (sealed: Uint8Array) => {
        sent.push(sealed)
        return sealed
      }
      const refused = postEncrypted(gateway, CHAT, chatBody(), { suite, keys: others, change })
      await expect(refused).rejects.toThrow('not sealed')
      expect(sent.length).toBe(1)
    }
    const { frames, headers } = await sealedParts([utf8(JSON.stringify(chatBody()))], await gateway.publicKeys())
    const { response, text } = await postSealed(gateway, headers, withFlip(concat(...frames), 30))
    expect([response.status, response.headers.get('x-should-retry')]).toEqual([422, 'false'])
    expect(response.headers.get('ehbp-response-nonce')).toBeNull()
    const problem = { status: response.status, contentType: response.headers.get('content-type'), body: text }
    expect(isKeyConfigProblem(problem)).toBe(true)
    expect(Value.Decode(GatewayProblem, JSON.parse(text)).error.code).toBe('key_config_mismatch')
    expect(upstream.seen).toEqual([])
    expect(await chargedTo(gateway, KEY)).toEqual({ requests: 3, tokens: 0 })
    const ended = { running: 0, ended: { 422: 3 }, errors: { key_config_mismatch: 3 } }
    expect(await viewOf(gateway)).toMatchObject(ended)
  })

  test('goal: a header that is no encapsulated key is a 400 in the clear, before anything is admitted', async () => {
    const good = toHex(ehbpKeys.publicKeys.x25519)
    const low = `${'00'.repeat(32)}`
    for (const header of [
      '',
      'x',
      good.slice(1),
      `${good}00`,
      `${good}, ${good}`,
      'zz'.repeat(32),
      'ab'.repeat(100_000),
    ]) {
      if (header.length > 10_000) continue
      const { response, text } = await postSealed(gateway, { 'ehbp-encapsulated-key': header }, utf8('x'.repeat(50)))
      expect([header, response.status]).toEqual([header, 400])
      expect(JSON.parse(text).error.message).toContain('Ehbp-Encapsulated-Key')
      expect(response.headers.get('ehbp-response-nonce')).toBeNull()
    }
    expect((await chargedTo(gateway, KEY)).requests).toBe(0)
    // A point of small order is seen only when it is used: still a 400 in the clear, for nobody could read another.
    const { response, text } = await postSealed(gateway, { 'ehbp-encapsulated-key': low }, utf8('x'.repeat(50)))
    expect([response.status, response.headers.get('ehbp-response-nonce')]).toEqual([400, null])
    expect(JSON.parse(text).error.code).toBe('invalid_request')
    expect(await chargedTo(gateway, KEY)).toEqual({ requests: 1, tokens: 0 })
  })
})

describe('what is in the clear', () => {
  test('goal: names of ignored fields and receipts are hidden, and come back to whoever encrypted', async () => {
    const headers = { 'x-strongroom-receipt': '1' }
    const whole = await chatEncrypted(gateway, { secret_field: 1 }, { headers })
    expect(whole.response.headers.get('x-strongroom-ignored')).toBeNull()
    expect(whole.response.headers.get('x-strongroom-receipt')).toBeNull()
    expect(whole.headers.get('x-strongroom-ignored')).toBe('secret_field')
    const plain = await gateway.chat({ secret_field: 1 }, { headers })
    expect(plain.headers.get('x-strongroom-sealed-headers')).toBeNull()
    expect(plain.headers.get('x-strongroom-ignored')).toBe('secret_field')
  })

  test('goal: whoever ends TLS, and so has the bearer key, gets no receipt of an encrypted exchange by its path', async () => {
    for (const stream of [false, true]) {
      const encrypted = await chatEncrypted(gateway, { stream }, { headers: { 'x-strongroom-receipt': '1' } })
      await encrypted.text()
      const id = encrypted.response.headers.get('x-request-id')
      const auth = { headers: { authorization: `Bearer ${KEY}` } }
      expect((await fetch(`${gateway.url}/v1/receipts/${id}`, auth)).status).toBe(404)
      const refused = await chatEncrypted(gateway, { stream }, { headers: { 'x-strongroom-receipt': 'keep' } })
      expect([refused.response.status, JSON.parse(await refused.text()).error.param]).toEqual([
        400,
        'x-strongroom-receipt',
      ])
    }
  })

  test('goal: receipts cover the plain bodies, in a header and in a stream, and verify as those of plain exchanges do', async () => {
    await using other = await startGateway([target(upstream.url)], { limits: { padsStreams: true } })
    const keys = await other.publicKeys()
    for (const suite of kemNames) {
      for (const stream of [false, true]) {
        const encrypted = await chatEncrypted(other, { stream }, { suite, headers: { 'x-strongroom-receipt': '1' } })
        const { body, receipt: inStream } = splitResponse(utf8(await encrypted.text()))
        const beside = encrypted.headers.get('x-strongroom-receipt')
        expect([inStream === null, beside === null]).toEqual([!stream, stream])
        const request = utf8(JSON.stringify(chatBody({ stream })))
        const question = { keys, request, response: body, outside: [] } as const
        const verdict = await verifyResponse(inStream ?? beside ?? '', question)
        const failed = verdict.checks.filter(check => check.outcome !== 'pass').map(check => check.name)
        expect(failed).toEqual(['response-key-maker', 'response-upstream'])
      }
    }
  })

  test('goal: requests without a body, and public routes, are plain with the header as without', async () => {
    const header = { 'ehbp-encapsulated-key': toHex(ehbpKeys.publicKeys.x25519) }
    const auth = { authorization: `Bearer ${KEY}` }
    const models = await fetch(`${gateway.url}/v1/models`, { headers: { ...auth, ...header } })
    expect([models.status, models.headers.get('ehbp-response-nonce')]).toEqual([200, null])
    expect(await models.json()).toMatchObject({ data: gateway.models.map(id => ({ id })) })
    const empty = await fetch(gateway.url + CHAT, { method: 'POST', headers: { ...auth, ...header } })
    expect([empty.status, empty.headers.get('ehbp-response-nonce')]).toEqual([400, null])
    const health = await fetch(`${gateway.url}/health`, { method: 'POST', body: 'x', headers: header })
    expect([health.status, health.headers.get('ehbp-response-nonce')]).toEqual([405, null])
  })

  test('goal: the key configuration is public, exact, counted against the address, and of the keys in use', async () => {
    const response = await fetch(`${gateway.url}/.well-known/hpke-keys`)
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/ohttp-keys'])
    const bytes = new Uint8Array(await response.arrayBuffer())
    expect(toHex(bytes)).toBe(`000020${toHex((await gateway.publicKeys()).x25519)}000400010002`)
    const wrong = await fetch(`${gateway.url}/.well-known/hpke-keys`, { method: 'POST' })
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'GET, HEAD'])
    await using other = await startGateway([target(upstream.url)], { publicRequestsPerMinute: 1 })
    const statusOf = async () => (await fetch(`${other.url}/.well-known/hpke-keys`)).status
    expect([await statusOf(), await statusOf()]).toEqual([200, 429])
  })
})

/** Streams these contents, the next one when it is called. */
function byTurns(contents: readonly string[]): () => void {
  const turns = contents.map(() => Promise.withResolvers<void>())
  upstream.behave = async response => {
    openSse(response)
    for (const [at, content] of contents.entries()) {
      response.write(sse(delta({ content })))
      await turns[at]?.promise
    }
    response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
  }
  let next = 0
  return () => turns[next++]?.resolve()
}

test('goal: a stream of encrypted events has frames of one size where it is padded', async () => {
  await using padded = await startGateway([target(upstream.url)], { limits: { padsStreams: true } })
  const contents = ['', 'a', ' longer', '日本語', ' antidisestablishment']
  const sizesOf = async (options: Record<string, unknown>) => {
    const turn = byTurns(contents)
    const { response } = await chatEncrypted(padded, { stream: true, ...options })
    const sizes = new Set<number>()
    let count = 0
    for await (const frame of response.body ?? []) {
      if (count < contents.length) sizes.add(frame.length)
      count += 1
      turn()
    }
    return sizes.size
  }
  expect(await sizesOf({})).toBe(1)
  expect(await sizesOf({ stream_options: { include_obfuscation: false } })).toBe(5)
})

test('goal: a response of value is never sent in the clear: where it cannot be encrypted, there is an error', async () => {
  const encryption = createEncryption({
    keys: ehbpKeys,
    random: systemRandom,
    checkReplay: () => ({ outcome: 'new', epoch: '' }),
  })
  const request = new Request('http://gateway/v1/chat/completions', {
    method: 'POST',
    body: 'x',
    headers: { 'ehbp-encapsulated-key': '00'.repeat(32), 'content-length': '1' },
  })
  const exchange = encryption.begin(request)
  await expect(exchange?.encrypt(new Response('secret'))).rejects.toThrow('cannot be encrypted')
  const refusal = new Response('{}', { status: 400 })
  expect(await exchange?.encrypt(refusal)).toBe(refusal)
})

test('goal: what became of encrypted requests is counted by suite', async () => {
  await (await chatEncrypted(gateway, {}, { suite: 'xwing' })).text()
  await (await chatEncrypted(gateway)).text()
  await (await chatEncrypted(gateway, {}, { change: sealed => sealed.slice(0, 40) })).text()
  await chatEncrypted(gateway, {}, { change: sealed => withFlip(sealed, 20) }).catch(() => {})
  const counted = samplesOf(await gateway.metrics())
    .filter(({ name }) => name === 'strongroom_gateway_encrypted_requests_total')
    .map(({ labels, value }) => [labels.suite, labels.outcome, value])
  expect(counted).toEqual([
    ['x25519', 'decrypted', 1],
    ['x25519', 'key_config_mismatch', 1],
    ['x25519', 'malformed', 1],
    ['x25519', 'replayed', 0],
    ['xwing', 'decrypted', 1],
    ['xwing', 'key_config_mismatch', 0],
    ['xwing', 'malformed', 0],
    ['xwing', 'replayed', 0],
  ])
})
