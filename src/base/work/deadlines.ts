// Many deadlines with few timers: deadlines of one length are due in their order, so one timer serves them. Effects:
// timers.

import type { Clock } from '../clock.ts'

export type Deadlines = {
  /** Calls `onLate` after `ms`, unless the returned function is called before. */
  readonly after: (ms: number, onLate: () => void) => () => void
  /** A deadline for repeated `set`, cheaper than a new deadline each time. */
  readonly moving: (onLate: () => void) => MovingDeadline
}

export type MovingDeadline = {
  /** Calls `onLate` after `ms`, instead of the earlier time. */
  readonly set: (ms: number) => void
  readonly clear: () => void
}

/** A doubly linked list: nearly every deadline is cancelled soon, wherever in the list it stands. */
type Entry = {
  dueMs: number
  /** Time of its entry in the queue; earlier than `dueMs` after a move. */
  turnMs: number
  readonly onLate: () => void
  /** Null if not in a queue. */
  queue: Queue | null
  before: Entry | null
  next: Entry | null
}

type Queue = { readonly ms: number; first: Entry | null; last: Entry | null; isAsleep: boolean }

/** For lengths from configuration: each length has its own queue, which is never removed. */
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
      const leftMs = head.turnMs - clock.monotonicMs()
      if (leftMs > 0) {
        await clock.sleep(leftMs)
        continue
      }
      remove(head)
      if (head.dueMs > head.turnMs) insert(queue, head)
      else head.onLate()
    }
    queue.isAsleep = false
  }
  const begin = (entry: Entry, ms: number) => {
    const queue = queueOf(ms)
    entry.dueMs = clock.monotonicMs() + ms
    insert(queue, entry)
    if (queue.isAsleep) return
    queue.isAsleep = true
    void run(queue)
  }
  return {
    after: (ms, onLate) => {
      const entry = newEntry(onLate)
      begin(entry, ms)
      return () => remove(entry)
    },
    moving: onLate => {
      const entry = newEntry(onLate)
      return {
        set: ms => {
          // A deadline keeps its place until its turn comes, because it is likely to move again.
          if (entry.queue?.ms === ms) {
            entry.dueMs = clock.monotonicMs() + ms
            return
          }
          remove(entry)
          begin(entry, ms)
        },
        clear: () => remove(entry),
      }
    },
  }
}

function newEntry(onLate: () => void): Entry {
  return { dueMs: 0, turnMs: 0, onLate, queue: null, before: null, next: null }
}

/** Ordered by `turnMs`. Searches from the end, where nearly all belong. */
function insert(queue: Queue, entry: Entry): void {
  let before = queue.last
  while (before !== null && before.turnMs > entry.dueMs) before = before.before
  const next = before === null ? queue.first : before.next
  entry.turnMs = entry.dueMs
  entry.queue = queue
  entry.before = before
  entry.next = next
  if (before === null) queue.first = entry
  else before.next = entry
  if (next === null) queue.last = entry
  else next.before = entry
}

/** No effect if already removed. */
function remove(entry: Entry): void {
  const { queue, before, next } = entry
  if (queue === null) return
  if (before === null) queue.first = next
  else before.next = next
  if (next === null) queue.last = before
  else next.before = before
  entry.queue = null
  entry.before = null
  entry.next = null
}
