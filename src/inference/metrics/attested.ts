// Attested upstreams as metrics, and read out of them: the text is all that the gateway's VM tells of them. Pure.

import type { Family } from '../../base/prometheus.ts'
import { family } from '../../base/prometheus.ts'
import type { AttestedUpstream } from '../upstream/attested/keeper.ts'

const FAMILIES = {
  attested: 'strongroom_upstream_attested',
  good: 'strongroom_upstream_attestation_timestamp_seconds',
  age: 'strongroom_upstream_attestation_age_seconds',
  failures: 'strongroom_upstream_attestation_failures_total',
} as const

export function attestedFamilies(upstreams: readonly AttestedUpstream[]): Family[] {
  const known = upstreams.filter(({ ageMs }) => ageMs !== null)
  return [
    family(
      FAMILIES.attested,
      '1 while an upstream that has to show evidence is attested; 0: it gets no prompts.',
      'gauge',
      upstreams.map(({ name, kind, attested }) => [{ upstream: name, kind }, attested ? 1 : 0]),
    ),
    family(
      FAMILIES.good,
      "When an upstream's evidence was good last, seconds since 1970; 0: it never was.",
      'gauge',
      upstreams.map(({ name, goodAtMs }) => [{ upstream: name }, Math.floor((goodAtMs ?? 0) / 1000)]),
    ),
    family(
      FAMILIES.age,
      'Time since the evidence of an upstream was good last.',
      'gauge',
      known.map(({ name, ageMs }) => [{ upstream: name }, Math.floor((ageMs ?? 0) / 1000)]),
    ),
    family(
      FAMILIES.failures,
      'Verifications of an upstream that were not good, by the check that failed first.',
      'counter',
      upstreams.flatMap(({ name, failures }) =>
        failures.map(({ check, count }) => [{ upstream: name, check }, count] as const),
      ),
    ),
  ]
}

/** Bounds on what is believed to be there: the text may be a hostile VM's. */
const upstreamsRead = 64
const failuresRead = 64
const linePattern =
  /^(strongroom_upstream_att[a-z_]+)\{upstream="([^"\\]{1,64})"(?:,(kind|check)="([a-z0-9/-]{1,64})")?\} ([0-9]{1,15})$/

/** Reads the text that `attestedFamilies` makes; other lines, and what is not of its form, say nothing. */
export function readAttested(text: string): AttestedUpstream[] {
  type Found = { -readonly [Name in keyof AttestedUpstream]: AttestedUpstream[Name] }
  const found = new Map<string, Found>()
  for (const line of text.split('\n')) {
    const [, metric = '', name = '', , label = '', digits = ''] = linePattern.exec(line) ?? []
    const value = Number(digits)
    if (metric === FAMILIES.attested && found.size < upstreamsRead)
      found.set(name, { name, kind: label, attested: value === 1, goodAtMs: null, ageMs: null, failures: [] })
    const upstream = found.get(name)
    if (upstream === undefined) continue
    if (metric === FAMILIES.good && value > 0) upstream.goodAtMs = value * 1000
    if (metric === FAMILIES.age) upstream.ageMs = value * 1000
    if (metric === FAMILIES.failures && upstream.failures.length < failuresRead)
      upstream.failures = [...upstream.failures, { check: label, count: value }]
  }
  return [...found.values()]
}
