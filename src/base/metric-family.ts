// One family of metrics in short: no histogram. Pure.

import type { Family, Labels } from './prometheus.ts'

export function family(
  name: string,
  help: string,
  type: Exclude<Family['type'], 'histogram'>,
  samples: readonly (readonly [Labels, number])[],
): Family {
  return { name, help, type, samples: samples.map(([labels, value]) => ({ labels, value })) }
}
