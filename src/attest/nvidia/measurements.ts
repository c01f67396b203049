// Compares a device's measurements with its manifests: of a GPU's driver and VBIOS, or of a switch. Pure.

import { equalConstantTime } from '../../base/bytes.ts'
import { isZero } from '../encoding/layout.ts'
import { check, fail } from '../verdict.ts'
import { type Comparison, indicesName, measurementsName } from './comparison.ts'
import type { Golden, Rim } from './rim.ts'
import type { DeviceReport } from './spdm.ts'

/** NVIDIA's verifier skips this measurement if the video decoder is off. */
const nvdecIndex = 35

export type Measured = Pick<DeviceReport<{ readonly isNvdecMeasured: boolean }>, 'measurements' | 'fields'>

export function compareMeasurements({ measurements, fields }: Measured, rims: readonly Rim[]): Comparison {
  const all = rims.flatMap(({ golden }) => [...golden])
  const indexes = all.map(([index]) => index)
  const known = new Set(indexes)
  const twice = known.size === indexes.length ? [] : indexes.filter((index, at) => indexes.indexOf(index) !== at)
  const wanted = all.filter(([index]) => index !== nvdecIndex || fields.isNvdecMeasured)
  const wrong = wanted.filter(([index, golden]) => !isOneOf(measurements.get(index), golden))
  const uncompared = [...measurements].filter(([index, value]) => !known.has(index) && !isZero(value))
  const indices = check(indicesName, twice.length === 0, `both manifests have a value for ${twice.join(', ')}`)
  return {
    checks: [
      indices,
      wrong.length === 0
        ? check(measurementsName, wanted.length > 0, 'nothing to compare', `all ${wanted.length} are golden`)
        : fail(measurementsName, `not golden: ${wrong.map(([index, { name }]) => `${index} (${name})`).join(', ')}`),
    ],
    uncompared: uncompared.map(([index]) => index),
  }
}

function isOneOf(measured: Uint8Array | undefined, { values }: Golden): boolean {
  return measured !== undefined && values.some(value => equalConstantTime(value, measured))
}
