// Event logs, quotes and what binds them to an SNP report. Pure.

import {
  decodeEventLog,
  decodeHclReport,
  decodeQuote,
  decodeSpki,
  isDataMeasured,
  replayEventLog,
  runtimeAttestationKey,
  strictPolicy,
  verifyEventLog,
  verifyEvidence,
  verifyHostVtpm,
  verifyParavisorVtpm,
} from '../../../src/attest/index.ts'
import { present } from '../../../src/base/assert.ts'
import { fromBase64Url, fromHex } from '../../../src/base/bytes.ts'
import { fromBase64Text, type Vectors } from './input.ts'
import { orRefused, told } from './outcome.ts'

type QuoteFile = {
  readonly message: string
  readonly signature: string
  readonly pcrs: readonly string[]
}

export const eventLogs = ['rhel8-uefi.bin', 'ubuntu-2404-amd-sevsnp.bin'] as const

export async function tpmSuite(vectors: Vectors): Promise<unknown> {
  const logs = eventLogs.map(name => [name, eventLog(vectors.bytes(`tpm/${name}`))])
  return {
    logs: Object.fromEntries(logs),
    cutLog: await orRefused(() => decodeEventLog(vectors.bytes('tpm/rhel8-uefi.bin').subarray(0, 1000))),
    sample: decodeQuote(vectors.bytes('tpm/tpm_quote_sample.bin')),
    notAQuote: await orRefused(() => decodeQuote(vectors.bytes('reports/milan-v3.bin'))),
    plain: await plainQuote(vectors),
    paravisor: await paravisor(vectors),
  }
}

function eventLog(bytes: Uint8Array): unknown {
  const log = decodeEventLog(bytes)
  const sha256 = replayEventLog(log, 'SHA-256')
  const [first, ...rest] = [...sha256]
  const [pcr, value] = present(first, 'the log extends a PCR')
  const changed = new Map([[pcr, value.map(byte => byte ^ 1)] as const, ...rest])
  const answer = (pcrs: ReadonlyMap<number, Uint8Array>, answersFor: readonly number[] | 'all') =>
    verifyEventLog({ log: bytes, bank: 'SHA-256', pcrs: { 'SHA-256': pcrs }, answersFor })
  const good = answer(sha256, 'all')
  const bad = answer(changed, 'all')
  const ima = answer(new Map([...sha256, [10, new Uint8Array(32).fill(1)]]), [...sha256.keys()])
  return {
    sha1: replayEventLog(log, 'SHA-1'),
    sha256,
    eventCount: log.events.length,
    measuredCount: log.events.filter(event => isDataMeasured(event, 'SHA-256')).length,
    good: told({ ok: true, checks: [good] }).checks,
    bad: told({ ok: false, checks: [bad] }).checks,
    ima: told({ ok: true, checks: [ima] }).checks,
  }
}

/** Good as a quote; as evidence a TPM that no report binds never is. */
async function plainQuote(vectors: Vectors): Promise<unknown> {
  const file = vectors.json<{ ak_public: string; tpm_quote: QuoteFile }>('tpm/plain-tpm-quote.json')
  const quote = fromBase64Text(file.tpm_quote.message)
  const input = {
    quote,
    signature: fromBase64Text(file.tpm_quote.signature),
    ak: decodeSpki(fromBase64Text(file.ak_public)),
    nonce: decodeQuote(quote).extraData,
    pcrs: { 'SHA-256': pcrsOf(file.tpm_quote.pcrs) },
  }
  return {
    good: told(await verifyHostVtpm(input)),
    changed: told(await verifyHostVtpm({ ...input, quote: quote.with(-1, (quote.at(-1) ?? 0) ^ 1) })),
    nonce: told(await verifyHostVtpm({ ...input, nonce: new Uint8Array(32) })),
  }
}

async function paravisor(vectors: Vectors): Promise<unknown> {
  const file = vectors.json<{ hcl_report: string; vcek: string; tpm_quote: QuoteFile }>('tpm/paravisor-bound.json')
  const { report, runtimeData } = decodeHclReport(fromPaddedBase64Url(file.hcl_report))
  const evidence = await verifyEvidence({
    report,
    vek: fromPaddedBase64Url(file.vcek),
    product: 'milan',
    asOf: new Date('2025-06-01T00:00:00Z'),
    requireCrl: false,
    policy: { ...strictPolicy(), vmpls: 'any' },
  })
  const quote = hex(file.tpm_quote.message)
  const input = {
    evidence,
    runtimeData,
    measurement: 'any',
    quote,
    signature: { scheme: 'RSASSA', hash: 'SHA-256', signature: hex(file.tpm_quote.signature) },
    nonce: decodeQuote(quote).extraData,
    pcrs: { 'SHA-256': pcrsOf(file.tpm_quote.pcrs) },
  } as const
  return {
    evidence: told(evidence),
    key: runtimeAttestationKey(runtimeData),
    good: told(await verifyParavisorVtpm(input)),
    runtimeDataChanged: told(await verifyParavisorVtpm({ ...input, runtimeData: runtimeData.with(0, 0x20) })),
    pcrMissing: told(
      await verifyParavisorVtpm({ ...input, pcrs: { 'SHA-256': pcrsOf(file.tpm_quote.pcrs.slice(1)) } }),
    ),
  }
}

function pcrsOf(values: readonly string[]): ReadonlyMap<number, Uint8Array> {
  return new Map(values.map((value, pcr) => [pcr, hex(value)]))
}

/** Only these vectors are written so; the library takes no padding. */
function fromPaddedBase64Url(text: string): Uint8Array {
  return present(fromBase64Url(text.replace(/=+$/, '')), 'base64url')
}

function hex(text: string): Uint8Array {
  return present(fromHex(text), 'hexadecimal')
}
