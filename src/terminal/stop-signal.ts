// Lets a command clean up when it is stopped: by Ctrl-C, a closed terminal, or kill. Effects: signal handlers.

import type { Io } from './io.ts'

export type StopSignal = Disposable & { readonly signal: AbortSignal }

/** Aborts `signal` instead of ending the program, until it is disposed. */
export function stopSignal({ onSignal }: Pick<Io, 'onSignal'>): StopSignal {
  const stopping = new AbortController()
  const removals = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map(name => onSignal(name, () => stopping.abort()))
  return {
    signal: stopping.signal,
    [Symbol.dispose]: () => {
      for (const remove of removals) remove()
    },
  }
}
