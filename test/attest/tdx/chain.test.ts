// Goal: every rule for Intel's certificates and revocation lists decides by itself: each fault is found alone, by its
// own words, and nothing else is found with it.

import { describe, expect, test } from 'bun:test'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import {
  crlFaults,
  decodeAnchor,
  decodeOnlyCrl,
  decodePckChain,
  decodeSigner,
  INTEL_ROOT,
  pckFaults,
  signerFaults,
  spanFaults,
} from '../../../src/attest/tdx/chain.ts'
import type { Certificate, Extensions } from '../../../src/attest/x509/certificate.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { issue, newKeys, SIMULATED_PCK, simulateTdx } from '../../rigs/attest/tdx/simulated.ts'

const nowMs = Date.UTC(2026, 0, 31, 12)
const dayMs = 86_400_000
const platform = await simulateTdx(nowMs)
const pckDer = (await platform.pck(SIMULATED_PCK)).der
const anchor = decodeAnchor(platform.root)
const pem = (...ders: Uint8Array[]) => ders.map(der => toPem(der, 'CERTIFICATE')).join('')
const { pck, authority } = decodePckChain(pem(pckDer, platform.authority.der), anchor)
const signer = decodeSigner(pem(platform.signer.der), anchor, 'it')

describe('chains', () => {
  test('goal: with or without their root, which is the trusted one', () => {
    const whole = decodePckChain(pem(pckDer, platform.authority.der, platform.rootDer), anchor)
    expect([whole.pck.der, whole.authority.der]).toEqual([pckDer, platform.authority.der])
    expect([pck.der, authority.der]).toEqual([pckDer, platform.authority.der])
    expect(decodeSigner(pem(platform.signer.der, platform.rootDer), anchor, 'it').der).toEqual(platform.signer.der)
    expect(signer.der).toEqual(platform.signer.der)
    expect(anchor).toMatchObject({ names: 'SIMULATED SGX', simulated: true })
  })

  const [leaf, ca, root] = [pckDer, platform.authority.der, platform.rootDer]
  // Goal: each refusal says what is wrong with the chain.
  test.each<[string, Uint8Array[], string]>([
    ['a certificate alone', [leaf], 'PCK chain: not a certificate and its CA'],
    ['another end', [leaf, ca, platform.signer.der], 'PCK chain: its end is not the trusted root'],
    ['the root twice', [leaf, ca, root, root], 'PCK chain: its end is not the trusted root'],
    ['something before the root', [leaf, ca, ca, root], 'PCK chain: its end is not the trusted root'],
    ['another order', [ca, leaf, root], 'PCK chain: its first certificate has no SGX extension'],
  ])('%s', (_, ders, message) => {
    expect(() => decodePckChain(pem(...ders), anchor)).toThrow(new Malformed(message))
  })

  test('goal: a signer stands under the root alone', () => {
    for (const more of [[ca], [root, root], [ca, root]])
      expect(() => decodeSigner(pem(platform.signer.der, ...more), anchor, 'it')).toThrow(
        'it: its end is not the trusted',
      )
    expect(() => decodeAnchor({ ...platform.root, certificate: pem(root, root) })).toThrow(
      new Malformed('root: not exactly one certificate'),
    )
  })

  test('goal: one revocation list', async () => {
    const der = await platform.crl('root', { revoked: ['02'] })
    expect([...decodeOnlyCrl(der, 'it').revoked.keys()]).toEqual(['02'])
    const two = utf8(toPem(der, 'X509 CRL').repeat(2))
    expect(() => decodeOnlyCrl(two, 'it')).toThrow(new Malformed('it: not exactly one'))
  })
})

/** The certificate with one extension set, or taken away. */
function withExtension({ extensions, ...rest }: Certificate, oid: string, value: number[] | null, critical = true) {
  const changed: Map<string, { critical: boolean; value: Uint8Array }> = new Map(extensions as Extensions)
  if (value === null) changed.delete(oid)
  else changed.set(oid, { critical, value: Uint8Array.from(value) })
  return { ...rest, extensions: changed }
}

