// The failure of a build: a stable type for programs, a sentence for people. Pure.

import { messageOf } from '../base/fault.ts'
import type { BuildErrorType } from '../contract/http/build.ts'
import { SourceFailure } from '../linux/source/failure.ts'

/** A failure. Its `message` is sent to the client, and names the file or field and the remedy. */
export class BuildFailure extends Error {
  readonly errorType: BuildErrorType

  constructor(errorType: BuildErrorType, message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'BuildFailure'
    this.errorType = errorType
  }
}

/** Converts an error. An unexpected one becomes `internal`. */
export function failureOf(error: unknown): BuildFailure {
  if (error instanceof BuildFailure) return error
  if (error instanceof SourceFailure) return new BuildFailure('source_invalid', error.message, { cause: error })
  return new BuildFailure('internal', `the build VM failed: ${messageOf(error)}`, { cause: error })
}

/** A cause of failure, recognized by words in the output of a tool. */
export type Cause = {
  readonly pattern: RegExp
  readonly errorType: BuildErrorType
  /** Names the cause and the remedy. */
  readonly message: string
}

/**
 * Returns the failure of the first cause that matches the output, or `build_failed` with `what`: how the tool ended.
 */
export function causedFailure(causes: readonly Cause[], what: string, output: string): BuildFailure {
  const cause = causes.find(({ pattern }) => pattern.test(output))
  return cause === undefined
    ? new BuildFailure('build_failed', `${what}: ${output}`)
    : new BuildFailure(cause.errorType, `${cause.message}: ${output}`)
}

/** Describes how a program ended. A sandbox reports a signal as 128 plus its number. */
export function exitText(code: number, limits: { readonly memoryBytes: number }): string {
  const signal = code - signalBase
  if (signal <= 0 || signal > signalMax) return `exit code ${code}`
  if (signal !== sigkill) return `ended by signal ${signal}`
  return `ended by signal 9, usually because it ran out of memory; the limit is ${limits.memoryBytes} bytes`
}

const signalBase = 128
const signalMax = 64
const sigkill = 9

export function refuseUnless(condition: boolean, errorType: BuildErrorType, message: () => string): asserts condition {
  if (!condition) throw new BuildFailure(errorType, message())
}
