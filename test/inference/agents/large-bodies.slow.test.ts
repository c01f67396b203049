// Bodies of up to 32 MiB with pictures and documents, through the gateway to an upstream.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { postEncrypted } from '../../../scripts/rigs/gateway/encrypted-client.ts'
import { KEY, MODEL, startGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import {
  sendJson,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'

const mib = 1_048_576
const limits = {
  bodyBytesMax: 32 * mib,
  bodyTimeoutMs: 60_000,
  firstByteTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
}

let undo: AsyncDisposableStack
let upstream: TestUpstream
let gateway: TestGateway
beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
  gateway = undo.use(await startGateway([target(upstream.url, { content: ['image', 'file'] })], { limits }))
})
afterEach(() => undo.disposeAsync())

/** Base64 of so many mebibytes, another one for each seed. */
const contentOf = (size: number, seed = 'QUJD') => seed.repeat((size * mib) / 4)
/** 20 MiB in one API. In the others, which differ in the form of the request, just more than text may have. */
const [large, enough] = [
  { picture: contentOf(12), scan: contentOf(8, 'REVG') },
  { picture: contentOf(3), scan: contentOf(2, 'REVG') },
]

const ASKED = [
  [
    '/v1/chat/completions',
    {
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image_url: { url: `data:image/png;base64,${large.picture}` } },
            { type: 'file', file: { file_data: `data:application/pdf;base64,${large.scan}`, filename: 'a.pdf' } },
          ],
        },
      ],
    },
    large,
  ],
  [
    '/v1/responses',
    {
      input: [
        {
          role: 'user',
          content: [
            { type: 'input_image', image_url: `data:image/png;base64,${enough.picture}` },
            { type: 'input_file', file_data: `data:application/pdf;base64,${enough.scan}`, filename: 'a.pdf' },
          ],
        },
      ],
    },
    enough,
  ],
  [
    '/v1/messages',
    {
      max_tokens: 5,
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: enough.picture } },
            { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: enough.scan } },
          ],
        },
      ],
    },
    enough,
  ],
] as const

function partsSeen(): unknown {
  const [message] = (upstream.seen.at(-1)?.body.messages ?? []) as { content: unknown }[]
  return message?.content
}

/** Without a difference of megabytes in the output. */
function expectPicturesSeen({ picture, scan }: typeof large): void {
  const [image, file] = partsSeen() as [{ image_url: { url: string } }, { file: { file_data: string } }]
  expect(image.image_url.url === `data:image/png;base64,${picture}`).toBe(true)
  expect(file.file.file_data === `data:application/pdf;base64,${scan}`).toBe(true)
}

// Goal: large contents reach the upstream as they are, in every API, plain and encrypted; tokens are bounded and
// reserved by the text alone.
test.each(ASKED)(
  '%s',
  async (path, fields, sizes) => {
    const body = { model: MODEL, ...fields }
    expect((await gateway.post(path, body)).status).toBe(200)
    expectPicturesSeen(sizes)
    upstream.seen.length = 0
    const encrypted = await postEncrypted(gateway, path, body)
    expect([encrypted.response.status, (await encrypted.text()).length > 0]).toEqual([200, true])
    expectPicturesSeen(sizes)
    expect((await gateway.records()).map(({ outcome }) => outcome)).toEqual(['completed', 'completed'])
  },
  120_000,
)

// Goal: nobody pays less by sending a document instead of its text: the upstream's count is believed up to the bytes
// that were sent, and without a count each part is estimated.
test('what is counted', async () => {
  const [path, fields] = ASKED[0]
  const choices = [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'x' } }]
  const counted = async (usage: object) => {
    upstream.behave = response => sendJson(response, 200, { choices, ...usage })
    expect((await gateway.post(path, { model: MODEL, ...fields })).status).toBe(200)
    return (await gateway.records()).at(-1)
  }
  const estimated = await counted({})
  expect(estimated?.tokensSource).toBe('estimated')
  expect(estimated?.tokens.prompt).toBeGreaterThan(3_200)
  expect(estimated?.tokens.prompt).toBeLessThan(4_000)
  // Last: it takes the whole minute's tokens.
  expect(await counted({ usage: { prompt_tokens: 15_000_000, completion_tokens: 1 } })).toMatchObject({
    tokens: { prompt: 15_000_000 },
    tokensSource: 'reported',
  })
}, 60_000)

