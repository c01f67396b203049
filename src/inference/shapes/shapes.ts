// Which operations are other APIs over chat completions. Pure.

import type { ApiShape } from '../openai/shape.ts'
import type { CompletionOperation, Operation } from '../types.ts'
import { messagesShape } from './messages/shape.ts'
import { responsesShape } from './responses/shape.ts'

export const SHAPES = { responses: responsesShape, messages: messagesShape } as const satisfies Record<
  Exclude<Operation, CompletionOperation | 'embeddings'>,
  ApiShape
>

export type ShapedOperation = keyof typeof SHAPES

export function isShaped(operation: Operation): operation is ShapedOperation {
  return Object.hasOwn(SHAPES, operation)
}

/** Null for what needs no translation. */
export function shapeOf(operation: Operation): ApiShape | null {
  return isShaped(operation) ? SHAPES[operation] : null
}
