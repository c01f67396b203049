// Tools of the Responses API beside plain functions: those of namespaces, as Codex sends each MCP
// server, and those that the client runs. The engine has functions; the client gets its own calls.

import { describe, expect, test } from 'bun:test'
import { responsesDialect } from '../../../../src/inference/dialects/responses/dialect.ts'
import { translated } from '../../../rigs/dialects/requests.ts'
import { turnOf } from '../../../rigs/dialects/turn.ts'

const parameters = { type: 'object', properties: { q: { type: 'string' } } }
const lookup = { type: 'function', name: 'lookup', description: 'd', parameters, strict: false }
const demo = { type: 'namespace', name: 'mcp__demo', description: 'A server.', tools: [lookup] }
const agents = {
  type: 'namespace',
  name: 'agents',
  description: 'd',
  tools: [
    { type: 'function', name: 'spawn', parameters },
    { type: 'custom', name: 'note', description: 'd' },
  ],
}
const search = { type: 'tool_search', execution: 'client', description: 'Find tools.', parameters }
const base = { model: 'm', input: 'Hi' }

function turn(more: object) {
  return turnOf(responsesDialect, { ...base, ...more })
}

/** Output items without their ids. */
function itemsOf(response: { output: { id: string }[] }) {
  return response.output.map(({ id: _, ...item }) => item)
}

describe('a namespace', () => {
  // Goal: an engine is offered every tool of a namespace, and the client gets namespace and name apart.
  test('is flattened for the engine, and given back', () => {
    const { chat, ignored, respond } = turn({ tools: [demo, agents, { type: 'function', name: 'plain', parameters }] })
    expect(ignored).toEqual([])
    expect(chat.tools?.[0]).toEqual({
      type: 'function',
      function: { name: 'mcp__demo__lookup', description: 'd', parameters, strict: false },
    } as never)
    expect(chat.tools?.map(tool => tool.function.name)).toEqual([
      'mcp__demo__lookup',
      'agents__spawn',
      'agents__note',
      'plain',
    ])
    const { whole, events } = respond([
      { id: 'c1', name: 'mcp__demo__lookup', args: '{"q":"x"}' },
      { id: 'c2', name: 'agents__note', args: '{"input":"hello"}' },
      { id: 'c3', name: 'plain', args: '{}' },
    ])
    const items = [
      {
        type: 'function_call',
        status: 'completed',
        call_id: 'c1',
        namespace: 'mcp__demo',
        name: 'lookup',
        arguments: '{"q":"x"}',
      },
      {
        type: 'custom_tool_call',
        status: 'completed',
        call_id: 'c2',
        namespace: 'agents',
        name: 'note',
        input: 'hello',
      },
      { type: 'function_call', status: 'completed', call_id: 'c3', name: 'plain', arguments: '{}' },
    ]
    expect(itemsOf(whole)).toEqual(items)
    expect(itemsOf((events.at(-1) as { response: { output: { id: string }[] } }).response)).toEqual(items)
    const added = events.filter(event => event.type === 'response.output_item.added')
    expect(added.map(event => event.item)).toMatchObject([
      { namespace: 'mcp__demo', name: 'lookup', arguments: '' },
      { namespace: 'agents', name: 'note', input: '' },
      { name: 'plain', arguments: '' },
    ])
    expect(events.find(event => event.type === 'response.function_call_arguments.done')).toMatchObject({
      name: 'lookup',
      arguments: '{"q":"x"}',
    })
  })

  // Goal: calls of earlier turns have the name that the engine is offered, in whichever form the client kept them.
  test('of replayed calls in either form', () => {
    const call = { type: 'function_call', call_id: 'c', arguments: '{}' }
    const { chat } = turn({
      tools: [demo],
      input: [
        { ...call, namespace: 'mcp__demo', name: 'lookup' },
        { ...call, call_id: 'c2', name: 'mcp__demo__lookup' },
        { ...call, call_id: 'c3', namespace: 'gone', name: 'f' },
        { type: 'function_call_output', call_id: 'c', output: 'x' },
      ],
    })
    const called = (id: string, name: string) => ({ id, type: 'function', function: { name, arguments: '{}' } })
    expect(chat.messages).toEqual([
      {
        role: 'assistant',
        content: null,
        tool_calls: [called('c', 'mcp__demo__lookup'), called('c2', 'mcp__demo__lookup'), called('c3', 'gone__f')],
      },
      { role: 'tool', tool_call_id: 'c', content: 'x' },
    ])
  })

  // Goal: two tools never share a name, and no name is longer than engines take.
  test('whose names meet', () => {
    const named = (name: string, tool: string) => ({ ...demo, name, tools: [{ ...lookup, name: tool }] })
    const long = 'n'.repeat(100)
    const { names, respond } = turn({
      tools: [named('a', 'b'), named('a__', 'b'), { ...lookup, name: 'c__d' }, named('c', 'd'), named(long, long)],
    })
    expect(names).toEqual(['a__b', 'a__b_2', 'c__d', 'c__d_2', `${long}__${'n'.repeat(26)}`])
    expect(respond([{ id: 'c', name: 'a__b_2', args: '{}' }]).whole.output[0]).toMatchObject({
      namespace: 'a__',
      name: 'b',
    })
  })

  // Goal: tool_choice names tools as the client knows them.
  test.each<[choice: unknown, chosen: unknown, offered: string[]]>([
    [
      { type: 'function', namespace: 'mcp__demo', name: 'lookup' },
      { type: 'function', function: { name: 'mcp__demo__lookup' } },
      ['mcp__demo__lookup'],
    ],
    [
      { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'namespace', name: 'agents' }] },
      {
        type: 'allowed_tools',
        allowed_tools: {
          mode: 'auto',
          tools: ['agents__spawn', 'agents__note'].map(name => ({ type: 'function', function: { name } })),
        },
      },
      ['agents__spawn', 'agents__note'],
    ],
    [{ type: 'tool_search' }, { type: 'function', function: { name: 'tool_search' } }, ['tool_search']],
  ])('as the choice %j', (choice, chosen, offered) => {
    const made = turn({ tools: [demo, agents, search], tool_choice: choice })
    expect(made.chat.tool_choice).toEqual(chosen)
    expect(made.offered).toEqual(offered)
  })

  // Goal: an error has the path of the tool as the client wrote it.
  test.each<[tools: unknown, param: string]>([
    [[{ ...demo, name: '' }], 'tools[0].name'],
    [[{ ...demo, tools: 'x' }], 'tools[0].tools'],
    [[{ ...demo, tools: [lookup, 5] }], 'tools[0].tools[1]'],
    [[{ ...demo, tools: [{ ...lookup, name: 'a b' }] }], 'tools[0].tools[0].name'],
    [[{ ...demo, tools: [{ ...lookup, parameters: 5 }] }], 'tools[0].tools[0].parameters'],
    [Array.from({ length: 1025 }, (_, at) => ({ ...lookup, name: `f${at}` })), 'tools'],
  ])('that is wrong is named: %#', (tools, param) => {
    expect(translated(responsesDialect, { ...base, tools })).toMatchObject({ param })
  })
})

