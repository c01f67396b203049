// Command lines of `strongroom verify vtpm --kind azure-tdx` for the machines of azure.ts. For tests.

import { toHex } from '../../../../src/base/bytes.ts'
import { file, type Line } from '../../vtpm-line.ts'
import { type AzureTdxBundle, type AzureTdxMachine, base64, fromBase64 } from './azure.ts'

/** With the nonce and PCRs of the machine, at a time of its SIMULATED platform; without the evidence. */
export function lineOf(
  { genuine, nonce }: AzureTdxMachine,
  policy: string,
  { collateral, rootPem }: { readonly collateral: Uint8Array; readonly rootPem: string },
): Line {
  return {
    kind: 'azure-tdx',
    nonce: toHex(nonce),
    pcr: [4, 7].map(at => `${at}=${genuine.tpm_quote.pcrs[at]}`),
    policy: file(`policy-${policy.length}.json`, policy),
    collateral: file('collateral.json', collateral),
    'trust-simulated-root': file('root.pem', rootPem),
    'as-of': '2026-01-01',
  }
}

/** The parts of a bundle as files. */
export function filesOf({ hcl }: AzureTdxMachine, { tpm_quote, td_quote }: AzureTdxBundle) {
  return {
    quote: file('quote.msg', Buffer.from(tpm_quote.message, 'hex')),
    signature: file('quote.sig', Buffer.from(tpm_quote.signature, 'hex')),
    pcrs: file('pcrs.json', JSON.stringify({ sha256: { ...tpm_quote.pcrs } })),
    report: file('hcl.bin', hcl),
    'td-quote': file('td-quote.bin', fromBase64(td_quote)),
  }
}

/** The machine's HCL report with other bytes in its TD report, in base64url. */
export function hclWith({ hcl }: AzureTdxMachine, at: number, bytes: Uint8Array): string {
  const changed = hcl.slice()
  changed.set(bytes, 0x20 + at)
  return base64(changed)
}
