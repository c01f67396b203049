// A guard over the clock of a test: the host's uptime is the clock's monotonic time, its mark is in memory.

import type { Clock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ClockGuard, type ClockGuardDeps } from '../../src/base/work/clock-guard.ts'

export function createClockGuard(clock: Clock, changes: Partial<ClockGuardDeps> = {}): ClockGuard {
  return new ClockGuard({
    clock,
    host: { bootId: 'boot', uptimeMs: clock.monotonicMs, isSynchronised: () => false },
    readMark: () => null,
    writeMark: () => {},
    log: silentLogger,
    onEvent: () => {},
    ...changes,
  })
}
