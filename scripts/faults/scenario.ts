// The interface of a scenario of the fault suite. Pure: types.

import type { Appliance } from '../rigs/appliance.ts'

/** Sentences about what is wrong; empty: nothing is. */
export type Findings = readonly string[]

/** One scenario on one appliance, for any number of runs one after another. */
export type Stage = {
  readonly appliance: Appliance
  /** Brings the state to where a run begins. The daemon runs; a scenario traced from its start ends it afterwards. */
  readonly prepare: () => Promise<void>
  /**
   * The work under trace. The daemon may die at any moment, which ends the run; `dead` is then aborted, for waits that
   * ask no daemon. The audit keeps the acknowledgements up to then.
   */
  readonly run: (dead: AbortSignal) => Promise<void>
  /** State that has not settled after a restart. Called again and again. */
  readonly unsettled: () => Promise<Findings>
  /** Once all has settled: what was promised and is not so. May send requests of its own. */
  readonly audit: () => Promise<Findings>
  /** Removes everything of the run. Returns what cannot be removed, or stays. */
  readonly clear: () => Promise<Findings>
} & AsyncDisposable

export type Scenario = {
  readonly name: string
  /** For people: what happens in it. */
  readonly about: string
  /** Whether the daemon is traced from its first instruction on, or from the beginning of `run`. */
  readonly tracedFrom: 'start' | 'run'
  readonly open: () => Promise<Stage>
  /** How long `run` may take where a guest boots in it; else a minute. */
  readonly runMs?: number
}
