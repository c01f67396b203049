// Messages as every chat template takes them: instructions in front, and no neighbours of one role.

import { describe, expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { readCompletion } from '../../../../src/inference/gateway/bodies/read-body.ts'
import { readSource } from '../../../../src/inference/openai/request.ts'

type Operation = Parameters<typeof readCompletion>[0]

function read(operation: Operation, body: string) {
  return readCompletion(operation, readSource(utf8(body)), { earlier: null, hasLabels: false })
}

/** The messages that an engine gets, and whether they are said to be joined. */
function sent(operation: Operation, body: unknown) {
  const { source } = read(operation, JSON.stringify(body))
  const { messages } = JSON.parse(source.text)
  expect(source.body.messages).toEqual(messages)
  return { messages, isJoined: source.changes.includes('messages.joined') }
}

const user = (content: unknown) => ({ role: 'user', content })
const assistant = (content: unknown, more: object = {}) => ({ role: 'assistant', content, ...more })
const system = (content: unknown) => ({ role: 'system', content })
const developer = (content: unknown) => ({ role: 'developer', content })
const part = (text: string) => ({ type: 'text', text })
const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }
const call = (id: string) => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })
const result = (id: string) => ({ role: 'tool', tool_call_id: id, content: 'x' })

describe('the first request', () => {
  // Goal: the instructions of each agent are one system message in front, whole and in order.
  test('of Claude Code', () => {
    const body = {
      model: 'm',
      max_tokens: 32_000,
      stream: true,
      system: [
        { type: 'text', text: 'You are a Claude agent' },
        { type: 'text', text: 'Rules.' },
      ],
      messages: [
        { role: 'user', content: [{ type: 'text', text: 'say hi' }] },
        { role: 'system', content: [{ type: 'text', text: '# Environment' }] },
      ],
      thinking: { type: 'adaptive' },
      output_config: { effort: 'high' },
    }
    expect(sent('messages', body)).toEqual({
      messages: [system('You are a Claude agent\n\nRules.\n\n# Environment'), user('say hi')],
      isJoined: true,
    })
  })

  // Goal: developer messages and instructions are one message, and so are the user's.
  test('of Codex', () => {
    const item = (role: string, text: string) => ({
      type: 'message',
      role,
      content: [{ type: 'input_text', text }],
    })
    const body = {
      model: 'm',
      stream: true,
      store: false,
      instructions: 'Base.',
      input: [
        item('developer', 'You are a coding agent'),
        item('developer', '<skills_instructions>'),
        item('user', '<environment_context>'),
        item('user', 'say hi'),
      ],
    }
    expect(sent('responses', body)).toEqual({
      messages: [
        system('Base.\n\nYou are a coding agent\n\n<skills_instructions>'),
        user('<environment_context>\n\nsay hi'),
      ],
      isJoined: true,
    })
  })
})

describe('messages of a chat', () => {
  // Goal: every order becomes one that templates take, and no text, call or picture is lost.
  test.each<[given: unknown[], joined: unknown[]]>([
    [
      [developer('a'), user('b')],
      [system('a'), user('b')],
    ],
    [
      [user('a'), developer('b')],
      [system('b'), user('a')],
    ],
    [
      [system('a'), user('b'), system([part('c'), part('d')]), user('e')],
      [system('a\n\nc\n\nd'), user('b\n\ne')],
    ],
    [
      [system(''), system(''), user('a')],
      [system(''), user('a')],
    ],
    [[user('a'), user([part('b'), image])], [user([part('a'), part('b'), image])]],
    [
      [
        user('a'),
        assistant(null, { tool_calls: [call('c')], reasoning_content: 'r' }),
        assistant('d', { tool_calls: [call('e')], reasoning_content: 's' }),
        result('c'),
        result('e'),
        system('f'),
        user('g'),
      ],
      [
        system('f'),
        user('a'),
        assistant('d', { tool_calls: [call('c'), call('e')], reasoning_content: 'r\n\ns' }),
        result('c'),
        result('e'),
        user('g'),
      ],
    ],
    [
      [user('a'), assistant(null, { tool_calls: [call('c')] }), assistant(null)],
      [user('a'), assistant(null, { tool_calls: [call('c')] })],
    ],
  ])('%j', (messages, joined) => {
    expect(sent('chat', { model: 'm', messages })).toEqual({ messages: joined, isJoined: true })
  })

  // Goal: a request that every template takes goes up as its client wrote it.
  test.each([
    [[system('a'), user('b'), assistant('c'), user('d')]],
    [[user([part('a'), part('b')]), assistant(null, { tool_calls: [call('c'), call('d')] }), result('c'), result('d')]],
    [[system([part('a'), part('b')]), user('c')]],
  ])('%j stay as they are', messages => {
    const text = `{ "model":"m","messages": ${JSON.stringify(messages)},"seed":9007199254740993}`
    const { text: sentText, changes } = read('chat', text).source
    expect({ sentText, changes }).toEqual({ sentText: text, changes: [] })
  })

  // Goal: numbers that no double holds stay as written, in fields and in messages that are not joined.
  test('keep long numbers', () => {
    const kept = '{"role":"assistant", "content":"a","x":9007199254740993}'
    const text = `{"seed":9007199254740993,"messages":[{"role":"user","content":"b"},${kept},{"role":"developer","content":"c"}],"model":"m"}`
    expect(read('chat', text).source.text).toBe(
      `{"seed":9007199254740993,"messages":[{"role":"system","content":"c"},{"role":"user","content":"b"},${kept}],"model":"m"}`,
    )
  })

  // Goal: a joined message keeps the long numbers of its calls.
  test('keep long numbers in calls of another API', () => {
    const use = '{"type":"tool_use","id":"c","name":"f","input":{"id":9007199254740993}}'
    const text = `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[${use}]},{"role":"assistant","content":"b"}]}`
    expect(JSON.parse(read('messages', text).source.text).messages[1]).toMatchObject({
      content: 'b',
      tool_calls: [{ function: { arguments: '{"id":9007199254740993}' } }],
    })
  })

  // Goal: as many messages as a body may have are joined in linear time, and overflow no stack.
  test('as many as a body holds', () => {
    const messages = Array.from({ length: 16_000 }, (_, at) => (at % 2 === 0 ? user('a') : developer('b')))
    const { messages: joined } = sent('chat', { model: 'm', messages })
    expect(joined.map((message: { role: string; content: string }) => [message.role, message.content.length])).toEqual([
      ['system', 8_000 * 3 - 2],
      ['user', 8_000 * 3 - 2],
    ])
  })
})

// Goal: a request without messages is not changed.
test('texts to complete have no messages', () => {
  const text = '{"model":"m","prompt":"a","messages":[{"role":"developer","content":"b"}]}'
  expect(read('text_completion', text).source.text).toBe(text)
})
