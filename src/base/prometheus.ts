// Prometheus text exposition format 0.0.4. Pure.

import { assert } from './assert.ts'

export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8'

export type Labels = Readonly<Record<string, string>>

export type Family = {
  readonly name: string
  readonly help: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly samples: readonly Sample[]
}

/** `suffix` follows the family's name in the series of a histogram: `_bucket`, `_sum`, `_count`. */
export type Sample = { readonly suffix?: string; readonly labels: Labels; readonly value: number }

/** One family in short: no histogram. */
export function family(
  name: string,
  help: string,
  type: Exclude<Family['type'], 'histogram'>,
  samples: readonly (readonly [Labels, number])[],
): Family {
  return { name, help, type, samples: samples.map(([labels, value]) => ({ labels, value })) }
}

/** A component with metrics of its own; each is an attested workload. */
export type Collector = {
  readonly workload: 'metrics-collector' | 'cluster-state-metrics'
  readonly render: () => string
}

/** Families without samples are left out. */
export function metricsText(families: readonly Family[]): string {
  return families
    .filter(family => family.samples.length > 0)
    .map(familyText)
    .join('')
}

function familyText({ name, help, type, samples }: Family): string {
  assert(/^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name), `metric name ${name}`)
  const lines = samples.map(
    ({ suffix = '', labels, value }) => `${name}${suffix}${labelsText(labels)} ${valueText(value)}\n`,
  )
  return `# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}\n${lines.join('')}`
}

function labelsText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value).replaceAll('"', '\\"')}"`)
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
}

function valueText(value: number): string {
  if (value === Number.POSITIVE_INFINITY) return '+Inf'
  return value === Number.NEGATIVE_INFINITY ? '-Inf' : String(value)
}
