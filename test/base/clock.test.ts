import { expect, test } from 'bun:test'
import { onAbort, pause, systemClock } from '../../src/base/clock.ts'

// Goal: whoever pauses is let go by the signal, without an error to catch.
test('pause ends early, quietly', async () => {
  const stopping = new AbortController()
  const paused = pause(systemClock, 60_000, stopping.signal)
  stopping.abort()
  expect(await paused).toBeUndefined()
  expect(await pause(systemClock, 60_000, stopping.signal)).toBeUndefined()
})

// Goal: the action runs once, also when the signal was aborted before; not at all when it was taken back.
test('onAbort', () => {
  const stopping = new AbortController()
  const calls: string[] = []
  onAbort(stopping.signal, () => calls.push('kept'))
  const takeBack = onAbort(stopping.signal, () => calls.push('taken back'))
  takeBack()
  stopping.abort()
  onAbort(stopping.signal, () => calls.push('late'))
  expect(calls).toEqual(['kept', 'late'])
})
