// One turn of a translated API: the chat request that an engine gets, and what the client gets of the engine's calls.

import { utf8 } from '../../../src/base/bytes.ts'
import { parseDialect } from '../../../src/inference/dialects/request.ts'
import type { Dialect } from '../../../src/inference/openai/dialect.ts'
import { readSource } from '../../../src/inference/openai/request.ts'
import { namedEventsOf } from './apis.ts'

type Call = { readonly id: string; readonly name: string; readonly args: string }
type Chat = { messages: unknown[]; tools?: { function: { name: string } }[]; tool_choice?: unknown }

const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }

/** `ignored`: names of what was left out. `respond`: the whole response, and the events of the same as a stream. */
export function turnOf(dialect: Dialect, body: unknown) {
  const { request, source, ignored, traits } = parseDialect(dialect, readSource(utf8(JSON.stringify(body))))
  const chat = JSON.parse(source.text) as Chat
  const respond = (calls: readonly Call[]) => {
    const head = { id: '0a', createdS: 7, model: 'm', keep: null }
    const toolCalls = calls.map(({ id, name, args }) => ({ id, type: 'function', function: { name, arguments: args } }))
    const message = { role: 'assistant', content: null, tool_calls: toolCalls }
    const completion = { choices: [{ index: 0, message, finish_reason: 'tool_calls' }] }
    const whole = JSON.parse(dialect.respond(traits, head).whole(completion, usage))
    const stream = dialect.respond(traits, head).openStream({ keptCharsMax: 10_000, obfuscate: null })
    const chunk = (delta: unknown, finish: string | null) =>
      JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })
    const pieces = toolCalls.flatMap((call, index) => {
      const { name, arguments: args } = call.function
      const begun = { ...call, index, function: { name, arguments: args.slice(0, 3) } }
      return [begun, { index, function: { arguments: args.slice(3) } }]
    })
    const text = [
      ...pieces.map(piece => stream.push(chunk({ tool_calls: [piece] }, null))),
      stream.push(chunk({}, 'tool_calls')),
      stream.finish(usage),
    ]
    return { whole, events: namedEventsOf(text.join('')) as Record<string, unknown>[] }
  }
  return {
    chat,
    names: (chat.tools ?? []).map(tool => tool.function.name),
    offered: [...request.tools],
    ignored,
    respond,
  }
}
