// A fallback for work that may fail for any reason. Effects: those of the work.

/** The result of `work`, or `fallback` if it throws, whatever it throws. */
export function resultOr<Result, Fallback>(work: () => Result, fallback: Fallback): Result | Fallback {
  try {
    return work()
  } catch {
    return fallback
  }
}
