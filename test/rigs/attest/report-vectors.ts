// The real reports under test/vectors, with the keys that signed them. Reads files.

import { X509Certificate } from 'node:crypto'
import { resolve } from 'node:path'
import type { Product } from '../../../src/attest/amd/product.ts'
import { present } from '../../../src/base/assert.ts'

export type ExpectedTcb = { fmc?: number; bl: number; tee: number; snp: number; ucode: number }

/** One entry of reports/expected.json. */
export type Expected = {
  report: string
  vek: string
  product: Product
  signer: 'VCEK' | 'VLEK'
  report_version: 2 | 3 | 4 | 5
  fms: [string, string, string]
  signature_valid: boolean
  policy: string
  debug: boolean
  migrate_ma: boolean
  smt_allowed: boolean
  single_socket: boolean
  vmpl: number
  platform_info: string
  signing_key: number
  mask_chip_key: boolean
  author_key_en: boolean
  measurement: string
  report_data: string
  host_data: string
  current_tcb: ExpectedTcb
  reported_tcb: ExpectedTcb
  committed_tcb: ExpectedTcb
  launch_tcb: ExpectedTcb
  launch_mit_vector: string
  current_mit_vector: string
  note: string
}

const folder = resolve(import.meta.dir, '../../vectors/reports')

export const expectedReports: readonly Expected[] = await Bun.file(resolve(folder, 'expected.json')).json()

export const reportNames: readonly string[] = expectedReports.map(({ report }) => report)

/** A file of test/vectors/reports, or one named from test/vectors with a leading `..`. */
export async function readReport(name: string): Promise<Uint8Array> {
  return Bun.file(resolve(folder, name)).bytes()
}

/** SubjectPublicKeyInfo of the key that signed a report of expected.json. */
export async function vekOf(report: string): Promise<Uint8Array> {
  const { vek } = present(
    expectedReports.find(expected => expected.report === report),
    `${report} is in expected.json`,
  )
  return spkiOf(vek)
}

/** SubjectPublicKeyInfo of the first certificate in a DER or PEM file. */
export async function spkiOf(name: string): Promise<Uint8Array> {
  const file = Bun.file(resolve(folder, name))
  const certificate = new X509Certificate(name.endsWith('.pem') ? firstPem(await file.text()) : await file.bytes())
  return Uint8Array.from(certificate.publicKey.export({ type: 'spki', format: 'der' }))
}

function firstPem(text: string): string {
  return present(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.exec(text)?.[0], 'a PEM certificate')
}
