// An end for every wait on the other side of a connection. Effects: a timer.

/** The longest silence within a message: a model may think for minutes before its first byte. */
export const silenceMs = 600_000

/** The result of `work`, or an Error after `ms` milliseconds. */
export async function within<T>(work: Promise<T>, ms: number = silenceMs): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(new Error(`no byte within ${ms / 1000} s`)), ms)
  try {
    return await Promise.race([work, late.promise])
  } finally {
    clearTimeout(timer)
  }
}
