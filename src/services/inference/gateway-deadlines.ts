// Many deadlines for few timers: those of one length fall due in the order they were set, so one sleep serves them all. Effects: timers.

import type { Clock } from '../../base/clock.ts'

export type Deadlines = {
  /** Calls `onLate` after `ms`, unless the function it gives was called before. */
  readonly after: (ms: number, onLate: () => void) => () => void
}

type Entry = { readonly dueMs: number; readonly onLate: () => void }

/** For lengths that come from configuration: there is one queue for each, for good. */
export function createDeadlines(clock: Clock): Deadlines {
  const queues = new Map<number, Set<Entry>>()
  const asleep = new Set<number>()
  const run = async (ms: number, queue: Set<Entry>) => {
    for (let head = firstOf(queue); head !== null; head = firstOf(queue)) {
      const leftMs = head.dueMs - clock.monotonicMs()
      if (leftMs > 0) {
        await clock.sleep(leftMs)
        continue
      }
      queue.delete(head)
      head.onLate()
    }
    asleep.delete(ms)
  }
  return {
    after: (ms, onLate) => {
      const queue = queues.get(ms) ?? new Set<Entry>()
      if (queue.size === 0) queues.set(ms, queue)
      const entry = { dueMs: clock.monotonicMs() + ms, onLate }
      queue.add(entry)
      if (!asleep.has(ms)) {
        asleep.add(ms)
        void run(ms, queue)
      }
      return () => void queue.delete(entry)
    },
  }
}

function firstOf(queue: Set<Entry>): Entry | null {
  const first = queue.values().next()
  return first.done === true ? null : first.value
}
