// Messages are joined for every engine, in every API, and the response says so.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { ehbpKeys } from '../../../../scripts/rigs/gateway/ehbp.ts'
import { postEncrypted } from '../../../../scripts/rigs/gateway/encrypted-client.ts'
import { MODEL, startGateway, startHostGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { systemRandom } from '../../../../src/base/ids.ts'
import { ENGINES } from '../../../../src/config/upstream/kinds.ts'
import { createOwnEncryption } from '../../../../src/inference/encryption/encryption.ts'

const name = 'x-strongroom-ignored'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const message = (role: string, content: string) => ({ role, content })

/** Requests whose instructions stand behind the user's message. */
function requests(text: string) {
  const messages = [message('user', text), message('system', 'Rules.')]
  return [
    ['/v1/chat/completions', { messages: [message('user', text), message('developer', 'Rules.')] }],
    ['/v1/responses', { input: [message('user', text), message('developer', 'Rules.')] }],
    ['/v1/messages', { messages, max_tokens: 10 }],
  ] as const
}

const sent = () => upstream.seen.at(-1)?.body.messages

// Goal: engines of all kinds get the instructions in front, of small bodies and of those that a thread parses.
test.each(ENGINES)('for %s', async engine => {
  const gateway = undo.use(
    await startGateway([target(upstream.url, { engine })], { limits: { bodyBytesMax: 8_388_608 } }),
  )
  for (const text of ['Hi', 'y'.repeat(200_000)]) {
    for (const [path, body] of requests(text)) {
      const answer = await gateway.post(path, { model: MODEL, ...body })
      expect([path, answer.status, answer.headers.get(name)]).toEqual([path, 200, 'messages.joined'])
      expect(sent()).toEqual([message('system', 'Rules.'), message('user', text)])
    }
  }
})

// Goal: a gateway that refuses fields without effect takes such messages: nothing of them is lost.
test('where unknown fields are refused', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits: { refusesUnknownFields: true } }))
  for (const [path, body] of requests('Hi')) {
    const answer = await gateway.post(path, { model: MODEL, ...body })
    expect([path, answer.status, answer.headers.get(name)]).toEqual([path, 200, 'messages.joined'])
  }
  const refused = await gateway.post('/v1/chat/completions', { model: MODEL, ...requests('Hi')[0][1], vendor: 1 })
  expect(refused.status).toBe(400)
})

// Goal: encrypted requests are joined as plain ones are, and the name of it is sealed.
test('encrypted', async () => {
  const encryption = createOwnEncryption({ keys: ehbpKeys, random: systemRandom, clock: systemClock })
  const gateway = undo.use(startHostGateway([target(upstream.url)], { host: { encryption } }))
  for (const [path, body] of requests('Hi')) {
    const { response, headers } = await postEncrypted(gateway, path, { model: MODEL, ...body })
    expect([path, response.status, response.headers.get(name)]).toEqual([path, 200, null])
    expect(headers.get(name)).toBe('messages.joined')
    expect(sent()).toEqual([message('system', 'Rules.'), message('user', 'Hi')])
  }
})
