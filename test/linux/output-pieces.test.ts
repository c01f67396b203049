// Goal: a command that writes faster than it is read leaves this thread to others.

import { expect, test } from 'bun:test'
import { piecesOf } from '../../src/linux/output-pieces.ts'

const slowly = (ms: number) => {
  const untilMs = performance.now() + ms
  while (performance.now() < untilMs);
}

test('goal: timers come while a command writes without end and each piece of it takes time', async () => {
  const child = Bun.spawn(['yes'], { stdin: 'ignore', stdout: 'pipe', stderr: 'ignore' })
  let turns = 0
  const timer = setInterval(() => {
    turns += 1
  }, 5)
  try {
    const startMs = performance.now()
    let pieces = 0
    for await (const piece of piecesOf(child.stdout)) {
      expect(piece.length).toBeLessThanOrEqual(4_096)
      slowly(3)
      pieces += 1
      // A fifth of the timer's turns is enough; without pauses there is none. Some come before the command writes.
      if ((turns >= 20 && pieces > 20) || performance.now() - startMs > 10_000) break
    }
    expect(turns).toBeGreaterThanOrEqual(20)
    expect(pieces).toBeGreaterThan(20)
  } finally {
    clearInterval(timer)
    child.kill('SIGKILL')
    await child.exited
  }
})

test('goal: every byte comes in its order, and whoever stops has ended the stream', async () => {
  const bytes = Uint8Array.from({ length: 10_000 }, (_, at) => at % 251)
  const whole: Uint8Array[] = []
  for await (const piece of piecesOf(new Blob([bytes]).stream())) whole.push(piece.slice())
  expect(Buffer.concat(whole).equals(bytes)).toBe(true)
  let isCancelled = false
  const endless = new ReadableStream<Uint8Array>({
    pull: controller => controller.enqueue(bytes),
    cancel: () => {
      isCancelled = true
    },
  })
  for await (const _ of piecesOf(endless)) break
  expect(isCancelled).toBe(true)
})
