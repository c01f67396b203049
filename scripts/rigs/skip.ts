// The one way to leave a test out: with a reason that the test run reads and repeats.

/** For `test.skipIf(skipUnless(isRoot, 'needs root'))`: true when the condition fails, after printing the reason. */
export function skipUnless(condition: boolean, reason: string): boolean {
  if (!condition) process.stdout.write(`not run: ${reason}\n`)
  return !condition
}
