// Waiting for a condition in tests, with a deadline instead of a sleep. Effects: timers.

/** Fast at first, then slowly: a hundred requests a second to a daemon cost the awaited VM a tenth of a processor. */
const [soonMs, pollMs, patientPollMs] = [1_000, 10, 50]

/** Resolves as soon as `condition` holds; throws, naming `what`, when it still does not after `timeoutMs`. */
export async function until(what: string, timeoutMs: number, condition: () => unknown): Promise<void> {
  const startedMs = performance.now()
  while (!(await condition())) {
    const waitedMs = performance.now() - startedMs
    if (waitedMs > timeoutMs) throw new Error(`not within ${timeoutMs} ms: ${what}`)
    await Bun.sleep(waitedMs < soonMs ? pollMs : patientPollMs)
  }
}

/** Collects all pieces. */
export async function allOf<T>(pieces: AsyncIterable<readonly T[]>): Promise<T[]> {
  return (await Array.fromAsync(pieces)).flat()
}

/** The Fault (or other error) that a promise rejects with; throws when it resolves. */
export async function failure(promise: Promise<unknown>): Promise<{ code?: string; message: string }> {
  try {
    await promise
  } catch (error) {
    return error as { code?: string; message: string }
  }
  throw new Error('expected a failure, got none')
}
