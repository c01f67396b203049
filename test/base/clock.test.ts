import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { onAbort, pause, systemClock } from '../../src/base/clock.ts'

test('goal: an aborted signal ends a pause early, without an error to catch', async () => {
  const stopping = new AbortController()
  const paused = pause(systemClock, 60_000, stopping.signal)
  stopping.abort()
  expect(await paused).toBeUndefined()
  expect(await pause(systemClock, 60_000, stopping.signal)).toBeUndefined()
})

test('goal: the action runs once, also when the signal was aborted before, and not at all when it was cancelled', () => {
  const stopping = new AbortController()
  const calls: string[] = []
  onAbort(stopping.signal, () => calls.push('kept'))
  const cancel = onAbort(stopping.signal, () => calls.push('cancelled'))
  cancel()
  stopping.abort()
  onAbort(stopping.signal, () => calls.push('late'))
  expect(calls).toEqual(['kept', 'late'])
})

test('goal: a sleep beyond what timers take does not end at once: whoever looks again after it would never rest', async () => {
  const stopping = new AbortController()
  let isOver = false
  const slept = pause(systemClock, 40 * 86_400_000, stopping.signal).then(() => {
    isOver = true
  })
  await systemClock.sleep(50)
  expect(isOver).toBe(false)
  stopping.abort()
  await slept
})

test('goal: a time that is over already is no error and no line on standard error', async () => {
  const code = `import { systemClock } from '${join(import.meta.dir, '../../src/base/clock.ts')}'
    await systemClock.sleep(-5)
    console.log('over')`
  const child = Bun.spawn([process.execPath, '-e', code], { stdout: 'pipe', stderr: 'pipe' })
  expect([await child.stdout.text(), await child.stderr.text()]).toEqual(['over\n', ''])
})
