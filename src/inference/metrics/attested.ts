// Writes attested upstreams as metrics, and reads them back, because the gateway's VM reports them only in this text.
// Pure.

import type { Family } from '../../base/prometheus.ts'
import { family } from '../../base/prometheus.ts'
import type { AttestedUpstream } from '../upstream/attested/keeper.ts'

export const FAMILIES = {
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
      '1 while an upstream with required attestation is attested; at 0 it gets no prompts.',
      'gauge',
      upstreams.map(({ name, kind, attested }) => [{ upstream: name, kind }, attested ? 1 : 0]),
    ),
    family(
      FAMILIES.good,
      "Time of an upstream's last good evidence, in seconds since 1970; 0 if there was none.",
      'gauge',
      upstreams.map(({ name, goodAtMs }) => [{ upstream: name }, Math.floor((goodAtMs ?? 0) / 1000)]),
    ),
    family(
      FAMILIES.age,
      'Age of the last good evidence of an upstream.',
      'gauge',
      known.map(({ name, ageMs }) => [{ upstream: name }, Math.floor((ageMs ?? 0) / 1000)]),
    ),
    family(
      FAMILIES.failures,
      'Failed verifications of an upstream, by the first failed check.',
      'counter',
      upstreams.flatMap(({ name, failures }) =>
        failures.map(({ check, count }) => [{ upstream: name, check }, count] as const),
      ),
    ),
  ]
}
