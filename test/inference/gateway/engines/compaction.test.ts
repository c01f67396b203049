// Compaction over HTTP: both ways to ask for it, small and large, and what a later request makes of the summary.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { MODEL, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { startUpstream, type TestUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'

let undo: AsyncDisposableStack
let upstream: TestUpstream

beforeEach(async () => {
  undo = new AsyncDisposableStack()
  upstream = await startUpstream()
  undo.defer(upstream.stop)
})

afterEach(() => undo.disposeAsync())

const trigger = { type: 'compaction_trigger' }
const user = (text: string) => ({ type: 'message', role: 'user', content: [{ type: 'input_text', text }] })
const sealed = 'strongroom.summary:Grüße 👋 you'
const summary = 'Summary of the conversation up to here:\n\nGrüße 👋 you'

type Compacted = { id: string; object: string; output: { id: string; type: string; encrypted_content: string }[] }

const sent = () => upstream.seen.at(-1)?.body.messages as { role: string; content: string }[]

// Goal: in both ways the model sums up the whole input, and the client gets one item, which it sends later.
test.each([
  ['/v1/responses', [trigger], 'response'],
  ['/v1/responses/compact', [], 'response.compaction'],
] as const)('by %s', async (path, end, object) => {
  const gateway = undo.use(await startGateway([target(upstream.url)], { limits: { bodyBytesMax: 8_388_608 } }))
  for (const text of ['Hi', 'y'.repeat(200_000)]) {
    const answer = await gateway.post(path, { model: MODEL, input: [user(text), ...end] })
    const { output, object: kind } = (await answer.json()) as Compacted
    expect([answer.status, kind, output.length, output[0]?.id.slice(0, 4)]).toEqual([200, object, 1, 'cmp_'])
    expect(output[0]).toMatchObject({ type: 'compaction', encrypted_content: sealed })
    expect(String(sent()[0]?.content)).toStartWith(`${text}\n\nWrite a summary of this conversation`)
    const next = await gateway.post('/v1/responses', { model: MODEL, input: [...output, user('go on')] })
    expect([next.status, next.headers.get('x-strongroom-ignored')]).toEqual([200, 'messages.joined'])
    expect(sent()).toEqual([{ role: 'user', content: `${summary}\n\ngo on` }])
  }
})

// Goal: a stream has the item once, and ends as complete, as Codex demands.
test('as a stream', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)]))
  const answer = await gateway.post('/v1/responses', { model: MODEL, stream: true, input: [user('Hi'), trigger] })
  const text = await answer.text()
  const done = text.match(/^event: response\.output_item\.done\ndata: (.*)$/gm) ?? []
  expect([done.length, done[0]?.includes(`"encrypted_content":"${sealed}"`)]).toEqual([1, true])
  expect(text).toContain('event: response.completed\n')
  expect(text).not.toContain('output_text')
})

// Goal: a response that builds on a compaction by its id has the summary alone.
test('by the id of the response', async () => {
  const gateway = undo.use(await startGateway([target(upstream.url)]))
  const first = await gateway.post('/v1/responses', { model: MODEL, input: [user('long story'), trigger] })
  const { id } = (await first.json()) as Compacted
  const next = await gateway.post('/v1/responses', { model: MODEL, previous_response_id: id, input: 'go on' })
  expect(next.status).toBe(200)
  expect(sent()).toEqual([{ role: 'user', content: `${summary}\n\ngo on` }])
})