const usageOid = '2.5.29.15'
const constraintsOid = '2.5.29.19'
const authorityConstraints = [0x30, 3, 1, 1, 0xff]
const broken = (bytes: Uint8Array) => bytes.with(bytes.length - 1, (bytes.at(-1) ?? 0) ^ 1)
const unknownCritical = 'critical extension 1.2.3 is unknown'
const maySign = 'pckCa: it may not sign certificates and CRLs'

describe('faults of a PCK chain', () => {
  const faults = (changes: { pck?: Certificate; authority?: Certificate }, ms = nowMs, at = anchor) =>
    pckFaults({ pck, authority, ...changes }, at, ms)

  test('goal: a good one has none, from its first to its last millisecond', async () => {
    for (const ms of [nowMs, nowMs - dayMs, nowMs + 30 * dayMs]) expect(await faults({}, ms)).toEqual([])
    const from = '2026-01-30T12:00:00.000Z to 2026-03-02T12:00:00.000Z'
    for (const ms of [nowMs - dayMs - 1, nowMs + 30 * dayMs + 1])
      expect(await faults({}, ms)).toEqual(
        ['root', 'pck', 'pckCa'].map(role => `${role}: it is for ${from}, not for the time of this verification`),
      )
  })

  // Goal: each fault is found alone.
  test.each<[string, { pck?: Certificate; authority?: Certificate }, string[]]>([
    ['an unknown extension that is not critical', { pck: withExtension(pck, '1.2.3', [], false) }, []],
    ['an unknown critical extension', { pck: withExtension(pck, '1.2.3', []) }, [`pck: ${unknownCritical}`]],
    ['the same above', { authority: withExtension(authority, '1.2.3', []) }, [`pckCa: ${unknownCritical}`]],
    ['no key usage of the CA', { authority: withExtension(authority, usageOid, null) }, [maySign]],
    ['a CA that signs no CRLs', { authority: withExtension(authority, usageOid, [3, 2, 1, 4]) }, [maySign]],
    ['a CA that signs only CRLs', { authority: withExtension(authority, usageOid, [3, 2, 1, 2]) }, [maySign]],
    ['a CA that is none', { authority: withExtension(authority, constraintsOid, [0x30, 0]) }, [maySign]],
    [
      'a PCK that is a CA',
      { pck: withExtension(pck, constraintsOid, authorityConstraints) },
      ['pck: it is a certificate authority'],
    ],
    ['a PCK without key usage', { pck: withExtension(pck, usageOid, null) }, []],
    [
      'another kind of key',
      { pck: { ...pck, publicKey: { kind: 'unsupported', spki: pck.der } } },
      ['pck: its key is not on P-256'],
    ],
    [
      'another signature',
      { pck: { ...pck, signature: broken(pck.signature) } },
      ["pck: its signature is not its issuer's"],
    ],
    [
      'other signed bytes',
      { pck: { ...pck, signedBytes: broken(pck.signedBytes) } },
      ["pck: its signature is not its issuer's"],
    ],
    ['another issuer', { pck: { ...pck, issuer: pck.subject } }, ['pck: its issuer has another name']],
    [
      'another issuer above',
      { authority: { ...authority, issuer: pck.subject } },
      ['pckCa: its issuer has another name'],
    ],
    [
      'no name',
      { pck: { ...pck, subject: new Uint8Array(0) } },
      ['pck: its name is not SIMULATED SGX PCK Certificate'],
    ],
    [
      'constraints of another form',
      { pck: withExtension(pck, constraintsOid, [0x30]) },
      ['pck: basic constraints: ends inside an element'],
    ],
  ])('%s', async (_, changes, expected) => {
    expect(await faults(changes)).toEqual(expected)
  })

  test('goal: names, each in its role', async () => {
    const name = (role: string) => `CN=SIMULATED SGX ${role},O=Strongroom simulator`
    const ca = async (role: string) => {
      const wanted = { subject: name(role), issuer: name('Root CA'), serial: '02', ca: 0, nowMs }
      const keys = await newKeys()
      const der = await issue(wanted, keys, platform.keys.root)
      const leaf = { subject: name('PCK Certificate'), issuer: name(role), serial: '5', ca: null, nowMs }
      const extension = pck.extensions.get('1.2.840.113741.1.13.1')
      if (extension === undefined) throw new Error('the SGX extension')
      const sgx = { ...extension, oid: '1.2.840.113741.1.13.1' }
      const pckOf = await issue({ ...leaf, extension: sgx }, await newKeys(), keys)
      return await pckFaults(decodePckChain(pem(pckOf, der), anchor), anchor, nowMs)
    }
    expect(await ca('PCK Platform CA')).toEqual([])
    expect(await ca('PCK Processor CA')).toEqual([])
    expect(await ca('TCB Signing')).toEqual([
      'pckCa: its name is not SIMULATED SGX PCK Platform CA or SIMULATED SGX PCK Processor CA',
    ])
  })

  test("goal: under Intel's root the names are Intel's", async () => {
    const found = await faults({}, nowMs, { ...anchor, names: INTEL_ROOT.names })
    expect(found).toEqual([
      'pck: its name is not Intel SGX PCK Certificate',
      'pckCa: its name is not Intel SGX PCK Platform CA or Intel SGX PCK Processor CA',
    ])
  })
})

