// Evidence of two genuine TDX machines on Azure (test/vectors/tpm/paravisor-tdx*.json). Intel's collateral is at hand
// for the second alone, and as it was in spring 2026. For other times, and for changed quotes, a SIMULATED platform
// signs the TDX quote of each; all else of the evidence is the machine's.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import { encodeTdxPolicy, strictTdxPolicy } from '../../../../src/attest/tdx/encode-policy.ts'
import { decodeQuote, type TdReport } from '../../../../src/attest/tdx/quote.ts'
import { decodeHclReport } from '../../../../src/attest/tpm/hcl-report.ts'
import { toHex, utf8 } from '../../../../src/base/bytes.ts'
import { vectors } from '../../program.ts'
import {
  SIMULATED_PCK,
  simulateCollateral,
  simulateQuote,
  simulateTdx,
  svnLevel,
  tcbInfoOf,
  tcbLevel,
} from './simulated.ts'

/** A bundle as its JSON has it. */
export type AzureTdxBundle = {
  readonly version: number
  readonly tpm_quote: { readonly message: string; readonly signature: string; readonly pcrs: readonly string[] }
  readonly hcl_report: string
  readonly td_quote: string
}

export type AzureTdxMachine = {
  /** As its machine made it. */
  readonly genuine: AzureTdxBundle
  readonly nonce: Uint8Array
  readonly hcl: Uint8Array
  readonly tdReport: Uint8Array
  readonly runtimeData: Uint8Array
  /** The TD report in the genuine quote. */
  readonly report: TdReport
}

function machine(file: string, nonce: string): AzureTdxMachine {
  const genuine: AzureTdxBundle = JSON.parse(readFileSync(join(vectors, 'tpm', file), 'utf8'))
  const hcl = fromBase64(genuine.hcl_report)
  const { report: tdReport, runtimeData } = decodeHclReport(hcl, 'TDX')
  const { report } = decodeQuote(fromBase64(genuine.td_quote))
  return { genuine, nonce: utf8(nonce), hcl, tdReport, runtimeData, report }
}

export function fromBase64(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, 'base64url'))
}

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('base64url')
}

/** Its report is for no nonce, and its TD has no SEPT_VE_DISABLE. */
export const first = machine('paravisor-tdx.json', 'challenge')
/** Its report is for the nonce, too, although it calls itself version 1. */
export const second = machine('paravisor-tdx-nonce.json', 'attestation-test-fixture')

/** Intel's collateral for the second machine's kind of platform, and a time at which all of it is in force. */
export const secondCollateral = join(vectors, 'tdx', 'collateral-90c06f000000.json')
export const secondAsOf = '2026-04-01'

/** The SIMULATED platform of both. */
export async function simulateAzure(nowMs: number) {
  const platform = await simulateTdx(nowMs)
  const pck = await platform.pck(SIMULATED_PCK)
  const lowest = [2, 0, 0, ...Array.from({ length: 13 }, () => 0)]
  const info = tcbInfoOf(nowMs)
  const [identity] = info.tdxModuleIdentities as readonly object[]
  const collateral = await simulateCollateral(platform, {
    tcbInfo: {
      ...info,
      tdxModuleIdentities: [{ ...identity, tcbLevels: [svnLevel(2, 'UpToDate')] }],
      tcbLevels: [tcbLevel({ status: 'UpToDate', tdx: lowest })],
    },
  })
  return {
    platform,
    collateral,
    rootPem: toPem(platform.rootDer, 'CERTIFICATE'),
    /** The machine's evidence with a quote of the platform over its TD report, or over a changed one. */
    bundleOf: async ({ genuine, report }: AzureTdxMachine, changes: Partial<TdReport> = {}) => {
      const quote = await simulateQuote(platform, { version: 4, report: { ...report, ...changes }, pck })
      return { ...genuine, td_quote: base64(quote) }
    },
  }
}

/** A policy that names the machine's MRTD. */
export function policyOf({ report }: AzureTdxMachine, tdAttributes: object = {}): string {
  const { tdAttributes: strict, ...rest } = encodeTdxPolicy(strictTdxPolicy())
  const attributes = { ...(strict as object), ...tdAttributes }
  return JSON.stringify({ ...rest, tdAttributes: attributes, mrTds: [toHex(report.mrTd)] })
}
