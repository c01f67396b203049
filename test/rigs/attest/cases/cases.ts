// Random questions about evidence: a report, certificates, a list, a time and a policy, each case decided by its seed.

import { PRODUCTS } from '../../../../src/attest/amd/product.ts'
import type { Question } from '../second/verify.ts'
import { asOf, type CaseAuthority, type CaseVek, caseAuthority } from './authorities.ts'
import { arkEntry, randomPolicy, vcekEntry } from './policies.ts'
import { type Random, randomOf } from './random.ts'
import { randomReport } from './reports.ts'

export type Case = Question & { readonly seed: number }

/** Questions about each report: signing is what takes time. */
export const questionsPerReport = 4

export async function caseAuthorities(seed: number): Promise<readonly CaseAuthority[]> {
  const random = randomOf(seed)
  const made: CaseAuthority[] = []
  for (const product of PRODUCTS) made.push(await caseAuthority(product, random))
  return made
}

/** The cases of one report. */
export async function casesOf(authorities: readonly CaseAuthority[], seed: number): Promise<Case[]> {
  const random = randomOf(seed)
  const authority = random.pick(authorities)
  const good = authority.veks.slice(0, authority.faultyFrom)
  const vek = random.oneIn(6) ? random.pick(authority.veks) : random.pick(good)
  const report = await randomReport(authority, vek, random)
  const roots = authorities.map(({ root }) => root)
  return Array.from({ length: questionsPerReport }, () => ({
    ...question(authority, vek, random, authorities),
    report,
    roots,
    policy: randomPolicy(report, authority.product, random),
    seed,
  }))
}

type CaseQuestion = Omit<Question, 'report' | 'roots' | 'policy'>

function question(
  { product, chains, crls, veks }: CaseAuthority,
  vek: CaseVek,
  random: Random,
  authorities: readonly CaseAuthority[],
): CaseQuestion {
  const day = 86_400_000
  return {
    product: random.oneIn(40) ? random.pick(PRODUCTS) : random.oneIn(4) ? null : product,
    vek: random.oneIn(60) ? random.pick(random.pick([veks, random.pick(authorities).veks])).der : vek.der,
    chain: random.oneIn(12)
      ? random.pick(chains.faulty)
      : random.pick(chains.good[random.oneIn(20) ? random.pick(['vcek', 'vlek'] as const) : vek.kind]),
    crl: random.oneIn(3) ? null : random.oneIn(8) ? random.pick(crls.faulty) : random.pick(crls.good),
    requireCrl: random.oneIn(3),
    asOf: random.oneIn(20) ? asOf + random.pick([-400, -200, -21, 2, 21, 300, 12_000]) * day : asOf,
    maskedChipId: random.oneIn(3) ? 'any' : 'refuse',
    certificateEntries: random.pick([null, [vcekEntry], [vcekEntry, arkEntry]]),
  }
}
