// The checks of a comparison of a GPU's measurements with manifests. Pure.

import { type Check, notChecked } from '../verdict.ts'

export type Comparison = {
  readonly checks: readonly [indices: Check, measurements: Check]
  /** Measurements with a value for which neither manifest has one. */
  readonly uncompared: readonly number[]
}

export const [indicesName, measurementsName] = ['gpu-rim-indices', 'gpu-measurements'] as const

/** Both checks, without a manifest to compare with. */
export function nothingCompared(reason: string): Comparison {
  return {
    checks: [notChecked(indicesName, reason, true), notChecked(measurementsName, reason, true)],
    uncompared: [],
  }
}
