// The current time, for relative times. Effects: a timer.

import { signal } from '@preact/signals'

const tickMs = 5_000

export const nowMs = signal(Date.now())

setInterval(() => {
  if (!document.hidden) nowMs.value = Date.now()
}, tickMs)
