// How a build ends without a result: a stable type for programs, a sentence for people. Pure.

import { messageOf } from '../base/fault.ts'
import type { BuildErrorType } from '../contract/http/build.ts'
import { SourceFailure } from '../linux/source/failure.ts'

/** `message` goes to the client: it names the file or field and the remedy. */
export class BuildFailure extends Error {
  readonly errorType: BuildErrorType

  constructor(errorType: BuildErrorType, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'BuildFailure'
    this.errorType = errorType
  }
}

/** An unforeseen error is `internal`. */
export function failureOf(error: unknown): BuildFailure {
  if (error instanceof BuildFailure) return error
  if (error instanceof SourceFailure) return new BuildFailure('source_invalid', error.message, { cause: error })
  return new BuildFailure('internal', `the build VM failed: ${messageOf(error)}`, { cause: error })
}

export function refuseUnless(condition: boolean, errorType: BuildErrorType, message: () => string): asserts condition {
  if (!condition) throw new BuildFailure(errorType, message())
}
