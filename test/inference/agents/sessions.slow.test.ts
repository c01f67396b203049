// Sessions of agents and editors, sent once more to a gateway with a scripted engine. The real programs' were recorded
// (scripts/agents --record, or a program over the library); those of editors are written by hand.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { decodeSessions, type Json, type RecordedRequest } from '../../../scripts/rigs/agents/fixture.ts'
import { spokenAnswer as answer, speaks } from '../../../scripts/rigs/agents/speaks.ts'
import { KEY, startHostGateway, type TestGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import {
  chunk,
  delta,
  openSse,
  sse,
  startUpstream,
  type TestUpstream,
  USAGE,
} from '../../../scripts/rigs/gateway/upstream-server.ts'

type Fields = Readonly<Record<string, unknown>>

const folder = resolve(import.meta.dir, '../../vectors/agents')
const files = readdirSync(folder).sort()
const textOfFile = (file: string) => readFileSync(resolve(folder, file), 'utf8')

const [lookup, weigh, dump] = ['mcp__alpha__lookup', 'mcp__beta__weigh', 'mcp__gamma__dump']
/** Tools of Claude Code, whose tool search leaves the others out. */
const CLAUDE = [
  ...['Agent', 'Bash', 'Edit', 'ListAgents', 'Read', 'ReportFindings', 'ScheduleWakeup', 'Skill', 'ToolSearch'],
  ...['Workflow', 'DeferredToolPlaceholder', 'Write'],
]
const CLAUDE_SUB_AGENT = CLAUDE.filter(name => name !== 'ScheduleWakeup' && name !== 'Workflow')
const CLAUDE_FOUND = [...CLAUDE.slice(0, 10), 'Write', lookup, 'DeferredToolPlaceholder', weigh]
const CLAUDE_WITHOUT_SEARCH = [
  ...['Agent', 'Bash', 'CronCreate', 'CronDelete', 'CronList', 'Edit', 'EnterWorktree', 'ExitWorktree', 'ListAgents'],
  ...['Monitor', 'NotebookEdit', 'Read', 'ReportFindings', 'ScheduleWakeup', 'SendMessage', 'Skill', 'TaskStop'],
  ...['WebFetch', 'WebSearch', 'Workflow', 'Write'],
]
/** Fields of Claude Code that an engine of OpenAI's API does not take. */
const CLAUDE_IGNORED = [
  ...['messages.joined', 'metadata', 'thinking', 'context_management', 'cache_control', 'tools.maxLength'],
]
const CLAUDE_IGNORED_SEARCH = [...CLAUDE_IGNORED, 'tools.defer_loading']
const MULTI_AGENT = ['close_agent', 'resume_agent', 'send_input', 'spawn_agent', 'wait_agent']
const CODEX_AGENTS = MULTI_AGENT.map(name => `multi_agent_v1__${name}`)
const CODEX_RESOURCES = ['list_mcp_resources', 'list_mcp_resource_templates', 'read_mcp_resource']
const CODEX_GOALS = ['get_goal', 'create_goal', 'update_goal']
const CODEX = [...['exec_command', 'write_stdin', 'request_user_input', 'view_image', ...CODEX_AGENTS, ...CODEX_GOALS]]
const CODEX_MCP = [
  ...['exec_command', 'write_stdin', ...CODEX_RESOURCES, 'request_user_input', 'view_image', ...CODEX_AGENTS],
  ...[lookup, weigh, ...CODEX_GOALS],
]
/** `web_search` runs at OpenAI. */
const CODEX_IGNORED = [
  'messages.joined',
  'prompt_cache_key',
  'client_metadata',
  'reasoning.summary',
  'tools.web_search',
]
const CODEX_IGNORED_WITHOUT_TOOLS = CODEX_IGNORED.filter(name => name !== 'tools.web_search')
const OPENCODE = ['bash', 'edit', 'glob', 'grep', 'read', 'skill', 'task', 'todowrite', 'webfetch', 'write']
const OPENCODE_MCP = ['alpha_lookup', 'bash', 'beta_weigh', ...OPENCODE.slice(1)]

const CURSOR = ['Shell', 'Read', 'ApplyPatch', 'Grep']
const CURSOR_IGNORED = [
  'messages.joined',
  'reasoning.summary',
  'text.verbosity',
  'prompt_cache_key',
  'prompt_cache_retention',
  'tools.format',
]

type Row = readonly [tools: readonly string[], ignored: readonly string[]]
const turns = (count: number, row: Row): Row[] => Array.from({ length: count }, () => row)

/** Tools that the engine gets, and what the header names, for each request. */
const EXPECTED: Readonly<Record<string, Readonly<Record<string, readonly Row[]>>>> = {
  'claude-code': {
    mcp: turns(3, [[...CLAUDE_WITHOUT_SEARCH, lookup, weigh], CLAUDE_IGNORED]),
    'tool-search': [[CLAUDE, CLAUDE_IGNORED_SEARCH], ...turns(3, [CLAUDE_FOUND, CLAUDE_IGNORED_SEARCH])],
    'sub-agents': [
      [CLAUDE, CLAUDE_IGNORED_SEARCH],
      // The schema with the long text is that of Workflow.
      [CLAUDE_SUB_AGENT, CLAUDE_IGNORED_SEARCH.filter(name => name !== 'tools.maxLength')],
      [CLAUDE, CLAUDE_IGNORED_SEARCH],
    ],
    compact: turns(4, [CLAUDE, CLAUDE_IGNORED_SEARCH]),
    resume: turns(2, [CLAUDE, CLAUDE_IGNORED_SEARCH]),
    image: turns(2, [CLAUDE, CLAUDE_IGNORED_SEARCH]),
    'large-result': turns(2, [[...CLAUDE_WITHOUT_SEARCH, dump], CLAUDE_IGNORED]),
    'large-results': turns(5, [[...CLAUDE_WITHOUT_SEARCH, dump], CLAUDE_IGNORED]),
  },
  codex: {
    mcp: turns(3, [CODEX_MCP, CODEX_IGNORED]),
    compaction: [
      [CODEX, CODEX_IGNORED],
      [[], CODEX_IGNORED_WITHOUT_TOOLS],
      [CODEX, CODEX_IGNORED],
    ],
    // A summary calls no tools.
    'compaction-by-server': [
      [CODEX, CODEX_IGNORED],
      [[], CODEX_IGNORED],
      [CODEX, CODEX_IGNORED],
    ],
    resume: turns(2, [CODEX, CODEX_IGNORED]),
  },
  opencode: {
    // The first request of each session is for its title.
    mcp: [[[], ['messages.joined']], ...turns(3, [OPENCODE_MCP, []])],
    'second-turn': [[[], ['messages.joined']], ...turns(2, [OPENCODE, []])],
  },
  llamaindex: {
    chat: turns(2, [['lookup'], []]),
    stream: [[[], []]],
    responses: turns(2, [['lookup'], ['messages.joined']]),
    'responses-stream': [[[], []]],
  },
  mastra: { generate: turns(2, [['lookup'], []]), stream: turns(2, [['lookup'], []]) },
  cursor: {
    // The second turn brings the reasoning of the first.
    responses: [
      [CURSOR, CURSOR_IGNORED],
      [CURSOR, ['input.reasoning', ...CURSOR_IGNORED]],
    ],
    chat: [[['codebase_search', 'edit_file'], ['messages.joined']]],
  },
  cline: {
    xml: [[[], []]],
    native: [[['execute_command', 'read_file', 'ask_followup_question', 'attempt_completion'], []]],
    anthropic: [[[], ['thinking', 'cache_control', 'messages.reasoning']]],
    'large-result': [[['read_file'], ['cache_control']]],
  },
  continue: {
    agent: [[['builtin_read_file', 'builtin_run_terminal_command', 'builtin_edit_existing_file'], []]],
    autocomplete: [[[], []]],
    edit: [[[], ['prediction']]],
    title: [[[], []]],
  },
  aider: {
    code: [[[], ['messages.joined']]],
    continued: [[[], []]],
    commit: [[[], []]],
  },
}

/** Requests of megabytes, on a busy machine, too. */
const patientMs = 120_000
const undo = new AsyncDisposableStack()
let upstream: TestUpstream
let gateway: TestGateway
beforeAll(async () => {
  upstream = await startUpstream(speaks)
  undo.defer(upstream.stop)
  const limits = { bodyBytesMax: 33_554_432, responseBytesMax: 8_388_608 }
  const engine = target(upstream.url, { content: ['image', 'file'] })
  gateway = undo.use(startHostGateway([engine], { limits, caller: { tokensPerMinute: 1_000_000_000 } }))
})
afterAll(() => undo.disposeAsync())

const send = ({ method, path, headers, body }: RecordedRequest) =>
  fetch(gateway.url + path, {
    method,
    headers: { ...headers, authorization: `Bearer ${KEY}` },
    body: body === null ? null : JSON.stringify(body),
  })

describe.each(files)('%s', file => {
  const { program, sessions } = decodeSessions(textOfFile(file))
  const expected = EXPECTED[program] ?? {}

  test('goal: every session has its expectation', () => {
    expect(Object.entries(sessions).map(([name, requests]) => [name, requests.length])).toEqual(
      Object.entries(expected).map(([name, rows]) => [name, rows.length]),
    )
  })

  test.each(Object.keys(sessions))(
    'goal: %s: tools and instructions reach the engine, the header names what does not, and the answer has its form',
    async name => {
      for (const [at, request] of (sessions[name] ?? []).entries()) {
        const seenBefore = upstream.seen.length
        const response = await send(request)
        const text = await response.text()
        const [tools = [], ignored = []] = expected[name]?.[at] ?? []
        const ignoredNames = response.headers.get('x-strongroom-ignored')?.split(', ').sort() ?? []
        const seen = upstream.seen[seenBefore]?.body ?? {}
        expect([name, at, response.status, ignoredNames, toolNames(seen)], text.slice(0, 500)).toEqual([
          ...[name, at, 200, [...ignored].sort(), tools],
        ] as never)
        const { instructions, others } = textsOf(request.body)
        const [system, all] = [instructionsAt(seen), allTexts(seen.messages ?? seen.prompt)]
        for (const piece of instructions) expect([name, at, system.includes(piece)]).toEqual([name, at, true])
        for (const piece of others)
          expect([name, at, piece.slice(0, 60), all.includes(piece)]).toEqual([name, at, piece.slice(0, 60), true])
        checkForm(request, text)
      }
    },
    patientMs,
  )

  test('goal: no text of a program is in the file', () => {
    const long = strings(JSON.parse(textOfFile(file))).filter(text => text.split(/\s+/).length > 12)
    expect(long).toEqual([])
    expect(textOfFile(file).length).toBeLessThan(100_000)
  })
})

const CALLS = [
  ['claude-code', lookup, { type: 'tool_use', name: lookup }],
  // Codex looks for the server and for its tool.
  ['codex', lookup, { type: 'function_call', namespace: 'mcp__alpha', name: 'lookup' }],
  ['opencode', 'alpha_lookup', { type: 'function', function: { name: 'alpha_lookup' } }],
] as const

test.each(CALLS)(
  "goal: %s: a call of an MCP server's tool has the form that the program knows",
  async (program, name, call) => {
    const { sessions } = decodeSessions(textOfFile(`${program}.json`))
    const request = sessions.mcp?.find(({ body }) => list(fields(body).tools).length > 0)
    if (request === undefined) throw new Error('no request with tools')
    upstream.behave = response => {
      openSse(response)
      const called = { index: 0, id: 'call_1', type: 'function', function: { name, arguments: '{"word":"seven"}' } }
      response.write(sse(delta({ tool_calls: [called] })))
      response.end(`${sse(delta({}, 'tool_calls'))}${sse(chunk([], { usage: USAGE }))}data: [DONE]\n\n`)
    }
    try {
      const events = dataOf(await (await send(request)).text())
      const given = events.flatMap(event => [
        ...[event.content_block, ...(event.type === 'response.output_item.done' ? [event.item] : [])],
        ...list(event.choices).flatMap(choice => list(fields(choice.delta).tool_calls)),
      ])
      expect(given.filter(item => item !== undefined)).toMatchObject([call])
    } finally {
      upstream.behave = speaks
    }
  },
)

function toolNames(body: Fields): string[] {
  return list(body.tools).map(tool => String(fields(tool.function).name))
}

function instructionsAt({ messages, prompt }: Fields): string {
  return allTexts(list(messages).filter(({ role }) => role === 'system')) + String(prompt ?? '')
}

/** Texts of a request, as the documents of its API name them. */
function textsOf(body: Json): { instructions: string[]; others: string[] } {
  const { system, instructions, messages, input, prompt } = fields(body)
  const turns = [...list(messages), ...list(input)]
  const isInstruction = ({ role }: Fields) => role === 'system' || role === 'developer'
  const own = [system, instructions, ...turns.filter(isInstruction).map(turn => turn.content)]
  // Thoughts and items without a text for the model are left out.
  const others = turns.filter(turn => !isInstruction(turn) && turn.type !== 'reasoning' && turn.type !== 'compaction')
  return {
    instructions: textParts(own),
    others: textParts([prompt, ...others.flatMap(({ content, output }) => [content, output])]),
  }
}

/** Texts of content in any of its forms, those of results too. */
function textParts(value: unknown): string[] {
  if (typeof value === 'string') return value === '' ? [] : [value]
  if (Array.isArray(value)) return value.flatMap(textParts)
  const { text, type, content } = fields(value)
  if (typeof text === 'string') return [text]
  return type === 'tool_result' ? textParts(content) : []
}

function allTexts(value: unknown): string {
  return strings(value).join('\n')
}

function strings(value: unknown): string[] {
  if (typeof value === 'string') return [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(strings) : []
}

function fields(value: unknown): Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {}
}

function list(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(fields) : []
}

/** The answer in the form that the client of the path reads. */
function checkForm({ path, body }: RecordedRequest, text: string): void {
  const isStream = fields(body).stream === true
  const events = isStream ? dataOf(text) : []
  const types = events.map(({ type }) => type).filter(type => type !== 'ping')
  if (path.startsWith('/v1/messages')) {
    expect([types.at(0), types.at(-2), types.at(-1)]).toEqual(['message_start', 'message_delta', 'message_stop'])
    expect(events.map(event => String(fields(event.delta).text ?? '')).join('')).toBe(answer)
  } else if (path === '/v1/responses') {
    const isCompaction = list(fields(body).input).at(-1)?.type === 'compaction_trigger'
    const last = isStream ? fields(events.at(-1)?.response) : fields(JSON.parse(text))
    if (isStream) expect([types.at(0), types.at(-1)]).toEqual(['response.created', 'response.completed'])
    const [item = {}] = list(last.output)
    expect([last.object, last.status, item.type]).toEqual([
      'response',
      'completed',
      isCompaction ? 'compaction' : 'message',
    ])
    if (isCompaction) expect(item.encrypted_content).toBe(`strongroom.summary:${answer}`)
    else expect(list(item.content).map(part => [part.type, part.text])).toEqual([['output_text', answer]])
  } else if (isStream) {
    const isText = path === '/v1/completions'
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true)
    expect(new Set(events.map(({ object }) => object))).toEqual(
      new Set([isText ? 'text_completion' : 'chat.completion.chunk']),
    )
    const choices = events.flatMap(event => list(event.choices))
    expect(choices.map(choice => String((isText ? choice.text : fields(choice.delta).content) ?? '')).join('')).toBe(
      answer,
    )
    expect(choices.at(-1)?.finish_reason).toBe('stop')
  } else {
    const { object, choices } = fields(JSON.parse(text))
    const [{ message, finish_reason: finish } = {} as Fields] = list(choices)
    expect([object, fields(message).content, finish]).toEqual(['chat.completion', answer, 'stop'])
  }
}

function dataOf(text: string): Fields[] {
  const data = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, json = '']) => json)
  return data.map(json => fields(JSON.parse(json)))
}
