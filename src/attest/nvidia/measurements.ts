// Compares a GPU's measurements with the manifests of its driver and its VBIOS. Pure.

import { equalConstantTime } from '../../base/bytes.ts'
import { isZero } from '../encoding/layout.ts'
import { check, fail } from '../verdict.ts'
import { type Comparison, indicesName, measurementsName } from './comparison.ts'
import type { Golden, Rim } from './rim.ts'
import type { GpuReport } from './spdm.ts'

/** NVIDIA's verifier skips this measurement if the video decoder is off. */
const nvdecIndex = 35

export function compareMeasurements({ measurements, fields }: GpuReport, driver: Rim, vbios: Rim): Comparison {
  const twice = [...driver.golden.keys()].filter(index => vbios.golden.has(index))
  const wanted = [...driver.golden, ...vbios.golden].filter(([index]) => index !== nvdecIndex || fields.isNvdecMeasured)
  const wrong = wanted.filter(([index, golden]) => !isOneOf(measurements.get(index), golden))
  const known = new Set([...driver.golden.keys(), ...vbios.golden.keys()])
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
