// A source that is not allowed: its files, names or links are not those of a plain tree. Pure.

/** `message` names the file and the problem. */
export class SourceFailure extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'SourceFailure'
  }
}

export function refuseUnless(condition: boolean, message: () => string): asserts condition {
  if (!condition) throw new SourceFailure(message())
}

export function invalid(problem: string): SourceFailure {
  return new SourceFailure(`source: ${problem}`)
}