// Goal: a picture does not become text that is kept for later turns; what was said to it can be named.
test('a response to a large body', async () => {
  const [path, fields] = ASKED[1]
  const answer = await gateway.post(path, { model: MODEL, ...fields })
  const { id, output } = (await answer.json()) as { id: string; output: { id: string }[] }
  const next = await gateway.post(path, { model: MODEL, previous_response_id: id, input: 'and?' })
  expect([next.status, await next.json()]).toMatchObject([404, { error: { param: 'previous_response_id' } }])
  const reference = { type: 'item_reference', id: output[0]?.id }
  expect(
    (await gateway.post(path, { model: MODEL, input: [reference, { role: 'user', content: 'and?' }] })).status,
  ).toBe(200)
}, 60_000)

// Goal: pictures are counted as pictures.
test('count_tokens', async () => {
  const [, fields] = ASKED[2]
  const answer = await gateway.post('/v1/messages/count_tokens', { model: MODEL, ...fields })
  const { input_tokens: count } = (await answer.json()) as { input_tokens: number }
  expect(count).toBeGreaterThan(3_000)
  expect(count).toBeLessThan(4_000)
}, 60_000)

// Goal: everything else is refused with the reason, and nothing of it goes up.
test('refusals', async () => {
  const [path] = ASKED[0]
  const chat = (content: unknown, more = {}) => ({ model: MODEL, messages: [{ role: 'user', content }], ...more })
  const errorOf = async (answer: Response) => [
    answer.status,
    ((await answer.json()) as { error: { message: string } }).error.message,
  ]
  const text = await gateway.post(path, chat('x'.repeat(5 * mib)))
  expect(await errorOf(text)).toMatchObject([413, expect.stringContaining('4194304 bytes without the base64')])
  const hidden = await gateway.post(path, chat('x', { unknown: { data: contentOf(5) } }))
  expect(await errorOf(hidden)).toMatchObject([400, expect.stringContaining('stands in a field that has no effect')])
  const tooLarge = await gateway.post(path, chat('x', { unknown: { data: contentOf(33) } }))
  expect(await errorOf(tooLarge)).toMatchObject([413, expect.stringContaining('33554432 bytes')])
  const vectors = await gateway.post('/v1/embeddings', { model: MODEL, input: 'x'.repeat(5 * mib) })
  expect(await errorOf(vectors)).toMatchObject([413, expect.stringContaining('4194304 bytes')])
  const bytes = new TextEncoder().encode(JSON.stringify(chat('x', { unknown: { data: contentOf(5) } })))
  const chunked = await fetch(gateway.url + path, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: new ReadableStream({
      start: controller => {
        controller.enqueue(bytes)
        controller.close()
      },
    }),
  })
  expect(await errorOf(chunked)).toMatchObject([413, expect.stringContaining('4194304 bytes')])
  expect(upstream.seen).toEqual([])
}, 60_000)

// Goal: an organization's large bodies take half of the memory for them; small requests go on meanwhile, and the room
// is free again once an upstream has answered, though its stream goes on.
test('room', async () => {
  const [path] = ASKED[0]
  const ask = () => {
    const part = { type: 'image_url', image_url: { url: `data:image/png;base64,${contentOf(24)}` } }
    return gateway.post(path, { model: MODEL, messages: [{ role: 'user', content: [part] }] })
  }
  const going = Promise.withResolvers<void>()
  upstream.behave = async (response, seen, gone) => {
    if (JSON.stringify(seen.body).length > mib) await going.promise
    await wellBehaved(response, seen, gone)
  }
  const first = [ask(), ask()]
  await until('two are at the upstream', 60_000, () => upstream.active() === 2)
  const third = await ask()
  expect(third.status).toBe(429)
  expect(third.headers.get('retry-after')).toBe('5')
  expect(await third.text()).toContain('hold all memory for large bodies')
  expect((await gateway.chat()).status).toBe(200)
  going.resolve()
  expect((await Promise.all(first)).map(({ status }) => status)).toEqual([200, 200])
  expect((await ask()).status).toBe(200)
}, 120_000)

// Goal: a stranger is refused before the body is read, whatever length it names.
test('a stranger', async () => {
  const { hostname: host, port, protocol } = new URL(gateway.url)
  const at = { host, port: Number(port) }
  const socket = protocol === 'https:' ? connectTls({ ...at, servername: 'localhost' }) : connect(at)
  undo.defer(() => void socket.destroy())
  const answer = Promise.withResolvers<string>()
  socket.once('data', (bytes: Buffer) => answer.resolve(bytes.toString()))
  socket.write(
    `POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: wrong\r\ncontent-type: application/json\r\ncontent-length: ${30 * mib}\r\n\r\n{`,
  )
  expect(await answer.promise).toStartWith('HTTP/1.1 401')
}, 60_000)
