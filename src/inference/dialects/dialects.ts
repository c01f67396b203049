// The operations of other APIs over chat completions. Pure.
//
// Every engine gets chats, even if it has routes for Responses or Messages. In the engines' sources of 2026:
//
// - vLLM, SGLang, llama-server and Ollama turn Messages into chats themselves, so the model gets the same prompt. They
//   do so with Responses as well, except for gpt-oss at vLLM and SGLang. The chats of vLLM have its reasoning, too.
// - Messages have no `cache_salt` at vLLM and SGLang, and llama-server drops `cache_prompt`. Keys would share a prompt
//   cache, and response times would reveal their prompts.
// - Responses of gpt-oss take no `tool_choice` but "auto" and "none", and at vLLM no log probabilities. SGLang offers
//   gpt-oss the tools of its own server, even if the request has none.
// - vLLM does not enforce `json_object` of Responses. Ollama has no `tool_choice` there.

import type { Dialect } from '../openai/dialect.ts'
import type { CompletionOperation, CountOperation, Operation, PooledOperation } from '../types.ts'
import { messagesDialect } from './messages/dialect.ts'
import { compactDialect, responsesDialect } from './responses/dialect.ts'

export const DIALECTS = {
  responses: responsesDialect,
  compact: compactDialect,
  messages: messagesDialect,
} as const satisfies Record<Exclude<Operation, CompletionOperation | CountOperation | PooledOperation>, Dialect>

export type DialectOperation = keyof typeof DIALECTS

export function hasDialect(operation: Operation): operation is DialectOperation {
  return Object.hasOwn(DIALECTS, operation)
}

/** The API whose prompts an operation counts. */
export const COUNTED = {
  count_tokens: messagesDialect,
  input_tokens: responsesDialect,
} as const satisfies Record<CountOperation, Dialect>

export function isCount(operation: Operation): operation is CountOperation {
  return Object.hasOwn(COUNTED, operation)
}

/** Returns the API that an unknown path belongs to; null for OpenAI's. */
export function dialectBelow(path: string): Dialect | null {
  return path.startsWith('/v1/messages/') ? messagesDialect : null
}

/** Returns the operation's dialect; null if it needs no translation. */
export function dialectOf(operation: Operation): Dialect | null {
  if (isCount(operation)) return COUNTED[operation]
  return hasDialect(operation) ? DIALECTS[operation] : null
}
