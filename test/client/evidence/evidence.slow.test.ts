// Goal: a report is the same in every form in which somebody has saved it, byte by byte, with the certificates beside
// it; a form that is not whole is refused by name, and no file decides how much memory or time is taken.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { FIELDS } from '../../../src/attest/report/report.ts'
import { toBase64Url, utf8 } from '../../../src/base/bytes.ts'
import { evidenceBytesMax } from '../../../src/client/evidence/evidence.ts'
import { readEvidence } from '../../../src/client/evidence/read.ts'
import {
  attestationRs,
  type Certificates,
  cocoEvidence,
  extendedReport,
  firmwareResponse,
  goSevGuest,
  lengthField,
  numberField,
  tinfoilBundle,
  tinfoilDocument,
} from '../../rigs/attest/evidence-forms.ts'
import { vectors } from '../../rigs/program.ts'

const read = (name: string) => new Uint8Array(readFileSync(join(vectors, 'reports', name)))
const NAMES = ['milan-v2', 'milan-v3', 'milan-v3-vlek', 'genoa-v3', 'genoa-v5', 'turin-v5']
const [vek, ask, ark] = derBlocks(read('genoa-v5.chain.pem'), 'CERTIFICATE', 'chain') as [
  Uint8Array,
  Uint8Array,
  Uint8Array,
]
const certificates: Certificates = { vek, ask, ark }
const json = (value: object) => utf8(JSON.stringify(value))
const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex')
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')

/** Each form of a report, and whether it bears certificates. */
const FORMS: Readonly<Record<string, readonly [write: (report: Uint8Array) => Uint8Array, has: string]>> = {
  'its bytes': [report => report, ''],
  hexadecimal: [report => utf8(`${hex(report).toUpperCase()}\n`), ''],
  'hexadecimal after 0x': [report => utf8(`0x${hex(report)}\n`), ''],
  'base64 in lines': [report => utf8(base64(report).replace(/.{76}/g, '$&\n')), ''],
  base64url: [report => utf8(toBase64Url(report)), ''],
  'padded base64url': [report => utf8(`${toBase64Url(report)}=`), ''],
  gzip: [report => gzipSync(report), ''],
  "the firmware's response": [firmwareResponse, ''],
  'an extended report': [report => extendedReport(report, certificates), 'vek ask ark table'],
  'an extended report in base64': [report => utf8(base64(extendedReport(report, certificates))), 'vek ask ark table'],
  "go-sev-guest's attestation": [report => goSevGuest(report, certificates), 'vek ask ark'],
  "go-sev-guest's report": [report => goSevGuest(report, null), ''],
  'CoCo, without certificates': [report => json(cocoEvidence(report, null)), ''],
  CoCo: [report => json(cocoEvidence(report, certificates)), 'vek ask ark'],
  'attestation-rs': [report => json(attestationRs(report, certificates)), 'vek ask ark'],
  'attestation-rs, certificates in hexadecimal': [
    report => {
      const cert_chain = { vcek: hex(vek), ask: `0x${hex(ask)}`, ark: hex(ark) }
      return json({ ...attestationRs(report, certificates), cert_chain })
    },
    'vek ask ark',
  ],
  'attestation-rs in its envelope': [
    report => json({ platform: 'snp', evidence: attestationRs(report, certificates) }),
    'vek ask ark',
  ],
  "Tinfoil's document": [report => json(tinfoilDocument(report)), ''],
  "Tinfoil's bundle": [report => json(tinfoilBundle(report, certificates)), 'vek'],
}

test.each(Object.entries(FORMS))('goal: %s gives the very bytes of each genuine report', async (_, [write, has]) => {
  for (const name of NAMES) {
    const report = read(`${name}.bin`)
    const found = await readEvidence(Uint8Array.from(write(report)))
    expect([name, hex(found.report)]).toEqual([name, hex(report)])
    const beside = { vek: found.vek, ask: found.chain[0], ark: found.chain[1], table: found.table }
    const names = Object.entries(beside).flatMap(([part, bytes]) =>
      bytes === null || bytes === undefined ? [] : [part],
    )
    expect([name, names.join(' ')]).toEqual([name, has])
    if (has.includes('vek')) expect(found.vek).toEqual(Uint8Array.from(vek))
    if (has.includes('ask')) expect(found.chain).toEqual([Uint8Array.from(ask), Uint8Array.from(ark)])
  }
})

