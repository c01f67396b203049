// Reads the metrics of attested.ts from a gateway's text. Pure.

import type { AttestedUpstream } from '../upstream/attested/keeper.ts'
import { FAMILIES } from './attested.ts'

/** Maximum number of entries read from one text, which may come from a hostile VM. */
const upstreamsRead = 64
const failuresRead = 64
const linePattern =
  /^(strongroom_upstream_att[a-z_]+)\{upstream="([^"\\]{1,64})"(?:,(kind|check)="([a-z0-9/-]{1,64})")?\} ([0-9]{1,15})$/

/** Reads the text that `attestedFamilies` writes; ignores lines in any other form. */
export function readAttested(text: string): AttestedUpstream[] {
  type MutableUpstream = { -readonly [Name in keyof AttestedUpstream]: AttestedUpstream[Name] }
  const found = new Map<string, MutableUpstream>()
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
