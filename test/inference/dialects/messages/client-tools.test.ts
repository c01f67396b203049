// Tools of the Messages API that the client runs: by the vendor's type alone, or found by the client's own search.

import { expect, test } from 'bun:test'
import { messagesDialect } from '../../../../src/inference/dialects/messages/dialect.ts'
import { translated } from '../../../rigs/dialects/requests.ts'
import { turnOf } from '../../../rigs/dialects/turn.ts'

const base = { model: 'm', max_tokens: 50, messages: [{ role: 'user', content: 'list files' }] }

// Goal: an engine is offered each tool under its name, with the fields that the vendor's models fill in.
test.each<[type: string, name: string, fields: string[], required: string[]]>([
  ['bash_20250124', 'bash', ['command', 'restart'], []],
  [
    'text_editor_20250728',
    'str_replace_based_edit_tool',
    ['command', 'path', 'view_range', 'file_text', 'old_str', 'new_str', 'insert_line', 'insert_text'],
    ['command', 'path'],
  ],
  [
    'text_editor_20250124',
    'str_replace_editor',
    ['command', 'path', 'view_range', 'file_text', 'old_str', 'new_str', 'insert_line'],
    ['command', 'path'],
  ],
  [
    'memory_20250818',
    'memory',
    [
      ...['command', 'path', 'view_range', 'file_text', 'old_str', 'new_str', 'insert_line', 'insert_text'],
      ...['old_path', 'new_path'],
    ],
    ['command'],
  ],
  [
    'computer_20251124',
    'computer',
    [
      ...['action', 'coordinate', 'start_coordinate', 'region', 'text', 'scroll_direction', 'scroll_amount'],
      ...['duration'],
    ],
    ['action'],
  ],
])('%s', (type, name, fields, required) => {
  const { chat, ignored, respond } = turnOf(messagesDialect, {
    ...base,
    tools: [{ type, name, display_width_px: 1024, display_height_px: 768, cache_control: { type: 'ephemeral' } }],
    tool_choice: { type: 'tool', name },
  })
  expect(ignored).toEqual([])
  const [tool] = chat.tools as unknown as [{ function: { parameters: { properties: object; required: string[] } } }]
  expect(tool).toMatchObject({ type: 'function', function: { name, description: expect.any(String) } })
  expect(Object.keys(tool.function.parameters.properties)).toEqual(fields)
  expect(tool.function.parameters.required).toEqual(required)
  const { whole, events } = respond([{ id: 'c', name, args: '{"command":"ls"}' }])
  expect(whole.content).toEqual([{ type: 'tool_use', id: 'c', name, input: { command: 'ls' } }])
  expect(events.find(event => event.type === 'content_block_start')).toMatchObject({
    content_block: { type: 'tool_use', id: 'c', name },
  })
})

// Goal: the model of a computer hears how large the screen is, and the editor can undo only where it is old.
test('what tools differ in', () => {
  const described = (tool: object) => JSON.stringify(turnOf(messagesDialect, { ...base, tools: [tool] }).chat.tools)
  expect(
    described({ type: 'computer_20250124', name: 'computer', display_width_px: 1024, display_height_px: 768 }),
  ).toContain('The screen has 1024 x 768 pixels.')
  expect(described({ type: 'text_editor_20241022', name: 'str_replace_editor' })).toContain('undo_edit')
  expect(described({ type: 'text_editor_20250429', name: 'str_replace_based_edit_tool' })).not.toContain('undo_edit')
})

// Goal: a client that searches its tools by itself, as Claude Code does, goes on with what it has found.
test('a tool reference', () => {
  const tool = { name: 'mcp__demo__lookup', description: 'd', input_schema: { type: 'object' }, defer_loading: true }
  const messages = (content: unknown) => [
    ...base.messages,
    { role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'ToolSearch', input: { query: 'q' } }] },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'c', content }] },
  ]
  const found = [
    { type: 'tool_reference', tool_name: 'mcp__demo__lookup' },
    { type: 'tool_reference', tool_name: 'mcp__demo__other' },
  ]
  const { chat, names } = turnOf(messagesDialect, { ...base, tools: [tool], messages: messages(found) })
  expect(names).toEqual(['mcp__demo__lookup'])
  expect(chat.messages.at(-1)).toEqual({
    role: 'tool',
    tool_call_id: 'c',
    content: [
      { type: 'text', text: 'The tool mcp__demo__lookup can be called now.' },
      { type: 'text', text: 'The tool mcp__demo__other can be called now.' },
    ],
  })
  expect(translated(messagesDialect, { ...base, messages: messages([{ type: 'tool_reference' }]) })).toMatchObject({
    param: 'messages[2].content[0].content[0].tool_name',
  })
})
