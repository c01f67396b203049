// Half a surrogate pair in a request of any API: engines get U+FFFD, and the response names the change.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { ehbpKeys } from '../../../../scripts/rigs/gateway/ehbp.ts'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { MODEL, startGateway, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { createOwnEncryption } from '../../../../src/inference/encryption/encryption.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

// A cut emoji in texts, in a name and in a tool's result. JSON.stringify writes its half as an escape.
const cut = 'cut \ud83d'
const whole = 'cut \ufffd'

function requests(text: string) {
  const user = { role: 'user', content: text }
  return [
    ['/v1/chat/completions', { messages: [user] }],
    ['/v1/completions', { prompt: text }],
    ['/v1/responses', { input: [user] }],
    ['/v1/messages', { messages: [user], max_tokens: 10 }],
  ] as const
}

function sentText(): unknown {
  const { messages, prompt } = upstream.seen.at(-1)?.body ?? {}
  return Array.isArray(messages) ? messages.at(-1).content : prompt
}

// Goal: bodies of the serving thread and of the other one, where unknown fields are refused too: nothing is lost.
test('in every API', async () => {
  const limits = { bodyBytesMax: 8_388_608, refusesUnknownFields: true }
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits }))
  for (const more of ['', 'y'.repeat(200_000)]) {
    for (const [path, body] of requests(more + cut)) {
      const answer = await gateway.post(path, { model: MODEL, ...body })
      const named = answer.headers.get('x-strongroom-ignored')
      expect([path, answer.status, named]).toEqual([path, 200, 'text.surrogates'])
      expect(sentText()).toBe(more + whole)
    }
  }
})

// Goal: the name is beside that of joined messages.
test('with other changes', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)]))
  const messages = [
    { role: 'user', content: cut },
    { role: 'user', content: 'b' },
  ]
  const answer = await gateway.post('/v1/chat/completions', { model: MODEL, messages })
  expect(answer.headers.get('x-strongroom-ignored')).toBe('messages.joined, text.surrogates')
  expect(sentText()).toBe(`${whole}\n\nb`)
})

// Goal: the name of the change is sealed: it would tell what is in the body.
test('encrypted', async () => {
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock: systemClock })
  const gateway = undo.use(startHostGateway([target(upstream.url)], { host: { encryption } }))
  for (const [path, body] of requests(cut)) {
    const { response, headers } = await postEncrypted(gateway, path, { model: MODEL, ...body })
    expect([path, response.status, response.headers.get('x-strongroom-ignored')]).toEqual([path, 200, null])
    expect(headers.get('x-strongroom-ignored')).toBe('text.surrogates')
    expect(sentText()).toBe(whole)
  }
})
