// Sessions that began on another server go on here: what it has produced keeps its text, and the rest is named.

import { expect, test } from 'bun:test'
import { messagesDialect } from '../../../src/inference/dialects/messages/dialect.ts'
import { responsesDialect } from '../../../src/inference/dialects/responses/dialect.ts'
import { translated } from '../../rigs/dialects/requests.ts'

const hi = { role: 'user', content: 'Hi' }

// Goal: no item of OpenAI's own tools, or of a compaction there, ends a session.
test.each<[item: { type: string }, text: string | null]>([
  [{ type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'q' } } as never, null],
  [{ type: 'file_search_call', queries: ['q'], results: [{ file_id: 'f', text: 'found' }] } as never, 'found'],
  [{ type: 'code_interpreter_call', code: 'print(1)', outputs: [{ type: 'logs', logs: '1' }] } as never, 'print(1)\n1'],
  [{ type: 'image_generation_call', status: 'completed', result: 'QUJD' } as never, null],
  [{ type: 'mcp_list_tools', server_label: 's', tools: [{ name: 'f' }] } as never, null],
  [{ type: 'mcp_call', name: 'f', arguments: '{}', output: 'four' } as never, 'four'],
  [{ type: 'mcp_approval_request', name: 'f', arguments: '{}' } as never, null],
  [{ type: 'compaction', encrypted_content: 'QUJD' } as never, null],
])('an item of Responses: %j', (item, text) => {
  expect(translated(responsesDialect, { model: 'm', input: [hi, item] })).toEqual({
    chat: { model: 'm', messages: text === null ? [hi] : [hi, { role: 'assistant', content: text }] },
    ignored: [`input.${item.type}`],
  })
})

// Goal: no block of Anthropic's own tools ends a session.
test.each<[block: { type: string }, text: string]>([
  [{ type: 'server_tool_use', id: 's', name: 'web_search', input: { query: 'q' } } as never, ''],
  [
    {
      type: 'web_search_tool_result',
      tool_use_id: 's',
      content: [{ type: 'web_search_result', title: 'A', url: 'https://a.example', encrypted_content: 'QUJD' }],
    } as never,
    'A\nhttps://a.example',
  ],
  [{ type: 'mcp_tool_use', id: 'm', name: 'f', server_name: 's', input: {} } as never, ''],
  [{ type: 'mcp_tool_result', tool_use_id: 'm', content: [{ type: 'text', text: 'four' }] } as never, 'four'],
  [{ type: 'container_upload', file_id: 'f' } as never, ''],
  [{ type: 'compaction', content: 'What was done.' } as never, 'What was done.'],
])('a block of Messages: %j', (block, text) => {
  const messages = [hi, { role: 'assistant', content: [block] }, hi]
  expect(translated(messagesDialect, { model: 'm', max_tokens: 5, messages })).toEqual({
    chat: { model: 'm', max_tokens: 5, messages: [hi, { role: 'assistant', content: text }, hi] },
    ignored: [`messages.${block.type}`],
  })
})