describe('faults of a signer', () => {
  test('goal: a good one has none, and it is no authority', async () => {
    expect(await signerFaults(signer, anchor, nowMs)).toEqual([])
    expect(await signerFaults(withExtension(signer, constraintsOid, authorityConstraints), anchor, nowMs)).toEqual([
      'tcbSigner: it is a certificate authority',
    ])
    expect(await signerFaults({ ...signer, subject: pck.subject }, anchor, nowMs)).toEqual([
      'tcbSigner: its name is not SIMULATED SGX TCB Signing',
    ])
    expect(await signerFaults(withExtension(signer, '1.2.3', []), anchor, nowMs)).toEqual([
      `tcbSigner: ${unknownCritical}`,
    ])
  })
})

describe('faults of a revocation list', async () => {
  const crl = decodeOnlyCrl(await platform.crl('authority'), 'it')
  const faults = (changes: Partial<typeof crl>, ms = nowMs) => crlFaults({ ...crl, ...changes }, authority, ms)
  const extension = (oid: string, critical: boolean) => new Map([[oid, { critical, value: new Uint8Array(0) }]])

  test('goal: each alone', async () => {
    expect(await faults({})).toEqual([])
    expect(await faults({ issuer: pck.subject })).toEqual(['it is issued by another name'])
    expect(await faults({ signature: broken(crl.signature) })).toEqual(["its signature is not the authority's"])
    expect(await crlFaults(crl, { ...pck, subject: authority.subject }, nowMs)).toEqual([
      "its signature is not the authority's",
    ])
    expect(await faults({ extensions: extension('2.5.29.20', true) })).toEqual([])
    expect(await faults({ extensions: extension('1.2.3', false) })).toEqual([])
    expect(await faults({ extensions: extension('1.2.3', true) })).toEqual([unknownCritical])
    expect(await faults({ nextUpdateMs: null })).toEqual(['it has no nextUpdate'])
    expect((await faults({ nextUpdateMs: nowMs - 1 })).length).toBe(1)
    expect((await faults({ thisUpdateMs: nowMs + 1 })).length).toBe(1)
    expect(await faults({ thisUpdateMs: nowMs, nextUpdateMs: nowMs })).toEqual([])
  })
})

test('goal: a span has both of its ends', () => {
  expect([spanFaults(1, 3, 1), spanFaults(1, 3, 2), spanFaults(1, 3, 3)]).toEqual([[], [], []])
  for (const ms of [0, 4])
    expect(spanFaults(1, 3, ms)).toEqual([
      'it is for 1970-01-01T00:00:00.001Z to 1970-01-01T00:00:00.003Z, not for the time of this verification',
    ])
})
