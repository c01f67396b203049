// Content parts with videos: for upstreams that take them, as pictures are; refused by name elsewhere.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'

let upstream: TestUpstream
beforeEach(async () => {
  upstream = await startUpstream()
})
afterEach(() => upstream.stop())

const video = (url: unknown) => ({ type: 'video_url', video_url: { url } })
const ask = (...parts: object[]) => ({
  messages: [{ role: 'user', content: [{ type: 'text', text: 'What?' }, ...parts] }],
})
const inline = 'data:video/mp4;base64,AAAA'

// Goal: the upstream gets the part as it came, whichever engine with videos it is, and an address only where it may
// fetch addresses.
test('taken', async () => {
  for (const engine of ['vllm', 'sglang'] as const) {
    await using gateway = await startGateway([target(upstream.url, { engine, content: ['video'], remoteUrls: false })])
    expect((await gateway.chat(ask(video(inline)))).status).toBe(200)
    expect(upstream.seen.at(-1)?.body.messages).toEqual(ask(video(inline)).messages)
    const answer = await gateway.chat(ask(video('https://example.org/x.mp4')))
    expect([answer.status, await answer.json()]).toMatchObject([
      400,
      { error: { param: 'messages', message: expect.stringContaining('data: URL') } },
    ])
    await using fetching = await startGateway([target(upstream.url, { engine, content: ['video'], remoteUrls: true })])
    expect((await fetching.chat(ask(video('https://example.org/x.mp4')))).status).toBe(200)
  }
})

// Goal: a model without videos refuses them by name, and a wrong part is refused by its field; nothing goes up.
test('refused', async () => {
  await using gateway = await startGateway([target(upstream.url, { content: ['image', 'audio', 'file'] })])
  const none = await gateway.chat(ask(video(inline)))
  expect([none.status, await none.json()]).toMatchObject([
    400,
    { error: { message: expect.stringContaining('video') } },
  ])
  for (const url of [1, 'file:///etc/passwd', '']) {
    const wrong = await gateway.chat(ask(video(url)))
    expect([wrong.status, await wrong.json()]).toMatchObject([
      400,
      { error: { param: 'messages[0].content[1].video_url.url' } },
    ])
  }
  const input = [{ role: 'user', content: [{ type: 'input_video', video_url: inline }] }]
  const response = await gateway.post('/v1/responses', { model: MODEL, input })
  expect([response.status, await response.json()]).toMatchObject([
    400,
    { error: { param: 'input[0].content[0].type' } },
  ])
  expect(upstream.seen).toEqual([])
})

// Goal: the base64 of a long video is no text, so that it has the room that pictures have.
test('long', async () => {
  const options = { limits: { bodyBytesMax: 12_582_912 } }
  await using gateway = await startGateway([target(upstream.url, { content: ['video'] })], options)
  const long = `data:video/mp4;base64,${'A'.repeat(6 * 1_048_576)}`
  expect((await gateway.chat(ask(video(long)))).status).toBe(200)
  expect(JSON.stringify(upstream.seen.at(-1)?.body.messages) === JSON.stringify(ask(video(long)).messages)).toBe(true)
})
