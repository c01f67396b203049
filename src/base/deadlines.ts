// Many deadlines with few timers: deadlines of one length are due in the order in which they were set, so that one timer is enough. Effects: timers.

import type { Clock } from './clock.ts'

export type Deadlines = {
  /** Calls `onLate` after `ms`, unless the returned function is called before. */
  readonly after: (ms: number, onLate: () => void) => () => void
}

/** A doubly linked list: nearly every deadline is cancelled soon, wherever in the list it stands. */
type Entry = {
  readonly dueMs: number
  readonly onLate: () => void
  before: Entry | null
  next: Entry | null
}

type Queue = { readonly ms: number; first: Entry | null; last: Entry | null; isAsleep: boolean }

/** For lengths that come from configuration: each length has a queue of its own, which is never removed. */
export function createDeadlines(clock: Clock): Deadlines {
  const queues = new Map<number, Queue>()
  const queueOf = (ms: number): Queue => {
    const known = queues.get(ms)
    if (known !== undefined) return known
    const queue = { ms, first: null, last: null, isAsleep: false }
    queues.set(ms, queue)
    return queue
  }
  const run = async (queue: Queue) => {
    for (let head = queue.first; head !== null; head = queue.first) {
      const leftMs = head.dueMs - clock.monotonicMs()
      if (leftMs > 0) {
        await clock.sleep(leftMs)
        continue
      }
      remove(queue, head)
      head.onLate()
    }
    queue.isAsleep = false
  }
  return {
    after: (ms, onLate) => {
      const queue = queueOf(ms)
      const entry: Entry = { dueMs: clock.monotonicMs() + ms, onLate, before: queue.last, next: null }
      if (queue.last === null) queue.first = entry
      else queue.last.next = entry
      queue.last = entry
      if (!queue.isAsleep) {
        queue.isAsleep = true
        void run(queue)
      }
      return () => remove(queue, entry)
    },
  }
}

/** No effect if already removed. */
function remove(queue: Queue, entry: Entry): void {
  if (entry.before === null && queue.first !== entry) return
  if (entry.before === null) queue.first = entry.next
  else entry.before.next = entry.next
  if (entry.next === null) queue.last = entry.before
  else entry.next.before = entry.before
  entry.before = null
  entry.next = null
}