test('goal: no signed byte of a form that takes the report apart is lost: each change is in the report', async () => {
  const report = read('genoa-v5.bin')
  const reserved = Object.entries(FIELDS).filter(([name]) => name.startsWith('reserved'))
  const isReserved = (at: number) => reserved.some(([, [offset, size]]) => at >= offset && at < offset + size)
  for (let at = 8; at < FIELDS.signatureR[0]; at += 1) {
    // A TCB has reserved bytes, too, and JSON holds no number of 64 bits.
    const isTcb = [FIELDS.currentTcb, FIELDS.reportedTcb, FIELDS.committedTcb, FIELDS.launchTcb].some(
      ([offset]) => at >= offset + 2 && at < offset + 6,
    )
    const isWide = [FIELDS.policy, FIELDS.platformInfo, FIELDS.launchMitigation, FIELDS.currentMitigation].some(
      ([offset]) => at >= offset + 6 && at < offset + 8,
    )
    if (isReserved(at) || isTcb || isWide || at === FIELDS.cpuidFamily[0]) continue
    const other = report.with(at, (report[at] ?? 0) ^ 1)
    for (const bytes of [goSevGuest(other, null), json(cocoEvidence(other, null))]) {
      expect([at, hex((await readEvidence(Uint8Array.from(bytes))).report)]).toEqual([at, hex(other)])
    }
  }
})

describe('what is not whole', () => {
  const report = read('genoa-v5.bin')
  const deep = (content: Uint8Array, layers: number): Uint8Array =>
    layers === 0 ? content : utf8(base64(deep(content, layers - 1)))
  const coco = cocoEvidence(report, null) as { attestation_report: Record<string, unknown> }
  const changed = (change: object) => json({ ...coco, attestation_report: { ...coco.attestation_report, ...change } })
  const REFUSED: Readonly<Record<string, readonly [bytes: Uint8Array, words: string]>> = {
    'JSON without a report': [json({ a: 1 }), 'without an SNP report in a place that is known'],
    'JSON that ends': [utf8('{"evidence": '), 'evidence is not valid JSON'],
    'a name twice': [utf8('{"report":"00","report":"01"}'), 'report'],
    'JSON in JSON': [
      json({ evidence: { evidence: { evidence: { evidence: { evidence: { report: '' } } } } } }),
      'forms',
    ],
    'base64 in base64': [deep(report, 7), 'forms within each other'],
    'a bomb': [gzipSync(new Uint8Array(evidenceBytesMax + 1)), 'does not unpack to at most'],
    'another format': [
      json({ ...tinfoilDocument(report), format: 'https://tinfoil.sh/predicate/tdx-guest/v2' }),
      'format',
    ],
    'a field too short': [changed({ measurement: [1, 2] }), 'measurement has 2 bytes'],
    'a number too large': [changed({ vmpl: 2 ** 40 }), 'vmpl does not fit'],
    'a number that JSON has rounded': [changed({ policy: 2 ** 60 }), 'policy is no whole number that JSON can hold'],
    'no signature': [changed({ signature: undefined }), 'signature is no object'],
    'a TCB that is a number': [changed({ current_tcb: 3 }), 'current_tcb is no object'],
    'a list of texts': [changed({ host_data: ['a'] }), 'host_data is no list of bytes'],
    'a certificate that is none': [
      json({ ...attestationRs(report, certificates), cert_chain: { vcek: '*' } }),
      'cert_chain.vcek is neither base64 nor PEM',
    ],
    'a table that ends': [extendedReport(report, certificates).subarray(0, 1_250), 'certificate table'],
    'a message that ends': [goSevGuest(report, certificates).subarray(0, 900), 'ends after the message'],
    'a message without a signature': [lengthField(1, numberField(1, 3n)), 'no signature'],
    'a message without a report': [Uint8Array.of(10, 0), 'no signature'],
    'a number without an end': [new Uint8Array(20).fill(0xff).with(0, 8), 'more than ten bytes'],
    'many fields': [Buffer.concat(Array.from({ length: 300 }, () => numberField(1, 1n))), 'more than 256 fields'],
  }

  test.each(Object.entries(REFUSED))('goal: %s is refused, and says where', async (_, [bytes, words]) => {
    const failed = await readEvidence(Uint8Array.from(bytes)).then(
      () => null,
      (error: unknown) => error,
    )
    expect(failed).toBeInstanceOf(Malformed)
    expect((failed as Malformed).message).toContain(words)
  })

  test('goal: bytes in no form that is known stay as they are', async () => {
    for (const bytes of [new Uint8Array(0), utf8('report'), Uint8Array.of(0xff, 0), read('genoa-v5.chain.pem')]) {
      expect(await readEvidence(bytes)).toMatchObject({ container: null, report: bytes, vek: null })
    }
  })

  test('goal: the largest file of one byte throughout ends as unknown or as Malformed, whichever form it seems to be', async () => {
    for (const byte of [0, 2, 8, 10, 0x20, 0x30, 0x41, 0x5b, 0x7b, 0x7f, 0xff]) {
      const bytes = new Uint8Array(evidenceBytesMax).fill(byte)
      const ends = await readEvidence(bytes).then(
        found => found.container === null && found.vek === null,
        (error: unknown) => error instanceof Malformed,
      )
      expect([byte, ends]).toEqual([byte, true])
    }
  })
})
