// Compaction: the model's summary becomes an item that the client keeps, and that is read again later.

import { expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { parseDialect } from '../../../../src/inference/dialects/request.ts'
import { compactDialect, responsesDialect } from '../../../../src/inference/dialects/responses/dialect.ts'
import { readSource } from '../../../../src/inference/openai/request.ts'
import { namedEventsOf } from '../../../rigs/dialects/apis.ts'
import { translated } from '../../../rigs/dialects/requests.ts'

const hi = { role: 'user', content: 'Hi' }
const trigger = { type: 'compaction_trigger' }
const tool = { type: 'function', name: 'exec', parameters: { type: 'object' } }
const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }
const body = {
  model: 'm',
  input: [hi, { type: 'function_call', call_id: 'c', name: 'exec', arguments: '{}' }, trigger],
  tools: [tool],
  tool_choice: 'auto',
  parallel_tool_calls: true,
  text: { format: { type: 'json_object' } },
}

type Item = { type: string; encrypted_content?: string; id?: string }
type Answer = { status: string; output: Item[] }

/** The whole response, and the events of the same as a stream. */
function compacted(pieces: readonly string[], finish = 'stop') {
  const { traits } = parseDialect(responsesDialect, readSource(utf8(JSON.stringify(body))))
  const head = { id: '0a', createdS: 7, model: 'm', keep: null }
  const message = { role: 'assistant', reasoning_content: 'thoughts', content: pieces.join('') }
  const choices = [{ index: 0, message, finish_reason: finish }]
  const whole = () => JSON.parse(responsesDialect.respond(traits, head).whole({ choices }, usage)) as Answer
  const events = () => {
    const stream = responsesDialect.respond(traits, head).openStream({ keptCharsMax: 10_000, obfuscate: null })
    const chunk = (delta: unknown, reason: string | null) =>
      JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }] })
    const texts = [stream.push(chunk({ reasoning_content: 'thoughts' }, null))]
    texts.push(...pieces.map(content => stream.push(chunk({ content }, null))), stream.push(chunk({}, finish)))
    texts.push(stream.finish(usage))
    return namedEventsOf(texts.join('')) as { type: string; item?: Item; response?: Answer; sequence_number: number }[]
  }
  return { whole, events }
}

const item = { id: 'cmp_0a000', type: 'compaction', encrypted_content: 'strongroom.summary:All is done.' }

// Goal: the model is asked for a text, after the whole conversation, and is offered no tools.
test('the request', () => {
  const outcome = translated(responsesDialect, body)
  expect(outcome).toMatchObject({ ignored: [], chat: { model: 'm' } })
  const { chat } = outcome as { chat: { messages: { role: string; content: unknown }[] } }
  expect(Object.keys(chat)).toEqual(['model', 'messages'])
  expect(chat.messages.map(message => message.role)).toEqual(['user', 'assistant', 'user'])
  expect(chat.messages.at(-1)?.content).toStartWith('Write a summary of this conversation')
})

// Goal: Codex wants exactly one item of compaction, in an event and in the response.
test('the response', () => {
  const { whole, events } = compacted(['All is', ' done.'])
  expect(whole()).toMatchObject({ status: 'completed', output: [item] })
  const all = events()
  expect(all.map(event => event.type)).toEqual([
    ...['response.created', 'response.in_progress'],
    ...['response.output_item.added', 'response.output_item.done', 'response.completed'],
  ])
  expect(all.map(event => event.sequence_number)).toEqual([0, 1, 2, 3, 4])
  expect([all[2]?.item, all[3]?.item, all[4]?.response?.output]).toEqual([item, item, [item]])
})

// Goal: a client that has a time limit between events sees that a long summary goes on.
test('a long summary', () => {
  const all = compacted(Array.from({ length: 400 }, () => 'word '))
    .events()
    .map(event => event.type)
  expect(all.filter(type => type === 'response.in_progress').length).toBeGreaterThan(2)
  expect(all.slice(-3)).toEqual(['response.output_item.added', 'response.output_item.done', 'response.completed'])
})

// Goal: no client replaces its conversation by nothing; a summary that was cut off is marked.
test('a summary that is not whole', () => {
  const empty = compacted([' \n'])
  expect(empty.whole).toThrow('did not complete the summary')
  expect(empty.events).toThrow('did not complete the summary')
  const cut = compacted(['All is'], 'length')
  expect(cut.whole()).toMatchObject({ status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } })
  expect(cut.events().at(-1)?.type).toBe('response.incomplete')
})

// Goal: the item is a message of later requests; those of other servers, and spent triggers, are left out and named.
test('later requests', () => {
  const summary = { role: 'user', content: 'Summary of the conversation up to here:\n\nAll is done.' }
  for (const type of ['compaction', 'compaction_summary']) {
    expect(translated(responsesDialect, { model: 'm', input: [{ ...item, type }, hi] })).toEqual({
      chat: { model: 'm', messages: [summary, hi] },
      ignored: [],
    })
    expect(translated(responsesDialect, { model: 'm', input: [{ type, encrypted_content: 'gAAAAB' }, hi] })).toEqual({
      chat: { model: 'm', messages: [hi] },
      ignored: [`input.${type}`],
    })
  }
  expect(translated(responsesDialect, { model: 'm', input: [trigger, hi] })).toEqual({
    chat: { model: 'm', messages: [hi] },
    ignored: ['input.compaction_trigger'],
  })
})

// Goal: the endpoint of older versions of Codex gives the same item in OpenAI's form, and no half of a summary.
test('the endpoint for compactions', () => {
  const { traits, source } = parseDialect(compactDialect, readSource(utf8('{"model":"m","input":"Hi","stream":true}')))
  expect(JSON.parse(source.text).messages.map((message: { role: string }) => message.role)).toEqual(['user', 'user'])
  const { whole } = compactDialect.respond(traits, { id: '0a', createdS: 7, model: 'm', keep: null })
  const choices = (finish: string) => [{ index: 0, message: { content: 'All is done.' }, finish_reason: finish }]
  expect(JSON.parse(whole({ choices: choices('stop') }, usage))).toEqual({
    id: 'resp_0a',
    object: 'response.compaction',
    created_at: 7,
    output: [item],
    usage: expect.objectContaining({ input_tokens: 1, output_tokens: 2, total_tokens: 3 }),
  })
  expect(() => whole({ choices: choices('length') }, usage)).toThrow('did not complete the summary')
  expect(translated(compactDialect, { model: 'm', input: 5 })).toMatchObject({ param: 'input' })
})
