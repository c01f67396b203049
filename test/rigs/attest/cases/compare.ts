// One case asked of src/attest and of the second implementation; the difference, if there is one.

import { parsePolicy } from '../../../../src/attest/policy/policy.ts'
import { type Check, verdict } from '../../../../src/attest/verdict.ts'
import { CHAIN_CHECKS } from '../../../../src/attest/verify/chain.ts'
import { PREPARED_CHECKS, type PreparedChain, prepareChain } from '../../../../src/attest/verify/chain-prepare.ts'
import { verifyEvidence } from '../../../../src/attest/verify/evidence.ts'
import { type Answer, type Question, verifySecond } from '../second/verify.ts'

export type Compared = {
  /** Both say so. */
  readonly isEvidenceGood: boolean
  readonly isPolicyMet: boolean
  readonly second: Answer
  /** Null if they agree. */
  readonly difference: string | null
}

/** Checks before those of the policy: format, product, chain, signature, report data. */
const evidenceChecks = 2 + PREPARED_CHECKS.length + CHAIN_CHECKS.length + 2

export async function compare(question: Question, kept: ChainCache = new ChainCache()): Promise<Compared> {
  const { report, product, asOf, requireCrl, maskedChipId, policy, certificateEntries } = question
  const found = await verifyEvidence({
    report,
    product: product ?? undefined,
    asOf,
    requireCrl,
    maskedChipId,
    policy: parsePolicy(policy),
    certificateEntries: certificateEntries ?? undefined,
    prepared: await kept.of(question),
  })
  const [evidence, rest] = [found.checks.slice(0, evidenceChecks), found.checks.slice(evidenceChecks)]
  const second = verifySecond(question)
  const [isEvidenceGood, isPolicyMet] = [verdict(evidence).ok, verdict(rest).ok]
  const isSame =
    isEvidenceGood === (second.fault === null) &&
    isPolicyMet === (second.refused?.length === 0) &&
    found.ok === (isEvidenceGood && isPolicyMet)
  const difference = isSame ? null : `${bad(found.checks)} against ${second.fault}, ${second.refused?.join(' ')}`
  return { isEvidenceGood, isPolicyMet, second, difference }
}

function bad(checks: readonly Check[]): string {
  const failed = checks.filter(({ outcome, required }) => outcome === 'fail' || (required && outcome !== 'pass'))
  return failed.map(({ name, reason }) => `${name}: ${reason}`).join('; ') || 'good'
}

/** Chains are prepared once, as relying parties do. Certificates are known by identity. */
export class ChainCache {
  readonly #kept = new Map<string, Promise<PreparedChain>>()
  readonly #ids = new Map<Uint8Array | null, number>()

  of({ vek, chain, crl, roots }: Question): Promise<PreparedChain> {
    const key = [vek, crl, ...chain].map(der => this.#id(der)).join()
    const known = this.#kept.get(key) ?? prepareChain({ vek, chain, crl: crl ?? undefined, roots })
    this.#kept.set(key, known)
    return known
  }

  #id(der: Uint8Array | null): number {
    const id = this.#ids.get(der) ?? this.#ids.size
    this.#ids.set(der, id)
    return id
  }
}
