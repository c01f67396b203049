// The model that agents are tested with: it calls a tool five times, answers, or waits, as the prompt says. It is as
// strict as engines are about messages that agents send back. Effects: writes responses.

import { type Behaviour, chunk, delta, openSse, sendJson, sse } from '../gateway/upstream-server.ts'

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

/** A request as an engine gets it. */
export type Situation = {
  readonly messages: readonly Message[]
  /** Names of the tools. */
  readonly names: readonly string[]
  /** All messages as JSON. */
  readonly text: string
  /** Results of tools so far. */
  readonly done: number
}

/** Calls, a text, or never an answer. */
export type Decision =
  | { readonly calls: readonly { readonly name: string; readonly args: object }[] }
  | { readonly say: string; readonly usage?: typeof USAGE }
  | 'wait'

/** `Take five steps` calls a tool five times; everything else is answered with the number of steps so far. */
export function agentModel(toolOf: ToolOf): Behaviour {
  return decidingModel(({ text, names, done }) => {
    const tool = text.includes(PROMPTS.steps) && done < steps ? toolOf(names, done + 1) : null
    if (text.includes(PROMPTS.wait)) return 'wait'
    return tool === null ? { say: `after ${done} steps` } : { calls: [tool] }
  })
}

/** A model that does what `decide` says. */
export function decidingModel(decide: (situation: Situation) => Decision): Behaviour {
  return (response, { body }) => {
    const messages = body.messages as readonly Message[]
    const problem = problemOf(messages)
    if (problem !== null) {
      sendJson(response, 500, { error: { message: problem } })
      return
    }
    const done = messages.filter(({ role }) => role === 'tool').length
    const names = ((body.tools ?? []) as readonly Tool[]).map(tool => tool.function.name)
    const decision = decide({ messages, names, text: JSON.stringify(messages), done })
    const isStream = body.stream === true
    if (decision === 'wait') {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: 'So' })))
    } else if ('calls' in decision) {
      const calls = decision.calls.map(({ name, args }, at) => ({
        id: at === 0 ? `call_${done}` : `call_${done}_${at}`,
        type: 'function',
        function: { name, arguments: JSON.stringify(args) },
      }))
      const pieces = calls.map((call, index) => ({ tool_calls: [{ index, ...call }] }))
      if (isStream) stream(pieces, 'tool_calls')
      else whole({ role: 'assistant', content: null, tool_calls: calls }, 'tool_calls')
    } else {
      const { say, usage } = decision
      const middle = Math.ceil(say.length / 2)
      if (isStream) stream([{ content: say.slice(0, middle) }, { content: say.slice(middle) }], 'stop', usage)
      else whole({ role: 'assistant', content: say }, 'stop', usage)
    }

    function stream(pieces: readonly Record<string, unknown>[], finish: string, usage = USAGE): void {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: null })))
      for (const piece of pieces) response.write(sse(delta(piece)))
      response.write(sse(delta({}, finish)))
      response.write(sse(chunk([], { usage })))
      response.end('data: [DONE]\n\n')
    }

    function whole(message: object, finish: string, usage = USAGE): void {
      sendJson(response, 200, { choices: [{ index: 0, finish_reason: finish, message }], usage })
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
