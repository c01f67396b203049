// Which operations are other APIs over chat completions. Pure.

import type { ApiShape } from '../openai/shape.ts'
import type { CompletionOperation, Operation } from '../types.ts'
import { responsesShape } from './responses/shape.ts'

export const SHAPES = { responses: responsesShape } as const satisfies Record<
  Exclude<Operation, CompletionOperation | 'embeddings'>,
  ApiShape
>

export type ShapedOperation = keyof typeof SHAPES

export function isShaped(operation: Operation): operation is ShapedOperation {
  return Object.hasOwn(SHAPES, operation)
}
