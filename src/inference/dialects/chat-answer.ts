// Reads the gateway's own chat completions and chunks for their translation. Pure: this process has checked and written
// them.

import { isObject, type JsonObject } from '../json-text.ts'

export type ChatCall = { readonly id: string; readonly name: string; readonly args: string }

/** An answer. Missing texts are empty. */
export type ChatAnswer = {
  readonly reasoning: string
  readonly content: string
  readonly refusal: string
  readonly calls: readonly ChatCall[]
  readonly logprobs: readonly JsonObject[]
  readonly finishReason: string | null
}

/** One piece of a call. `start`: set on the first piece. */
export type CallPiece = {
  readonly index: number
  readonly start: { readonly id: string; readonly name: string } | null
  readonly args: string
}

export type ChatDelta = Omit<ChatAnswer, 'calls'> & { readonly pieces: readonly CallPiece[] }

/** Reads the fields of the single choice. */
export function readCompletion(completion: JsonObject): ChatAnswer {
  const choice = fieldsOf(listOf(completion.choices)[0])
  const message = fieldsOf(choice.message)
  const calls = listOf(message.tool_calls).map(call => {
    const { id, function: called } = fieldsOf(call)
    const { name, arguments: args } = fieldsOf(called)
    return { id: textOrEmpty(id), name: textOrEmpty(name), args: textOrEmpty(args) }
  })
  return { ...textsOf(message), ...endOf(choice), calls }
}

/** Reads a chunk, which may contain the only choice more than once. */
export function readChunk(json: string): ChatDelta[] {
  return listOf(fieldsOf(JSON.parse(json)).choices).map(item => {
    const choice = fieldsOf(item)
    const delta = fieldsOf(choice.delta)
    const pieces = listOf(delta.tool_calls).map(call => {
      const { index, id, function: called } = fieldsOf(call)
      const { name, arguments: args } = fieldsOf(called)
      const start = id === undefined ? null : { id: textOrEmpty(id), name: textOrEmpty(name) }
      return { index: Number(index), start, args: textOrEmpty(args) }
    })
    return { ...textsOf(delta), ...endOf(choice), pieces }
  })
}

function textsOf({ content, refusal, reasoning_content, reasoning }: JsonObject) {
  // Engines that send both fields send the same text in both.
  return {
    reasoning: textOrEmpty(reasoning_content) || textOrEmpty(reasoning),
    content: textOrEmpty(content),
    refusal: textOrEmpty(refusal),
  }
}

function endOf({ finish_reason: finishReason, logprobs }: JsonObject) {
  return {
    finishReason: typeof finishReason === 'string' ? finishReason : null,
    logprobs: listOf(fieldsOf(logprobs).content).filter(isObject),
  }
}

function fieldsOf(value: unknown): JsonObject {
  return isObject(value) ? value : {}
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

function textOrEmpty(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
