// What a scenario of the fault suite has to say. Pure: types.

import type { Appliance } from '../rigs/appliance.ts'

/** Sentences about what is wrong; empty: nothing is. */
export type Findings = readonly string[]

/** One scenario on one appliance, for any number of runs one after another. */
export type Stage = {
  readonly appliance: Appliance
  /** Brings everything to where a run begins. The daemon runs; where the scenario is traced from its start on, it is ended after this. */
  readonly prepare: () => Promise<void>
  /**
   * What happens while the daemon is traced. It may die at any moment of it, and ends the run then; `dead` is aborted, too, for whatever waits without
   * asking the daemon. What was acknowledged until then is kept for the audit.
   */
  readonly run: (dead: AbortSignal) => Promise<void>
  /** What is not yet as it must become by itself after a restart. Asked again and again. */
  readonly unsettled: () => Promise<Findings>
  /** Once all has settled: what was promised and is not so. May send requests of its own. */
  readonly audit: () => Promise<Findings>
  /** Takes down what the run has made. What cannot be taken down, or stays after that. */
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
