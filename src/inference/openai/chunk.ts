// The events of a streamed answer, one at a time: OpenAI's chunks out of whichever the engine sends. Pure; holds what one stream needs.

import { UpstreamFault } from '../upstream/fault.ts'
import {
  type AnswerPlan,
  callId,
  chatLogprobs,
  checkFormat,
  checkTools,
  finishOf,
  malformed,
  namedFinish,
  parseText,
  textLogprobs,
  textOrNull,
  type Usage,
  usageOf,
} from './completion.ts'
import { isObject, type JsonObject } from './request.ts'

export type StreamAnswer = {
  /** One event's data: the chunk's JSON for the client, `end` for the upstream's [DONE], null for nothing to pass on. UpstreamFault. */
  readonly take: (data: string) => string | 'end' | null
  /** The last chunk with the usage, for clients that asked for it. */
  readonly usageChunk: (usage: Usage) => string
  readonly usage: () => Usage | null
  /** Chunks with something in them that went to the client. */
  readonly deliveredCount: () => number
}

type Choice = { started: boolean; finished: boolean; content: string; refused: boolean; calls: Set<number> }

export function createStreamAnswer(plan: AnswerPlan, textCharsMax: number): StreamAnswer {
  const { request } = plan
  const isChat = request.operation === 'chat'
  const head = {
    id: plan.id,
    object: isChat ? 'chat.completion.chunk' : 'text_completion',
    created: plan.createdS,
    model: request.model,
  }
  /** Every chunk is this, its choices, and how it closes: only the choices are made anew. */
  const opening = `${JSON.stringify(head).slice(0, -1)},"choices":`
  const closing = request.includeUsage ? ',"usage":null}' : '}'
  const keepsText = request.format.kind !== 'text'
  const states = new Map<number, Choice>()
  let usage: Usage | null = null
  let delivered = 0
  let keptChars = 0

  const chatChoice = (choice: JsonObject, index: number, state: Choice) => {
    const delta = choice.delta ?? {}
    if (!isObject(delta)) throw malformed()
    const content = textOrNull(delta.content)
    const refusal = textOrNull(delta.refusal)
    const calls = callsOf(delta.tool_calls, state, plan)
    if (state.finished && (content || refusal || calls.length > 0)) throw malformed()
    if (content || refusal || calls.length > 0) delivered += 1
    if (refusal) state.refused = true
    if (keepsText && content) {
      keptChars += content.length
      if (keptChars > textCharsMax) throw new UpstreamFault('too_large')
      state.content += content
    }
    const passed: Record<string, unknown> = {}
    if (!state.started) {
      passed.role = 'assistant'
      passed.content = calls.length > 0 ? null : ''
    }
    state.started = true
    if (content !== null) passed.content = content
    if (refusal !== null) passed.refusal = refusal
    if (calls.length > 0) passed.tool_calls = calls
    return {
      index,
      delta: passed,
      logprobs: chatLogprobs(choice.logprobs),
      finish_reason: ending(choice.finish_reason, state),
    }
  }

  const textChoice = (choice: JsonObject, index: number, state: Choice) => {
    const text = textOrNull(choice.text) ?? ''
    if (state.finished && text !== '') throw malformed()
    if (text !== '') delivered += 1
    return {
      index,
      text,
      logprobs: textLogprobs(choice.logprobs),
      finish_reason: ending(choice.finish_reason, state),
    }
  }

  const ending = (reason: unknown, state: Choice): string | null => {
    if (reason === undefined || reason === null || reason === '') return null
    if (state.finished) throw malformed()
    const finish = finishOf(reason, request.operation)
    const calls = state.calls.size
    checkTools(plan, { calls, reason: finish })
    checkFormat(plan, { content: state.content, calls, reason: finish, refused: state.refused })
    state.finished = true
    state.content = ''
    return namedFinish(finish, calls)
  }

  const stateOf = (index: unknown): Choice => {
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= request.choiceCount) {
      throw malformed()
    }
    const known = states.get(index)
    if (known !== undefined) return known
    const fresh = { started: false, finished: false, content: '', refused: false, calls: new Set<number>() }
    states.set(index, fresh)
    return fresh
  }

  return {
    take: data => {
      if (data === '[DONE]') {
        const finished = [...states.values()].filter(state => state.finished).length
        if (finished !== request.choiceCount) throw new UpstreamFault('unfinished')
        return 'end'
      }
      const value = parseText(data)
      if (!isObject(value)) throw malformed()
      if (value.error !== undefined && value.error !== null) throw new UpstreamFault('reported_error')
      usage = usageOf(value.usage) ?? usage
      if (!Array.isArray(value.choices)) throw malformed()
      if (value.choices.length === 0) return null
      const choices = value.choices.map(choice => {
        if (!isObject(choice)) throw malformed()
        const index = choice.index ?? 0
        const state = stateOf(index)
        return isChat ? chatChoice(choice, Number(index), state) : textChoice(choice, Number(index), state)
      })
      return opening + JSON.stringify(choices) + closing
    },
    usageChunk: final => JSON.stringify({ ...head, choices: [], usage: final }),
    usage: () => usage,
    deliveredCount: () => delivered,
  }
}

const callsMax = 128

/** Pieces of tool calls. A call's first piece names its function, and it must be one that may be called. */
function callsOf(calls: unknown, state: Choice, plan: AnswerPlan): JsonObject[] {
  if (calls === undefined || calls === null) return []
  if (!Array.isArray(calls)) throw malformed()
  return calls.map(call => {
    if (!isObject(call)) throw malformed()
    const index = call.index ?? 0
    if (typeof index !== 'number' || !Number.isInteger(index) || index < 0 || index >= callsMax) throw malformed()
    const detail = call.function ?? {}
    if (!isObject(detail)) throw malformed()
    const name = textOrNull(detail.name)
    const args = textOrNull(detail.arguments) ?? ''
    if (state.calls.has(index)) return { index, function: { arguments: args } }
    if (name === null || !plan.request.tools.has(name)) throw new UpstreamFault('wrong_tool')
    state.calls.add(index)
    return { index, id: callId(call.id, index, plan), type: 'function', function: { name, arguments: args } }
  })
}
