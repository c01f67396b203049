// One SIMULATED quote of each form that is read: version 4 with a TD report 1.0, version 5 with 1.0 and with 1.5. The
// bytes of a measurement all differ, so that none can stand in another's place unseen.

import type { TdReport } from '../../../../src/attest/tdx/quote.ts'
import { chainOf, SIMULATED_PCK, SIMULATED_REPORT, simulateQuote, simulateTdx } from './simulated.ts'

export type QuoteForm = { readonly name: string; readonly version: 4 | 5; readonly report: TdReport }
export type SimulatedQuote = { readonly name: string; readonly quote: Uint8Array }

const counted = (size: number, from: number) => Uint8Array.from({ length: size }, (_, at) => (from + 5 * at) & 255)

const measured: TdReport = {
  ...SIMULATED_REPORT,
  mrSeam: counted(48, 1),
  mrTd: counted(48, 2),
  mrConfigId: counted(48, 3),
  mrOwner: counted(48, 4),
  mrOwnerConfig: counted(48, 5),
  rtmr0: counted(48, 6),
  rtmr1: counted(48, 7),
  rtmr2: counted(48, 8),
  rtmr3: counted(48, 9),
  reportData: counted(64, 10),
}

const measured15: TdReport = {
  ...measured,
  version: '1.5',
  added: { teeTcbSvn2: Uint8Array.of(7, 1, 4, ...new Uint8Array(13)), mrServiceTd: new Uint8Array(48) },
}

/** Good under the strict policy. */
export const QUOTE_FORMS: readonly QuoteForm[] = [
  { name: 'version 4', version: 4, report: measured },
  { name: 'version 5 with a TD report 1.0', version: 5, report: measured },
  { name: 'version 5 with a TD report 1.5', version: 5, report: measured15 },
]

/**
 * For tests that read and do not verify: the fields that are zero in a good report have values, too. The PCK chain ends
 * with a NUL and zeros follow the quote, as in those of Intel's library.
 */
export async function simulatedQuotes(): Promise<readonly SimulatedQuote[]> {
  const platform = await simulateTdx(Date.parse('2026-01-01T00:00:00Z'))
  const pck = await platform.pck(SIMULATED_PCK)
  const made = QUOTE_FORMS.map(async ({ name, version, report }) => {
    const { added } = report
    const filled: TdReport = {
      ...report,
      teeTcbSvn: counted(16, 11),
      mrSignerSeam: counted(48, 12),
      seamAttributes: 0x0807_0605_0403_0201n,
      tdAttributes: (1n << 28n) | (1n << 30n) | (1n << 63n),
      added: added === null ? null : { teeTcbSvn2: counted(16, 13), mrServiceTd: counted(48, 14) },
    }
    const chain = `${chainOf(platform, pck)}\0`
    const quote = await simulateQuote(platform, { version, report: filled, pck, chain })
    return { name, quote: Uint8Array.from([...quote, ...new Uint8Array(71)]) }
  })
  return await Promise.all(made)
}
