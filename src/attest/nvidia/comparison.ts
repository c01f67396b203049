// The checks that compare a GPU's measurements with manifests. Pure.

import { type Check, notChecked } from '../verdict.ts'

export type Comparison = {
  readonly checks: readonly [indices: Check, measurements: Check]
  /** Measurements that have a value in the report but none in either manifest. */
  readonly uncompared: readonly number[]
}

export const [indicesName, measurementsName] = ['gpu-rim-indices', 'gpu-measurements'] as const

/** Returns both checks for a GPU without a manifest. */
export function nothingCompared(reason: string): Comparison {
  const open = (name: string) => notChecked(name, reason, true)
  return { checks: [open(indicesName), open(measurementsName)], uncompared: [] }
}
