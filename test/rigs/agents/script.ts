// The model that agents are tested with: it calls a tool five times, answers, or waits, as the prompt says. It is as
// strict as engines are about messages that agents send back. Effects: writes responses.

import { type Behaviour, chunk, delta, openSse, sendJson, sse } from '../../../scripts/rigs/gateway/upstream-server.ts'

export const PROMPTS = { steps: 'Take five steps', again: 'And now?', wait: 'Wait for ever' } as const

const steps = 5
const USAGE = { prompt_tokens: 11, completion_tokens: 3, total_tokens: 14 }

/** The tool's name, and its arguments for a step. */
export type ToolOf = (names: readonly string[], step: number) => { readonly name: string; readonly args: object } | null

type Message = {
  readonly role: string
  readonly content?: unknown
  readonly tool_calls?: readonly { readonly id: string; readonly function: { readonly arguments: string } }[]
  readonly tool_call_id?: string
}
type Tool = { readonly function: { readonly name: string } }

/** `Take five steps` calls a tool five times; everything else is answered with the number of steps so far. */
export function agentModel(toolOf: ToolOf): Behaviour {
  return (response, { body }) => {
    const messages = body.messages as readonly Message[]
    const problem = problemOf(messages)
    if (problem !== null) {
      sendJson(response, 500, { error: { message: problem } })
      return
    }
    const done = messages.filter(({ role }) => role === 'tool').length
    const text = JSON.stringify(messages)
    const names = ((body.tools ?? []) as readonly Tool[]).map(tool => tool.function.name)
    const tool = text.includes(PROMPTS.steps) && done < steps ? toolOf(names, done + 1) : null
    const isStream = body.stream === true
    if (text.includes(PROMPTS.wait)) {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: 'So' })))
    } else if (tool !== null) {
      const call = {
        id: `call_${done}`,
        type: 'function',
        function: { name: tool.name, arguments: JSON.stringify(tool.args) },
      }
      if (isStream) stream([{ tool_calls: [{ index: 0, ...call }] }], 'tool_calls')
      else whole({ role: 'assistant', content: null, tool_calls: [call] }, 'tool_calls')
    } else {
      if (isStream) stream([{ content: 'after ' }, { content: `${done} steps` }], 'stop')
      else whole({ role: 'assistant', content: `after ${done} steps` }, 'stop')
    }

    function stream(pieces: readonly Record<string, unknown>[], finish: string): void {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: null })))
      for (const piece of pieces) response.write(sse(delta(piece)))
      response.write(sse(delta({}, finish)))
      response.write(sse(chunk([], { usage: USAGE })))
      response.end('data: [DONE]\n\n')
    }

    function whole(message: object, finish: string): void {
      sendJson(response, 200, { choices: [{ index: 0, finish_reason: finish, message }], usage: USAGE })
    }
  }
}

/** The reason for an engine to fail at these messages: a call without its result, or arguments that are no JSON. */
function problemOf(messages: readonly Message[]): string | null {
  const open = new Set<string>()
  for (const { role, tool_calls: calls = [], tool_call_id: id = '' } of messages) {
    if (role === 'tool') {
      if (!open.delete(id)) return `a result of no call: ${id}`
    } else if (open.size > 0) return `no result of ${[...open].join()}`
    for (const call of calls) {
      open.add(call.id)
      try {
        JSON.parse(call.function.arguments)
      } catch {
        return `arguments of ${call.id} are no JSON`
      }
    }
  }
  return open.size > 0 ? `no result of ${[...open].join()}` : null
}