describe('a search for tools', () => {
  const found = [demo, { ...lookup, name: 'plain', defer_loading: true }]
  const call = { type: 'tool_search_call', call_id: 'c', status: 'completed', execution: 'client' }
  const output = { type: 'tool_search_output', call_id: 'c', status: 'completed', execution: 'client', tools: found }

  // Goal: the client runs the search, and what it finds can be called in the next turn.
  test('is run by the client, and adds its tools', () => {
    const { names, respond } = turn({ tools: [search] })
    expect(names).toEqual(['tool_search'])
    const item = { ...call, arguments: { q: 'x' } }
    const { whole, events } = respond([{ id: 'c', name: 'tool_search', args: '{"q":"x"}' }])
    expect(itemsOf(whole)).toEqual([item])
    expect(whole.output[0].id).toMatch(/^tsc_/)
    expect(events.at(-2)).toMatchObject({ type: 'response.output_item.done', item })

    const next = turn({ tools: [search], input: [{ role: 'user', content: 'Hi' }, item, output, output] })
    expect(next.names).toEqual(['tool_search', 'mcp__demo__lookup', 'plain'])
    expect(next.chat.messages.slice(1, 3)).toEqual([
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'tool_search', arguments: '{"q":"x"}' } }],
      },
      { role: 'tool', tool_call_id: 'c', content: 'These tools can be called now: mcp__demo__lookup, plain.' },
    ])
  })

  // Goal: a search that OpenAI ran by itself leaves its tools; one that would run there is named.
  test('that OpenAI has run', () => {
    const input = [
      { role: 'user', content: 'Hi' },
      { ...call, call_id: null, arguments: {} },
      { ...output, call_id: null },
    ]
    const { names, chat, ignored } = turn({ tools: [{ type: 'tool_search' }], input })
    expect(names).toEqual(['mcp__demo__lookup', 'plain'])
    expect(chat.messages).toEqual([{ role: 'user', content: 'Hi' }])
    expect(ignored).toEqual(['tools.tool_search', 'tools.defer_loading'])
  })

  // Goal: what Codex alone sends reaches the model, and encrypted parts are named.
  test('Codex adds tools in the input, and messages between agents', () => {
    const { names, chat, ignored } = turn({
      input: [
        { type: 'additional_tools', role: 'developer', tools: [demo] },
        {
          type: 'agent_message',
          author: '/root',
          recipient: '/root/a',
          content: [
            { type: 'input_text', text: 'Go on.' },
            { type: 'encrypted_content', encrypted_content: 'x' },
          ],
        },
      ],
    })
    expect(names).toEqual(['mcp__demo__lookup'])
    expect(chat.messages).toEqual([{ role: 'user', content: 'Message from /root to /root/a:\nGo on.' }])
    expect(ignored).toEqual(['agent_message.encrypted_content'])
  })
})

