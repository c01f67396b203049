// Files under test/vectors for tests of chains, and the questions that they are asked. Reads files.

import { resolve } from 'node:path'
import type { Product } from '../../../src/attest/amd/product.ts'
import { identifyReport } from '../../../src/attest/report/identify.ts'
import { decodeReport, type SnpReport } from '../../../src/attest/report/report.ts'
import type { Check } from '../../../src/attest/verdict.ts'
import { verifyChain } from '../../../src/attest/verify/chain.ts'
import { type ChainInput, type PreparedChain, prepareChain } from '../../../src/attest/verify/chain-prepare.ts'

const folder = resolve(import.meta.dir, '../../vectors')

/** A file named from test/vectors. */
export async function vector(name: string): Promise<Uint8Array> {
  return await Bun.file(resolve(folder, name)).bytes()
}

/** When every certificate of the vectors is valid, except the VLEK. */
export const vectorsAsOf = new Date('2026-11-20T12:00:00Z')

/** Real reports with the evidence that vouches for them. */
export const REAL = [
  { report: 'milan-v2.bin', vek: 'milan-v2.vcek.der', product: 'milan', asOf: vectorsAsOf },
  { report: 'milan-v3.bin', vek: 'milan-v3.chain.pem', product: 'milan', asOf: vectorsAsOf },
  { report: 'genoa-v3.bin', vek: 'genoa-v3.chain.pem', product: 'genoa', asOf: vectorsAsOf },
  { report: 'genoa-v5.bin', vek: 'genoa-v5.chain.pem', product: 'genoa', asOf: vectorsAsOf },
  { report: 'turin-v5.bin', vek: 'turin-v5.chain.pem', product: 'turin', asOf: vectorsAsOf },
  {
    report: 'milan-v3-vlek.bin',
    vek: 'milan-v3-vlek.vlek.der',
    product: 'milan',
    asOf: new Date('2025-06-01T00:00:00Z'),
  },
] as const satisfies readonly { report: string; vek: string; product: Product; asOf: Date }[]

export type VectorQuestion = {
  readonly report: Uint8Array | SnpReport
  readonly product?: Product
  readonly asOf?: Date | number
  readonly requireCrl?: boolean
  readonly maskedChipId?: 'refuse' | 'any'
}

/** Every check of a chain for a report. */
export async function chainChecks(input: ChainInput | PreparedChain, asked: VectorQuestion): Promise<Check[]> {
  const prepared = 'checks' in input ? input : await prepareChain(input)
  const report = asked.report instanceof Uint8Array ? decodeReport(asked.report) : asked.report
  const identity = identifyReport(report, asked.product ?? null)
  return verifyChain(prepared, {
    asOf: asked.asOf ?? vectorsAsOf,
    requireCrl: asked.requireCrl ?? false,
    product: identity.kind === 'known' ? identity.product : null,
    report,
    maskedChipId: asked.maskedChipId ?? 'refuse',
  })
}

/** Names of the checks that failed. */
export function failed(checks: readonly Check[]): string[] {
  return checks.filter(({ outcome }) => outcome === 'fail').map(({ name }) => name)
}

/** `name: reason` of the checks that failed. */
export function failures(checks: readonly Check[]): string {
  return checks
    .filter(({ outcome }) => outcome === 'fail')
    .map(({ name, reason }) => `${name}: ${reason}`)
    .join('\n')
}
