// No body, however large and of whatever content, holds the event loop of the gateway for long.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { KEY, MODEL } from '../../../scripts/rigs/gateway/server.ts'
import { sealRequest } from '../../../src/attest/ehbp/seal-request.ts'
import type { AgreementKeys } from '../../../src/attest/receipt/kem.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'

const turnMsMax = 20
/** Others work on this machine, too: what a step costs at least is in every round. */
const roundsMax = 8
const mib = 1_048_576

type Program = { readonly url: string; readonly figures: string; readonly keys: AgreementKeys }

let undo = new AsyncDisposableStack()
let program: Program

beforeAll(async () => {
  undo = new AsyncDisposableStack()
  // The upstream answers all requests the same, and does not parse their bodies.
  const completion = JSON.stringify({
    choices: [{ index: 0, finish_reason: 'stop', text: 'x', message: { role: 'assistant', content: 'x' } }],
    data: [{ index: 0, embedding: [1, 2] }],
    usage: { prompt_tokens: 11, completion_tokens: 3, total_tokens: 14 },
  })
  const upstream = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    maxRequestBodySize: 64 * mib,
    fetch: async request => {
      await request.arrayBuffer()
      return new Response(completion, { headers: { 'content-type': 'application/json' } })
    },
  })
  undo.defer(() => upstream.stop(true))
  const child = Bun.spawn(
    [
      process.execPath,
      `${import.meta.dir}/../../rigs/gateway/turns-program.ts`,
      `http://127.0.0.1:${upstream.port}/v1`,
    ],
    { stdout: 'pipe', stderr: 'inherit' },
  )
  undo.defer(async () => {
    child.kill()
    await child.exited
  })
  const { value } = await child.stdout.getReader().read()
  const { url, figures, keys } = JSON.parse(Buffer.from(value ?? new Uint8Array(0)).toString())
  const bytesOf = (hex: string) => fromHex(hex) ?? new Uint8Array(0)
  program = { url, figures, keys: { x25519: bytesOf(keys.x25519), mlkem768: bytesOf(keys.mlkem768) } }
}, 60_000)
afterAll(() => undo.disposeAsync())

type Body = {
  readonly path: string
  readonly text: string
  readonly headers?: Record<string, string>
  /** Status of the response. Default: 200. */
  readonly status?: number
}

type Sent = { readonly body: string | Uint8Array; readonly headers: Record<string, string> }

/** The longest turn of the least of some rounds, each with three such bodies of one key at a time. */
async function longestTurnMs(
  next: () => Sent | Promise<Sent>,
  { path, status = 200 }: Pick<Body, 'path' | 'status'>,
): Promise<number> {
  let leastMs = Number.POSITIVE_INFINITY
  for (let round = 0; round < roundsMax && leastMs >= turnMsMax; round += 1) {
    const all = [await next(), await next(), await next()]
    await (await fetch(program.figures)).json()
    const posts = Promise.all(
      all.map(async ({ body, headers }) => {
        const answer = await fetch(program.url + path, {
          method: 'POST',
          body: body as Uint8Array<ArrayBuffer>,
          headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json', ...headers },
        })
        await answer.text()
        return answer.status
      }),
    )
    let isOver = false
    const over = posts.finally(() => {
      isOver = true
    })
    while (!isOver) expect((await fetch(`${program.url}/health`)).status).toBe(200)
    // The gateway may have room for two bodies with pictures at a time.
    const seen = new Set(await over)
    if (all.some(({ body }) => body.length > 4 * mib)) seen.delete(429)
    expect([...seen]).toEqual([status])
    leastMs = Math.min(leastMs, Number(await (await fetch(program.figures)).json()))
  }
  return leastMs
}

const chat = '/v1/chat/completions'
const textBytes = 4_190_000
const unitsOf = (unit: string, bytes = textBytes) => unit.repeat(Math.floor(bytes / Buffer.byteLength(unit)))
const listOf = (count: number, item: (at: number) => string) =>
  `[${Array.from({ length: count }, (_, at) => item(at))}]`
const chatOf = (fields: string) => `{"model":"${MODEL}",${fields}}`
const vectorsOf = (input: string) => `{"model":"vectors","input":${input}}`
const saying = (content: string) => chatOf(`"messages":[{"role":"user","content":"${content}"}]`)
const beside = (fields: string) => chatOf(`"messages":[{"role":"user","content":"x"}],${fields}`)
const picture = `data:image/png;base64,${'QUJD'.repeat((30 * mib) / 4)}`
const x = 'x'.repeat(220)
const properties = `{${Array.from({ length: 110 }, (_, at) => `"p${at}":{"type":"${'x'.repeat(100)}"}`)}}`
const toolOf = (at: number) =>
  `{"type":"function","function":{"name":"f${at}","parameters":{"maxLength":999999999,"properties":${properties}}}}`

