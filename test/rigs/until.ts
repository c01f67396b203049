// Waiting for a condition in tests, with a deadline instead of a sleep. Effects: timers.

/** Resolves as soon as `condition` holds; throws, naming `what`, when it still does not after `timeoutMs`. */
export async function until(what: string, timeoutMs: number, condition: () => unknown): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs
  while (!(await condition())) {
    if (performance.now() > deadlineMs) throw new Error(`not within ${timeoutMs} ms: ${what}`)
    await Bun.sleep(10)
  }
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
