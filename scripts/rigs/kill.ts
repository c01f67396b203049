// Ends processes that a test has found. Effects: signals.

/** Throws for a pid that was not found: 0 would be the test's own process group, with its runner. */
export function killFound(pid: number | undefined, signal: NodeJS.Signals = 'SIGKILL'): void {
  if (pid === undefined || !Number.isSafeInteger(pid) || pid <= 1) throw new Error(`no process to signal: pid ${pid}`)
  process.kill(pid, signal)
}
