// A process that stops itself is traced from there on.

import { expect, test } from 'bun:test'
import { trace } from '../../../scripts/faults/tracing.ts'

/** It stops itself as soon as a line comes in, then runs a program that writes a file. */
function stopping(file: string) {
  const script = 'read -r line; kill -STOP $$; exec tee "$1"'
  return Bun.spawn(['sh', '-c', script, 'sh', file], { stdin: 'pipe', stdout: 'ignore', stderr: 'inherit' })
}

// Goal: a process that has not stopped itself when the tracer comes, as on a busy machine, is let go on after its stop,
// and its effects are seen.
test('a process that stops itself after the tracer came', async () => {
  const child = stopping('/dev/null')
  await using tracing = await trace(child.pid, { killAfter: 'all', isHeld: true })
  child.stdin.write('go on\n')
  child.stdin.end()
  expect(await child.exited).toBe(0)
  await tracing.end()
  expect(tracing.effects.some(effect => effect.includes('/dev/null'))).toBe(true)
})
