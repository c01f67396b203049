// The first requests of agents, rendered as engines render them: every text is in the prompt, and no template raises.
// Prompts and tools of the programs are replaced by short fillers.

import { describe, expect, test } from 'bun:test'
import { utf8 } from '../../../../src/base/bytes.ts'
import { DIALECTS, hasDialect } from '../../../../src/inference/dialects/dialects.ts'
import { parseDialect } from '../../../../src/inference/dialects/request.ts'
import { type AskedCompletion, readCompletion } from '../../../../src/inference/gateway/bodies/read-body.ts'
import { readSource } from '../../../../src/inference/openai/request.ts'
import { type ChatMessage, renderPrompt, TEMPLATE_RULES, type TemplateRule } from '../../../rigs/chat-templates.ts'

type FirstRequest = {
  readonly operation: AskedCompletion
  readonly body: object
  /** In the order of the prompt. */
  readonly texts: readonly string[]
}

const parameters = { type: 'object', properties: { a: { type: 'string' } } }
const block = (text: string) => ({ type: 'text', text })
const cached = (text: string) => ({ ...block(text), cache_control: { type: 'ephemeral' } })
const inputText = (text: string) => [{ type: 'input_text', text }]
const inputMessage = (role: string, text: string) => ({ type: 'message', role, content: inputText(text) })
const chatTool = { type: 'function', function: { name: 'read', description: 'd', parameters } }

const REQUESTS: Readonly<Record<string, FirstRequest>> = {
  // Sends a system message behind the first one of the user.
  'Claude Code': {
    operation: 'messages',
    body: {
      model: 'm',
      max_tokens: 32_000,
      stream: true,
      system: [block('billing line'), cached('claude agent'), cached('claude rules')],
      messages: [
        { role: 'user', content: [block('reminder of files'), block('reminder of date'), cached('say hi')] },
        { role: 'system', content: [block('# Environment')] },
      ],
      tools: [{ name: 'Read', description: 'd', input_schema: parameters }],
      thinking: { type: 'adaptive' },
      output_config: { effort: 'high' },
    },
    texts: [
      ...['billing line', 'claude agent', 'claude rules', '# Environment'],
      ...['reminder of files', 'reminder of date', 'say hi'],
    ],
  },
  // Sends two developer messages, and two of the user.
  Codex: {
    operation: 'responses',
    body: {
      model: 'm',
      stream: true,
      store: false,
      instructions: 'codex base',
      input: [
        inputMessage('developer', 'codex permissions'),
        inputMessage('developer', '<skills_instructions>'),
        inputMessage('user', '<environment_context>'),
        inputMessage('user', 'say hi'),
      ],
      tools: [
        { type: 'function', name: 'exec', description: 'd', strict: false, parameters },
        { type: 'namespace', name: 'mcp__demo', tools: [{ type: 'function', name: 'lookup', parameters }] },
        { type: 'tool_search', execution: 'client', description: 'd', parameters },
      ],
    },
    texts: ['codex base', 'codex permissions', '<skills_instructions>', '<environment_context>', 'say hi'],
  },
  // Sends its prompt and the project's rules in two system messages.
  opencode: {
    operation: 'chat',
    body: {
      model: 'm',
      stream: true,
      messages: [
        { role: 'system', content: 'opencode prompt' },
        { role: 'system', content: 'project rules' },
        { role: 'user', content: [block('say hi')] },
      ],
      tools: [chatTool],
      tool_choice: 'auto',
    },
    texts: ['opencode prompt', 'project rules', 'say hi'],
  },
  // Sends context and question apart, each as the user's.
  Cursor: {
    operation: 'chat',
    body: {
      model: 'm',
      stream: true,
      messages: [
        { role: 'system', content: 'cursor prompt' },
        { role: 'user', content: '<user_info>' },
        { role: 'user', content: [block('<open_files>'), block('say hi')] },
        { role: 'system', content: 'cursor mode' },
      ],
      tools: [chatTool],
    },
    texts: ['cursor prompt', 'cursor mode', '<user_info>', '<open_files>', 'say hi'],
  },
}

const sourceOf = ({ body }: FirstRequest) => readSource(utf8(JSON.stringify(body)))

function sentMessages(request: FirstRequest): ChatMessage[] {
  const { source } = readCompletion(request.operation, sourceOf(request), { earlier: null, hasLabels: false })
  return JSON.parse(source.text).messages
}

/** As they would go up if nothing were joined. */
function plainMessages(request: FirstRequest): ChatMessage[] {
  const { operation } = request
  const source = sourceOf(request)
  return JSON.parse((hasDialect(operation) ? parseDialect(DIALECTS[operation], source).source : source).text).messages
}

/** Texts that are in the prompt, in its order. */
function textsIn(prompt: string, { texts }: FirstRequest): string[] {
  return texts.filter(text => prompt.includes(text)).toSorted((a, b) => prompt.indexOf(a) - prompt.indexOf(b))
}

describe.each(Object.entries(REQUESTS))('the first request of %s', (_name, request) => {
  // Goal: every text of the agent's instructions and of the user is in the prompt, once, and in order.
  test.each(TEMPLATE_RULES)('for a template that %s', rule => {
    const prompt = renderPrompt(rule, sentMessages(request))
    expect(textsIn(prompt, request)).toEqual([...request.texts])
    for (const text of request.texts) expect(prompt.split(text)).toHaveLength(2)
  })
})

// Goal: the templates do have these rules: what becomes of the same requests without the joining step.
test.each<[TemplateRule, Record<string, string[] | string>]>([
  [
    'raises on a system message that is not the first',
    {
      'Claude Code': 'System message must be at the beginning.',
      Codex: 'Unexpected message role.',
      opencode: 'System message must be at the beginning.',
      Cursor: 'System message must be at the beginning.',
    },
  ],
  [
    'raises on neighbours of one role',
    {
      'Claude Code': 'Only user, assistant and tool roles are supported.',
      Codex: 'Only user, assistant and tool roles are supported.',
      opencode: 'Only user, assistant and tool roles are supported.',
      Cursor: 'Conversation roles must alternate user/assistant/user/assistant/...',
    },
  ],
  ['drops developer messages', { Codex: ['codex permissions', '<skills_instructions>'] }],
  [
    'drops system messages behind the first',
    {
      'Claude Code': ['# Environment'],
      Codex: ['codex permissions', '<skills_instructions>'],
      opencode: ['project rules'],
      Cursor: ['cursor mode'],
    },
  ],
  [
    'takes instructions from the first message alone',
    {
      'Claude Code': ['# Environment'],
      Codex: ['codex permissions', '<skills_instructions>'],
      opencode: ['project rules'],
      Cursor: ['cursor mode'],
    },
  ],
])('unjoined: a template that %s', (rule, expected) => {
  const lost: Record<string, string[] | string> = {}
  for (const [name, request] of Object.entries(REQUESTS)) {
    try {
      const found = textsIn(renderPrompt(rule, plainMessages(request)), request)
      const missing = request.texts.filter(text => !found.includes(text))
      if (missing.length > 0) lost[name] = missing
    } catch (error) {
      lost[name] = error instanceof Error ? error.message : String(error)
    }
  }
  expect(lost).toEqual(expected)
})
