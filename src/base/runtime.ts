// The parts of the outside world that nearly every unit with effects takes as dependencies. Types only.

import type { Clock } from './clock.ts'
import type { RandomBytes } from './ids.ts'
import type { Logger } from './log.ts'

export type Runtime = {
  readonly clock: Clock
  readonly random: RandomBytes
  readonly log: Logger
}
