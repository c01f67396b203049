// AMD's extensions in VCEKs and VLEKs: real ones against independent answers, and every way of being wrong.

import { describe, expect, test } from 'bun:test'
import { decodeVekExtensions, hasVekExtensions, VEK_OID } from '../../../src/attest/amd/vek-extensions.ts'
import { derBlocks } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeCertificate, type Extensions, extensionsOf } from '../../../src/attest/x509/certificate.ts'
import { present } from '../../../src/base/assert.ts'
import { REAL, vector } from '../../rigs/attest/chain-vectors.ts'
import { expectedReports } from '../../rigs/attest/report-vectors.ts'

const int = (...bytes: number[]) => Uint8Array.from([2, bytes.length, ...bytes])
const ia5 = (text: string) => Uint8Array.from([0x16, text.length, ...Array.from(text, char => char.charCodeAt(0))])

const good: Readonly<Record<string, Uint8Array>> = {
  [VEK_OID.structVersion]: int(0),
  [VEK_OID.productName]: ia5('Milan-B0'),
  [VEK_OID.bootloader]: int(4),
  [VEK_OID.tee]: int(0),
  [VEK_OID.snp]: int(24),
  [VEK_OID.reserved4]: int(0),
  [VEK_OID.microcode]: int(0, 0xd9),
  [VEK_OID.hwId]: new Uint8Array(64).fill(7),
}

function extensions(changes: Readonly<Record<string, Uint8Array | null>>): Extensions {
  const merged = Object.entries({ ...good, ...changes })
  return new Map(merged.flatMap(([oid, value]) => (value === null ? [] : [[oid, { critical: false, value }] as const])))
}

async function vekExtensionsOf(file: string) {
  const certificates = derBlocks(await vector(`reports/${file}`), 'CERTIFICATE', file).map(decodeCertificate)
  const vek = present(
    certificates.find(certificate => hasVekExtensions(certificate.extensions)),
    `${file} has a VEK`,
  )
  return decodeVekExtensions(vek.extensions)
}

test.each(REAL.map(item => [item.vek, item] as const))('%s', async (file, { report }) => {
  // Goal: real certificates give the levels that an independent decoder found in the report.
  const expected = present(
    expectedReports.find(expected => expected.report === report),
    'a row of expected.json',
  )
  const found = await vekExtensionsOf(file)
  const { bl, tee, snp, ucode, fmc = null } = expected.reported_tcb
  expect(found.spl).toEqual({ fmc, bootloader: bl, tee, snp, microcode: ucode })
  expect(found.holder.kind).toBe(expected.signer === 'VCEK' ? 'vcek' : 'vlek')
  expect(found.productName.toLowerCase().startsWith(expected.product)).toBe(true)
  expect(found.structVersion).toBe(expected.product === 'turin' ? 1 : 0)
  const bytes = expected.product === 'turin' ? 8 : 64
  if (found.holder.kind === 'vcek') expect(found.holder.hwId.length).toBe(bytes)
})

test('a real VLEK names its provider', async () => {
  // Goal: cspID is read, and no chip is invented for a VLEK.
  const { holder } = await vekExtensionsOf('milan-v3-vlek.vlek.der')
  expect(holder).toEqual({ kind: 'vlek', cspId: 'CN=cc-us-east-2.amazonaws.com' })
})

test('hwID wrapped in an OCTET STRING', async () => {
  // Goal: the damaged VCEK of the vectors is refused for its length, not unwrapped in silence.
  await expect(vekExtensionsOf('bad-vcek-new.der')).rejects.toThrow('66 bytes')
})

describe('made by hand', () => {
  test('the good form', () => {
    // Goal: the table below changes one thing at a time of something that is accepted.
    const { spl, holder } = decodeVekExtensions(extensions({}))
    expect(spl).toEqual({ fmc: null, bootloader: 4, tee: 0, snp: 24, microcode: 217 })
    expect(holder).toEqual({ kind: 'vcek', hwId: new Uint8Array(64).fill(7) })
    expect(decodeVekExtensions(extensions({ [VEK_OID.microcode]: int(0x7f) })).spl.microcode).toBe(127)
    expect(decodeVekExtensions(extensions({ [VEK_OID.microcode]: int(0, 0xff) })).spl.microcode).toBe(255)
  })

  const bad: readonly (readonly [why: string, oid: string, value: Uint8Array | null])[] = [
    ['negative level', VEK_OID.snp, int(0x80)],
    ['level of 256', VEK_OID.snp, int(1, 0)],
    ['level with a needless zero', VEK_OID.snp, int(0, 0x7f)],
    ['level of no bytes', VEK_OID.snp, int()],
    ['level of another type', VEK_OID.snp, Uint8Array.from([4, 1, 24])],
    ['level with a byte after it', VEK_OID.snp, Uint8Array.from([2, 1, 24, 0])],
    ['level cut short', VEK_OID.snp, Uint8Array.from([2, 2, 24])],
    ['level with a long length', VEK_OID.snp, Uint8Array.from([2, 0x81, 1, 24])],
    ['level of indefinite length', VEK_OID.snp, Uint8Array.from([2, 0x80, 24, 0, 0])],
    ['level of nothing', VEK_OID.snp, new Uint8Array(0)],
    ['reserved level in use', VEK_OID.reserved5, int(1)],
    ['unknown structVersion', VEK_OID.structVersion, int(2)],
    ['product name of another type', VEK_OID.productName, Uint8Array.from([0x0c, 5, 77, 105, 108, 97, 110])],
    ['product name with a control character', VEK_OID.productName, ia5('Milan\n')],
    ['product name beyond ASCII', VEK_OID.productName, Uint8Array.from([0x16, 1, 0xe9])],
    ['hwID of 63 bytes', VEK_OID.hwId, new Uint8Array(63)],
    ['hwID of 9 bytes', VEK_OID.hwId, new Uint8Array(9)],
    ['empty hwID', VEK_OID.hwId, new Uint8Array(0)],
    ['hwID and cspID', VEK_OID.cspId, ia5('CN=x')],
    ['neither hwID nor cspID', VEK_OID.hwId, null],
    ...[
      VEK_OID.structVersion,
      VEK_OID.productName,
      VEK_OID.bootloader,
      VEK_OID.tee,
      VEK_OID.snp,
      VEK_OID.microcode,
    ].map(oid => [`without ${oid}`, oid, null] as const),
  ]

  test.each(bad)('%s', (_why, oid, value) => {
    // Goal: each deviation is Malformed, never a guess and never another error.
    expect(() => decodeVekExtensions(extensions({ [oid]: value }))).toThrow(Malformed)
  })

  test('the same extension twice', () => {
    // Goal: a second value for a level is refused, wherever it stands.
    const oid = [6, 10, 0x2b, 6, 1, 4, 1, 0x9c, 0x78, 1, 3, 3]
    const item = (level: number) => [0x30, 17, ...oid, 4, 3, 2, 1, level]
    const list = (...all: number[][]) => Uint8Array.from([0x30, all.flat().length, ...all.flat()])
    expect(extensionsOf(list(item(24)), 'test').get(VEK_OID.snp)?.value).toEqual(int(24))
    expect(() => extensionsOf(list(item(24), item(25)), 'test')).toThrow('twice')
    expect(() => extensionsOf(list(item(24), item(24)), 'test')).toThrow('twice')
  })
})