describe('a tool that the client runs', () => {
  // Goal: each is offered as a function, its call is the item that its client knows, and the replay is the same call.
  test.each<{ tool: { type: string }; name: string; args: object; item: object; output: object; result: unknown }>([
    {
      tool: { type: 'local_shell' },
      name: 'local_shell',
      args: { command: ['ls'], timeout_ms: 5 },
      item: { type: 'local_shell_call', action: { type: 'exec', env: {}, command: ['ls'], timeout_ms: 5 } },
      output: { type: 'local_shell_call_output', id: 'c', output: 'a b' },
      result: 'a b',
    },
    {
      tool: { type: 'shell' },
      name: 'shell',
      args: { commands: ['ls', 'pwd'] },
      item: {
        type: 'shell_call',
        action: { commands: ['ls', 'pwd'], timeout_ms: null, max_output_length: null },
        environment: null,
      },
      output: { type: 'shell_call_output', call_id: 'c', output: [{ stdout: 'a', stderr: '' }] },
      result: '[{"stdout":"a","stderr":""}]',
    },
    {
      tool: { type: 'apply_patch' },
      name: 'apply_patch',
      args: { type: 'update_file', path: 'a', diff: '@@\n-x\n+y' },
      item: { type: 'apply_patch_call', operation: { type: 'update_file', path: 'a', diff: '@@\n-x\n+y' } },
      output: { type: 'apply_patch_call_output', call_id: 'c', status: 'failed', output: 'no such line' },
      result: 'failed\nno such line',
    },
    {
      tool: { type: 'computer_use_preview' },
      name: 'computer',
      args: { type: 'click', x: 1, y: 2 },
      item: {
        type: 'computer_call',
        action: { type: 'click', x: 1, y: 2 },
        actions: [{ type: 'click', x: 1, y: 2 }],
        pending_safety_checks: [],
      },
      output: {
        type: 'computer_call_output',
        call_id: 'c',
        output: { type: 'computer_screenshot', image_url: 'data:image/png;base64,AA==' },
      },
      result: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } }],
    },
  ])('$tool.type', ({ tool, name, args, item, output, result }) => {
    const { names, ignored, respond } = turn({ tools: [tool], tool_choice: { type: tool.type } })
    expect({ names, ignored }).toEqual({ names: [name], ignored: [] })
    const { whole, events } = respond([{ id: 'c', name, args: JSON.stringify(args) }])
    const given = { ...item, status: 'completed', call_id: 'c' }
    expect(itemsOf(whole)).toEqual([given] as never)
    expect(events.at(-2)).toMatchObject({ type: 'response.output_item.done', item: given })
    const { chat } = turn({ tools: [tool], input: [whole.output[0], output] })
    const [called, returned] = chat.messages as [{ tool_calls: { function: { arguments: string } }[] }, unknown]
    expect(called).toMatchObject({ role: 'assistant', tool_calls: [{ id: 'c', function: { name } }] })
    expect(JSON.parse(called.tool_calls[0]?.function.arguments ?? '')).toMatchObject(args)
    expect(returned).toEqual({ role: 'tool', tool_call_id: 'c', content: result })
  })

  // Goal: a function of the same name stays callable as itself.
  test('beside a function of its name', () => {
    const { names, respond } = turn({ tools: [{ ...lookup, name: 'shell' }, { type: 'shell' }] })
    expect(names).toEqual(['shell', 'shell_2'])
    const { whole } = respond([
      { id: 'c', name: 'shell', args: '{}' },
      { id: 'd', name: 'shell_2', args: '{"commands":"ls"}' },
    ])
    expect(whole.output).toMatchObject([
      { type: 'function_call', name: 'shell' },
      { type: 'shell_call', action: { commands: ['ls'] } },
    ])
  })

  // Goal: a shell that would run at OpenAI is not offered.
  test('in a container of OpenAI is left out and named', () => {
    const { names, ignored } = turn({ tools: [lookup, { type: 'shell', environment: { type: 'container_auto' } }] })
    expect({ names, ignored }).toEqual({ names: ['lookup'], ignored: ['tools.shell'] })
  })

  // Goal: an error has the path of the item as the client wrote it.
  test.each([
    [{ type: 'shell_call', call_id: 'c', action: 5 }, 'input[0].action'],
    [{ type: 'local_shell_call_output', output: 'x' }, 'input[0].call_id'],
    [{ type: 'apply_patch_call', operation: {} }, 'input[0].call_id'],
    [{ type: 'function_call', call_id: 'c', name: 'f', namespace: 5, arguments: '{}' }, 'input[0].namespace'],
    [{ type: 'agent_message', content: 'x' }, 'input[0].content'],
  ])('whose replay is wrong is named: %j', (item, param) => {
    expect(translated(responsesDialect, { model: 'm', input: [item] })).toMatchObject({ param })
  })
})
