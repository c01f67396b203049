// Limits the access log's lines of requests without a good key: anybody can send them, and a full journal drops lines
// that the operator needs. State in memory.

import type { Clock } from '../base/clock.ts'
import type { LogFields, LogLevel } from '../base/log.ts'
import { createWindow } from './window.ts'

const linesPerMinute = 120

/** The level of a line, and its additional fields. */
export type StrangerLines = (level: LogLevel) => { readonly level: LogLevel; readonly more: LogFields }

/** Lines above the limit become `debug`; the next line of a higher level reports how many. */
export function createStrangerLines(clock: Pick<Clock, 'monotonicMs'>): StrangerLines {
  const window = createWindow()
  let leftOut = 0
  return level => {
    const nowMs = clock.monotonicMs()
    if (level === 'debug') return { level, more: {} }
    if (window.waitMs(nowMs, 1, linesPerMinute) > 0) {
      leftOut += 1
      return { level: 'debug', more: {} }
    }
    window.take(nowMs, 1)
    const more = leftOut === 0 ? {} : { left_out: leftOut }
    leftOut = 0
    return { level, more }
  }
}
