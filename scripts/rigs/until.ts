// Waiting for a condition in tests, with a deadline instead of a sleep. Effects: timers.

/** What was soon is seen soon; to ask a daemon a hundred times a second takes a tenth of a processor from the VM that is waited for. */
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

/** What comes in pieces. */
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
