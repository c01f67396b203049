// Goal: an operator reads a build's log as lines, to its end or as far as it is, and a reader that left is let go.

import { expect, test } from 'bun:test'
import { present } from '../../../src/base/assert.ts'
import { readLine, toLine } from '../../../src/builds/events/line.codec.ts'
import { logText } from '../../../src/builds/events/log-text.ts'
import type { BuildEvent } from '../../../src/contract/http/build.ts'

const EVENTS: readonly BuildEvent[] = [
  { type: 'queued', position: 2 },
  { type: 'build', msg: 'Compiling hello' },
  { type: 'complete', result: { status: 'failed', error: 'no artifacts', error_type: 'no_artifacts' } },
]

/** Gives one event at a time, then nothing for as long as it is open. */
function readerOf(events: readonly BuildEvent[], isOpen: boolean) {
  let at = 0
  const waits: number[] = []
  return {
    waits,
    next: async (waitMs: number) => {
      waits.push(waitMs)
      const data = events[at]
      if (data === undefined) return isOpen ? [] : null
      at += 1
      return [present(readLine(toLine({ id: at, seq: null, atMs: 0, data }).trimEnd()), 'a line')]
    },
  }
}

const read = async (lines: AsyncIterable<Uint8Array>) => Buffer.concat(await Array.fromAsync(lines)).toString()
const forever = new AbortController().signal

test('goal: each event is a line, and the last one says how it ended', async () => {
  expect(await read(logText(readerOf(EVENTS, false), { follow: true, signal: forever }))).toBe(
    'queued: 2 before it\nbuild: Compiling hello\ncomplete: no_artifacts: no artifacts\n',
  )
})

test('goal: without --follow nobody waits for a build that runs', async () => {
  const reader = readerOf(EVENTS.slice(0, 1), true)
  expect(await read(logText(reader, { follow: false, signal: forever }))).toBe('queued: 2 before it\n')
  expect(reader.waits).toEqual([0, 0])
})

test('goal: a follower that leaves ends the reading', async () => {
  const leave = new AbortController()
  const reader = readerOf(EVENTS.slice(0, 1), true)
  const lines = logText(reader, { follow: true, signal: leave.signal })
  await lines.next()
  leave.abort()
  expect(await lines.next()).toEqual({ done: true, value: undefined })
})
