// Goal: every rule for a chain of NVIDIA's decides by itself: each fault is found alone, and the chain is null with it.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { checkChain, decodeChain, isValidAt } from '../../../src/attest/nvidia/chain.ts'
import { isOcspSigner } from '../../../src/attest/nvidia/ocsp.ts'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import { decodeRoots } from '../../../src/attest/nvidia/roots.ts'
import { type Certificate, decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { compositeDeviceId, makeAuthorities, VALID } from '../../rigs/attest/gpu/authority.ts'
import { ocspSigner } from '../../rigs/attest/gpu/ocsp.ts'
import { asOfMs, deviceChain, fwid } from '../../rigs/attest/gpu/simulated.ts'

const authorities = await makeAuthorities('GH100', compositeDeviceId(fwid))
const roots = decodeRoots([{ device: authorities.device.root.der, rim: authorities.rim.root.der }])
const ders = deviceChain(authorities).map(({ der }) => der)
const good = decodeChain(ders, 'GPU')
const signers = ['signer', 'l3', 'ca', 'root'] as const
const rim = decodeChain(
  signers.map(name => authorities.rim[name].der),
  'RIM',
)

const checked = (certificates: readonly Certificate[], ms = asOfMs, trusted = roots.device) =>
  checkChain('gpu', { certificates, roots: trusted, asOfMs: ms, verify: portableP384 })

/** Outcome and reason of root, signatures and times, and whether there is a chain. */
function outcomes(certificates: readonly Certificate[], ms = asOfMs, trusted = roots.device) {
  const { checks, chain } = checked(certificates, ms, trusted)
  expect(checks.map(({ name }) => name)).toEqual(['gpu-root', 'gpu-signatures', 'gpu-times'])
  expect(checks.map(({ required }) => required)).toEqual([true, true, true])
  return [...checks.map(({ outcome, reason }) => `${outcome}: ${reason}`), chain !== null]
}

const rootName = 'SIMULATED Device Identity CA'
const passed = [`pass: ${rootName}, which is SIMULATED`, 'pass: 5 certificates', 'pass: ', true]

describe('a good chain', () => {
  test('goal: with its root or without, from its first to its last second', () => {
    expect(outcomes(good)).toEqual(passed)
    expect(outcomes(good.slice(0, -1))).toEqual(passed)
    for (const ms of [VALID.from, VALID.to]) expect(outcomes(good, ms)).toEqual(passed)
    const { chain } = checked(good.slice(0, -1))
    expect(chain?.simulated).toBe(true)
    expect(chain?.path.map(({ der }) => der)).toEqual(ders)
    const real = roots.device.map(root => ({ ...root, simulated: false }))
    expect(checked(good, asOfMs, real).chain?.simulated).toBe(false)
    expect(outcomes(good, asOfMs, real)[0]).toBe(`pass: ${rootName}`)
    // The L3 authority allows no authority below it, and there is none.
    const [first, ...rest] = outcomes(rim, asOfMs, roots.rim)
    expect([first, ...rest]).toEqual([
      ...['pass: SIMULATED CoRIM signing Root CA, which is SIMULATED', 'pass: 4 certificates', 'pass: ', true],
    ])
  })

  test('goal: a certificate right below its root', () => {
    const [identity, root] = good.slice(-2)
    if (identity === undefined || root === undefined) throw new Error('two certificates')
    const leaf = { ...identity, extensions: new Map() }
    for (const chain of [[leaf], [leaf, root]]) expect(outcomes(chain)[1]).toBe('pass: 2 certificates')
  })
})

describe('no trusted root', () => {
  const skipped = ['not-checked: gpu-root is not good', 'not-checked: gpu-root is not good', false]
  const [leaf, ...above] = good
  if (leaf === undefined) throw new Error('a leaf')
  const root = good.at(-1) ?? leaf
  // Goal: without a trusted root nothing else is checked.
  test.each<[string, readonly Certificate[], string]>([
    ['nothing', [], 'there are no certificates'],
    ['the root alone', [root], 'the root alone is no chain'],
    ['another root', good.with(-1, { ...root, der: leaf.der }), `${rootName} is not a trusted root`],
    ['another issuer', [leaf, ...above.slice(0, -2)], 'SIMULATED GH100 Identity is not a trusted root'],
    ['a root of manifests', rim, 'SIMULATED CoRIM signing Root CA is not a trusted root'],
  ])('%s', (_, certificates, reason) => {
    expect(outcomes(certificates)).toEqual([`fail: ${reason}`, ...skipped])
  })

  test('goal: no roots at all', () => {
    expect(outcomes(good, asOfMs, [])[0]).toBe(`fail: ${rootName} is not a trusted root`)
  })
})

const constraintsOid = '2.5.29.19'
const usageOid = '2.5.29.15'

function withExtension({ extensions, ...rest }: Certificate, oid: string, value: number[] | null, critical = true) {
  const changed = new Map(extensions)
  if (value === null) changed.delete(oid)
  else changed.set(oid, { critical, value: Uint8Array.from(value) })
  return { ...rest, extensions: changed }
}

const names = [
  'GH100 A01 GSP FMC LF',
  'GH100 A01 GSP BROM',
  'GH100 Provisioner ICA 1',
  'GH100 Identity',
  'Device Identity CA',
]
const broken = (bytes: Uint8Array) => bytes.with(bytes.length - 1, (bytes.at(-1) ?? 0) ^ 1)

describe('one fault', () => {
  const authorityBelow = (below: number) => [0x30, 6, 1, 1, 0xff, 2, 1, below]
  type Change = (certificate: Certificate) => Certificate
  const extended = (oid: string, value: number[] | null, critical?: boolean): Change => {
    return certificate => withExtension(certificate, oid, value, critical)
  }
  // Goal: each fault is found alone, by the name of its certificate.
  test.each<[string, number, Change, string | null]>([
    ['an unknown critical extension', 0, extended('1.2.3', []), 'critical extension 1.2.3 is unknown'],
    ['an unknown extension', 2, extended('1.2.3', [], false), null],
    ['a critical extended key usage', 0, extended('2.5.29.37', [0x30, 0]), null],
    ['an unknown critical extension above', 3, extended('1.2.3', []), 'critical extension 1.2.3 is unknown'],
    ['another key', 0, made => ({ ...made, publicKey: { kind: 'unsupported', spki: made.der } }), 'not a key on P-384'],
    ['a leaf that is an authority', 0, extended(constraintsOid, authorityBelow(0)), 'a leaf that is an authority'],
    ['an authority that is none', 1, extended(constraintsOid, null), 'not an authority'],
    ['an authority with empty constraints', 1, extended(constraintsOid, [0x30, 0]), 'not an authority'],
    ['the first authority with no other below', 1, extended(constraintsOid, authorityBelow(0)), null],
    ['the second with one', 2, extended(constraintsOid, authorityBelow(1)), null],
    ['the second with none', 2, extended(constraintsOid, authorityBelow(0)), 'too many certificates below it'],
    ['the third with one', 3, extended(constraintsOid, authorityBelow(1)), 'too many certificates below it'],
    ['an authority that may not sign', 1, extended(usageOid, [3, 2, 1, 2]), 'may not sign certificates'],
    ['an authority without key usage', 1, extended(usageOid, null), null],
    ['a leaf that may not sign certificates', 0, extended(usageOid, [3, 2, 7, 0x80]), null],
    ['another issuer', 1, made => ({ ...made, issuer: made.subject }), "issued by another name than the next one's"],
    ['another signature', 0, made => ({ ...made, signature: broken(made.signature) }), 'not signed by SIMULATED'],
    ['other signed bytes', 3, made => ({ ...made, signedBytes: broken(made.signedBytes) }), 'not signed by SIMULATED'],
    ['another algorithm', 1, made => ({ ...made, signatureAlgorithm: 'ecdsa-sha256' }), 'not signed by SIMULATED'],
  ])('%s at %i', (_, at, change, fault) => {
    const certificates = good.map((certificate, place) => (place === at ? change(certificate) : certificate))
    const [root, signatures, times, isChain] = outcomes(certificates)
    expect([root, times, isChain]).toEqual([passed[0] ?? '', 'pass: ', fault === null])
    if (fault === null) expect(signatures).toBe('pass: 5 certificates')
    else expect(signatures).toStartWith(`fail: SIMULATED ${names[at]}: ${fault}`)
  })

  test('goal: constraints that cannot be read', () => {
    const certificates = good.map((made, place) => (place === 1 ? withExtension(made, constraintsOid, [0x30]) : made))
    expect(outcomes(certificates)).toEqual([
      passed[0] ?? '',
      'fail: basic constraints: ends inside an element',
      'pass: ',
      false,
    ])
    const more = good.map((made, place) => (place === 1 ? withExtension(made, constraintsOid, [0x30, 2, 5, 0]) : made))
    expect(outcomes(more)[1]).toContain('an element that does not belong there')
  })

  test('goal: times do not decide whether there is a chain', () => {
    for (const ms of [VALID.from - 1, VALID.to + 1])
      expect(outcomes(good, ms)).toEqual([
        ...passed.slice(0, 2),
        `fail: SIMULATED ${names[0]} is valid from 2025-01-01T00:00:00.000Z to 2035-01-01T00:00:00.000Z, not at the ` +
          'time of this verification',
        true,
      ])
    const late = good.with(3, { ...(good[3] as Certificate), notBeforeMs: asOfMs + 1 })
    expect(outcomes(late)[2]).toContain('fail: SIMULATED GH100 Identity is valid from')
    const leaf = { ...(good[0] as Certificate), notBeforeMs: 5, notAfterMs: 7 }
    expect([4, 5, 7, 8].map(ms => isValidAt(leaf, ms))).toEqual([false, true, true, false])
  })
})

test('goal: one to eight certificates, each of which can be read', () => {
  const [first = new Uint8Array(0)] = ders
  expect(decodeChain(new Array(8).fill(first), 'it').length).toBe(8)
  expect(decodeChain([first], 'it').length).toBe(1)
  expect(() => decodeChain(new Array(9).fill(first), 'it')).toThrow(new Malformed('it: 9 certificates, at most 8'))
  expect(() => decodeChain([], 'it')).toThrow(new Malformed('it: 0 certificates, at most 8'))
  expect(() => decodeChain([first, first.subarray(1)], 'it')).toThrow('it: certificate 1: certificate: ')
})

test('goal: a signer of OCSP responses is one that its authority says is one', async () => {
  const signer = decodeCertificate((await ocspSigner(authorities.device.root)).der)
  expect(isOcspSigner(signer)).toBe(true)
  expect(isOcspSigner(decodeCertificate((await ocspSigner(authorities.device.root, { usage: false })).der))).toBe(false)
  const usage = '2.5.29.37'
  const purpose = (last: number) => [0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, last]
  expect(isOcspSigner(withExtension(signer, usage, purpose(9), false))).toBe(true)
  expect(isOcspSigner(withExtension(signer, usage, purpose(8)))).toBe(false)
  expect(isOcspSigner(withExtension(signer, usage, [0x30, 0]))).toBe(false)
  expect(isOcspSigner(withExtension(signer, '1.2.3', []))).toBe(false)
  expect(isOcspSigner(withExtension(signer, '1.2.3', [], false))).toBe(true)
})