const BODIES: [name: string, body: () => Body][] = [
  ['a text', () => ({ path: chat, text: saying(unitsOf('abcdefgh')) })],
  ['a text of two scripts', () => ({ path: chat, text: saying(`日本${unitsOf('abcdefgh')}`) })],
  ['a text of four bytes a character', () => ({ path: chat, text: saying(unitsOf('😀')) })],
  ['escapes', () => ({ path: chat, text: saying(unitsOf('abcd\\"')) })],
  ['escaped surrogates', () => ({ path: chat, text: saying(unitsOf('\\ud83d\\ude00')) })],
  ['backslashes', () => ({ status: 400, path: chat, text: saying(unitsOf('\\\\')) })],
  [
    'messages',
    () => ({ path: chat, text: chatOf(`"messages":${listOf(16_000, () => `{"role":"user","content":"${x}"}`)}`) }),
  ],
  ['tools', () => ({ path: chat, text: beside(`"tools":${listOf(140, toolOf)}`) })],
  ['numbers', () => ({ path: chat, text: beside(`"metadata":${listOf(262_000, () => '12345678.123456')}`) })],
  ['texts that differ', () => ({ path: chat, text: beside(`"metadata":${listOf(260_000, at => `"abcd${at}"`)}`) })],
  [
    'nested lists',
    () => ({ path: chat, text: beside(`"x":${listOf(2_500, () => '['.repeat(100) + ']'.repeat(100))}`) }),
  ],
  ['empty lists', () => ({ status: 400, path: chat, text: beside(`"x":${listOf(1_390_000, () => '[]')}`) })],
  [
    'names',
    () => ({
      path: chat,
      text: beside(Array.from({ length: 30_000 }, (_, at) => `"n${at}":"${x.slice(100)}"`).join(',')),
    }),
  ],
  [
    'labels',
    () => ({ path: chat, text: beside(`"metadata":{${Array.from({ length: 32_000 }, (_, at) => `"n${at}":"y"`)}}`) }),
  ],
  [
    'white space',
    () => ({ path: chat, text: chatOf(`${' '.repeat(textBytes)}"messages":[{"role":"user","content":"x"}]`) }),
  ],
  [
    'a strict schema',
    () => ({
      status: 400,
      path: chat,
      text: beside(
        `"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"enum":${listOf(200_000, String)}}}}`,
      ),
    }),
  ],
  [
    'a picture',
    () => ({
      path: chat,
      text: chatOf(`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"${picture}"}}]}]`),
    }),
  ],
  [
    'a picture with a receipt',
    () => ({
      path: chat,
      headers: { 'x-strongroom-receipt': '1' },
      text: chatOf(`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"${picture}"}}]}]`),
    }),
  ],
  [
    'many pictures',
    () => ({
      path: chat,
      text: chatOf(
        `"messages":[{"role":"user","content":${listOf(2_800, () => `{"type":"image_url","image_url":{"url":"data:image/png;base64,${'QUJD'.repeat(2_500)}"}}`)}}]`,
      ),
    }),
  ],
  ['32 MiB that are too much', () => ({ status: 413, path: chat, text: saying('\\"'.repeat(15 * mib)) })],
  ['small lists', () => ({ path: chat, text: beside(`"x":${listOf(43_000, () => '[]')}`) })],
  ['small texts that differ', () => ({ path: chat, text: beside(`"metadata":${listOf(13_000, at => `"${at}"`)}`) })],
  ['small escapes', () => ({ path: '/v1/responses', text: chatOf(`"input":"日${unitsOf('\\"', 130_000)}"`) })],
  ['a prompt of tokens', () => ({ path: '/v1/completions', text: chatOf(`"prompt":${listOf(260_000, String)}`) })],
  ['responses: a text', () => ({ path: '/v1/responses', text: chatOf(`"input":"${unitsOf('abcd\\"')}"`) })],
  [
    'responses: items',
    () => ({
      path: '/v1/responses',
      text: chatOf(`"input":${listOf(10_000, () => `{"role":"user","content":"日${x}"}`)}`),
    }),
  ],
  ['responses: text to keep', () => ({ path: '/v1/responses', text: chatOf(`"input":"${'x'.repeat(1_000_000)}"`) })],
  [
    'responses: ids of 17 digits',
    () => ({
      status: 400,
      path: '/v1/responses',
      text: chatOf(`"input":"x","metadata":${listOf(200_000, () => '12345678901234567')}`),
    }),
  ],
  [
    'messages: blocks',
    () => ({
      path: '/v1/messages',
      text: chatOf(
        `"max_tokens":5,"messages":[{"role":"user","content":${listOf(16_000, () => `{"type":"text","text":"日${x}"}`)}}]`,
      ),
    }),
  ],
  [
    'messages: calls',
    () => ({
      path: '/v1/messages',
      text: chatOf(
        `"max_tokens":5,"messages":[{"role":"assistant","content":${listOf(5_000, at => `{"type":"tool_use","id":"t${at}","name":"f","input":{"a":"${x}\\n"}}`)}}]`,
      ),
    }),
  ],
  [
    'count of tokens',
    () => ({
      path: '/v1/messages/count_tokens',
      text: chatOf(`"messages":[{"role":"user","content":"${unitsOf('abcd\\"')}"}]`),
    }),
  ],
  ['embeddings: a text', () => ({ path: '/v1/embeddings', text: vectorsOf(`"${unitsOf('日本')}"`) })],
  ['embeddings: tokens', () => ({ path: '/v1/embeddings', text: vectorsOf(listOf(260_000, String)) })],
]

// Goal: three such bodies of one key at a time take no turn of 20 ms of the processor. Other clients are answered
// meanwhile.
test.each(BODIES)(
  '%s',
  async (_name, body) => {
    const { text, headers = {}, ...way } = body()
    expect(await longestTurnMs(() => ({ body: text, headers }), way)).toBeLessThan(turnMsMax)
  },
  180_000,
)

// Goal: nor do encrypted ones, each in one frame. Each is sealed anew, because a gateway opens a body once.
test('an encrypted picture', async () => {
  const content = `[{"type":"image_url","image_url":{"url":"${picture}"}}]`
  const plain = utf8(chatOf(`"messages":[{"role":"user","content":${content}}]`))
  const seal = () => sealRequest({ keys: program.keys, suite: 'x25519', random: systemRandom }, plain)
  expect(await longestTurnMs(seal, { path: chat })).toBeLessThan(turnMsMax)
}, 180_000)
