// Chat templates for tests, written here, with the rules of real ones: models ship them in Jinja, and
// engines render each prompt with one. The families are those of templates that llama.cpp ships.

import { Template } from '@huggingface/jinja'

const turn = (role: string, content = 'message.content') => `{{ '<|${role}|>' + ${content} + '<|end|>' }}`

/** Calls of tools and their results. */
const TOOLS = `
{%- elif message.role == 'assistant' -%}
  ${turn('assistant', "(message.content or '')")}
  {%- for call in message.tool_calls or [] -%}
    {{ '<call>' + call.function.name + call.function.arguments + '</call>' }}
  {%- endfor -%}
{%- elif message.role == 'tool' -%}
  ${turn('tool')}`

/** By rule. */
const TEMPLATES = {
  /** Qwen 3.5 and later. */
  'raises on a system message that is not the first': `
{%- for message in messages -%}
{%- if message.role == 'system' -%}
  {%- if not loop.first -%}{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}
  ${turn('system')}
{%- elif message.role == 'user' -%}
  ${turn('user')}
${TOOLS}
{%- else -%}
  {{ raise_exception('Unexpected message role.') }}
{%- endif -%}
{%- endfor -%}`,

  /** Mistral and Gemma. */
  'raises on neighbours of one role': `
{%- if messages[0].role == 'system' -%}
  {%- set system = messages[0].content -%}{%- set rest = messages[1:] -%}
{%- else -%}
  {%- set system = '' -%}{%- set rest = messages -%}
{%- endif -%}
{%- set turns = namespace(count=0) -%}
{%- for message in rest -%}
  {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) -%}
    {%- if (message.role == 'user') != (turns.count % 2 == 0) -%}
      {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- set turns.count = turns.count + 1 -%}
  {%- endif -%}
  {%- if message.role == 'user' -%}
    {%- if loop.first -%}${turn('user', "system + '\\n' + message.content")}{%- else -%}${turn('user')}{%- endif -%}
  ${TOOLS}
  {%- else -%}
    {{ raise_exception('Only user, assistant and tool roles are supported.') }}
  {%- endif -%}
{%- endfor -%}`,

  /** Qwen 2.5 and 3, GLM 4, MiMo. */
  'drops developer messages': `
{%- for message in messages -%}
{%- if message.role == 'system' -%}
  ${turn('system')}
{%- elif message.role == 'user' -%}
  ${turn('user')}
${TOOLS}
{%- endif -%}
{%- endfor -%}`,

  /** DeepSeek V3 and R1, which keep one system prompt for all messages. */
  'drops system messages behind the first': `
{%- if messages[0].role == 'system' -%}${turn('system', 'messages[0].content')}{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'user' -%}
  ${turn('user')}
${TOOLS}
{%- endif -%}
{%- endfor -%}`,

  /** gpt-oss and Llama 3, which write their own preamble before the instructions. */
  'takes instructions from the first message alone': `
{%- if messages[0].role in ['system', 'developer'] -%}
  {%- set instructions = messages[0].content -%}{%- set rest = messages[1:] -%}
{%- else -%}
  {%- set instructions = '' -%}{%- set rest = messages -%}
{%- endif -%}
{{ '<|system|>You are a model.<|end|>' }}${turn('developer', 'instructions')}
{%- for message in rest -%}
{%- if message.role == 'user' -%}
  ${turn('user')}
${TOOLS}
{%- endif -%}
{%- endfor -%}`,
} as const satisfies Record<string, string>

export type TemplateRule = keyof typeof TEMPLATES
export const TEMPLATE_RULES = Object.keys(TEMPLATES) as TemplateRule[]

export type ChatMessage = { readonly role: string; readonly content: unknown; readonly [field: string]: unknown }

/** Returns the prompt. Throws what the template raises. */
export function renderPrompt(rule: TemplateRule, messages: readonly ChatMessage[]): string {
  return new Template(TEMPLATES[rule]).render({ messages: messages.map(withText), add_generation_prompt: true })
}

/** vLLM and llama-server join the parts of a message for templates that take texts. */
function withText(message: ChatMessage): ChatMessage {
  const { content } = message
  return Array.isArray(content) ? { ...message, content: content.map(part => part.text).join('\n') } : message
}
