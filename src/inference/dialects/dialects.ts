// Which operations are other APIs over chat completions. Pure.

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

/** The API that an unknown path belongs to; null: OpenAI's. */
export function dialectBelow(path: string): Dialect | null {
  return path.startsWith('/v1/messages/') ? messagesDialect : null
}

/** Null for what needs no translation. */
export function dialectOf(operation: Operation): Dialect | null {
  if (isCount(operation)) return COUNTED[operation]
  return hasDialect(operation) ? DIALECTS[operation] : null
}
