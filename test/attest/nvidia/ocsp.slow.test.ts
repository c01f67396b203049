// Goal: a saved OCSP response counts only from the certificate's own authorities, in its time; a revocation always.

import { beforeAll, describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeOcsp, isAuthentic, stateIn } from '../../../src/attest/nvidia/ocsp.ts'
import { verifyGpus } from '../../../src/attest/nvidia/verify.ts'
import { decodeCertificate } from '../../../src/attest/x509/certificate.ts'
import { concat } from '../../../src/base/bytes.ts'
import type { Holder } from '../../rigs/attest/gpu/authority.ts'
import { ascii, bits, octets, oid, seq, time, tlv } from '../../rigs/attest/gpu/der.ts'
import {
  type Answer,
  ocspNonce,
  ocspResponse,
  ocspSigner,
  ocspUnknownExtension,
  type ResponseParts,
} from '../../rigs/attest/gpu/ocsp.ts'
import { asOfMs, ocspOf, type SimulatedGpu, simulatedGpu } from '../../rigs/attest/gpu/simulated.ts'

let gpu: SimulatedGpu
beforeAll(async () => {
  gpu = await simulatedGpu()
})

const hourMs = 3_600_000

/** The verdict's word on the device certificate, with this response for it among the others. */
async function withAnswer(
  change: Partial<Answer>,
  make: Partial<ResponseParts> & { by?: (authorities: SimulatedGpu['authorities']) => Promise<Holder> } = {},
): Promise<string> {
  const { brom, provisioner } = gpu.authorities.device
  const signer = make.signer ?? (await (make.by ?? (() => ocspSigner(provisioner)))(gpu.authorities))
  const answer = { certificate: brom, issuer: provisioner, thisUpdateMs: asOfMs - hourMs, ...change }
  const response = await ocspResponse({ answers: [answer], certificates: [signer], ...make, signer })
  return wordOn([response, ...gpu.ocsp.slice(1)])
}

function wordOn(ocsp: readonly Uint8Array[], from = gpu): string {
  const judged = verifyGpus({ ...from.question, ocsp })
  const found = judged.checks.find(({ name }) => name === 'gpu-0/gpu-chain-ocsp')
  expect([found?.outcome === 'pass', judged.ok]).toEqual([judged.ok, judged.ok])
  return found?.outcome === 'pass' ? 'good' : `${found?.outcome}: ${found?.reason}`
}

const missing = 'not-checked: SIMULATED GH100 A01 GSP BROM: '

test('goal: a response of a delegate or of the issuer itself passes, by any of the three hashes, by name or key', async () => {
  const { device } = gpu.authorities
  expect(await withAnswer({})).toBe('good')
  expect(await withAnswer({}, { signer: device.provisioner, certificates: [] })).toBe('good')
  expect(await withAnswer({}, { byKey: true })).toBe('good')
  for (const hash of ['SHA-1', 'SHA-256'] as const) expect(await withAnswer({ hash })).toBe('good')
  expect(await withAnswer({}, { extensions: [ocspNonce] })).toBe('good')
  // NVIDIA's verifier takes a responder of any authority above.
  expect(await withAnswer({}, { by: ({ device: { root } }) => ocspSigner(root) })).toBe('good')
})

test('goal: a response of somebody else is none', async () => {
  const unsigned = `${missing}the OCSP response is not signed by its authority`
  expect(await withAnswer({}, { by: ({ rim }) => ocspSigner(rim.root) })).toBe(unsigned)
  expect(await withAnswer({}, { by: ({ device }) => ocspSigner(device.brom) })).toBe(unsigned)
  expect(await withAnswer({}, { by: ({ device }) => ocspSigner(device.provisioner, { usage: false }) })).toBe(unsigned)
  expect(await withAnswer({}, { signer: gpu.authorities.device.leaf, certificates: [] })).toBe(unsigned)
})

test('goal: none, an old one, one of the future or of another certificate leaves the check open', async () => {
  expect(wordOn(gpu.ocsp.slice(1))).toBe(`${missing}no OCSP response was given for it`)
  const old = `${missing}the OCSP response is too old`
  expect(await withAnswer({ thisUpdateMs: asOfMs - 2 * hourMs })).toBe('good')
  expect(await withAnswer({ thisUpdateMs: asOfMs - 2 * hourMs - 1000 })).toBe(old)
  expect(await withAnswer({ nextUpdateMs: asOfMs - 1000 })).toBe(old)
  expect(await withAnswer({ nextUpdateMs: asOfMs })).toBe('good')
  expect(await withAnswer({ thisUpdateMs: asOfMs + 1000 })).toBe(`${missing}the OCSP response is from the future`)
  const { provisioner, identity, root } = gpu.authorities.device
  expect(await withAnswer({ certificate: provisioner, issuer: identity })).toContain('no OCSP response')
  expect(await withAnswer({ issuer: root })).toContain('no OCSP response')
  expect(await withAnswer({ state: 'unknown' })).toBe(`${missing}the responder does not know it`)
})

test('goal: a revoked certificate fails, however old the response is, and beside a good one too', async () => {
  const revoked = 'fail: SIMULATED GH100 A01 GSP BROM is revoked'
  expect(await withAnswer({ state: 'revoked' })).toBe(revoked)
  expect(await withAnswer({ state: 'revoked', thisUpdateMs: asOfMs - 1e11 })).toBe(revoked)
  const { device } = gpu.authorities
  const bad = await ocspOf(gpu.authorities, ({ name }) => (name === device.brom.name ? { state: 'revoked' } : {}))
  expect(wordOn([...gpu.ocsp, ...bad])).toBe(revoked)
  const any = {
    ...gpu,
    question: { ...gpu.question, policy: { ...gpu.question.policy, ocspMaximumAgeSeconds: 'any' as const } },
  }
  expect(wordOn(bad, any)).toBe(revoked)
  const named = verifyGpus({ ...any.question, ocsp: [] })
  expect(named.ok).toBe(true)
  const rimRevoked = await ocspOf(gpu.authorities, ({ name }) => (name.endsWith('Signer') ? { state: 'revoked' } : {}))
  const judged = verifyGpus({ ...any.question, ocsp: rimRevoked })
  expect(judged.checks.filter(made => made.outcome === 'fail').map(({ name }) => name)).toEqual([
    ...['rim-0/gpu-rim-ocsp', 'rim-1/gpu-rim-ocsp'],
  ])
})

test('goal: bytes that are no answer, and critical extensions that nobody knows, are Malformed, and fail the verdict', async () => {
  const [good = new Uint8Array(0)] = gpu.ocsp
  // responseStatus tryLater, without an answer.
  const later = Uint8Array.of(0x30, 3, 0x0a, 1, 3)
  for (const odd of [
    later,
    new Uint8Array(0),
    good.slice(0, -1),
    concat(good, Uint8Array.of(0)),
    new Uint8Array(70_000),
  ]) {
    expect(() => decodeOcsp(odd)).toThrow(Malformed)
  }
  const judged = verifyGpus({ ...gpu.question, ocsp: [...gpu.ocsp, later] })
  expect(judged.checks.filter(made => made.outcome === 'fail').map(({ name }) => name)).toEqual([
    'ocsp-6/gpu-ocsp-format',
  ])
  const { brom, provisioner } = gpu.authorities.device
  const answers = [{ certificate: brom, issuer: provisioner, thisUpdateMs: asOfMs }]
  const critical = await ocspResponse({ answers, signer: provisioner, extensions: [ocspUnknownExtension] })
  expect(() => decodeOcsp(critical)).toThrow('critical extension')
})

// Goal: RFC 6960, section 4.2.1, member by member: nothing is left out, doubled or of another form.
describe('the form of a response', () => {
  const nothing = tlv(0x05)
  const id = (...more: Uint8Array[]) =>
    seq(
      seq(oid('1.3.14.3.2.26')),
      octets(Uint8Array.of(1)),
      octets(Uint8Array.of(2)),
      tlv(0x02, Uint8Array.of(7)),
      ...more,
    )
  const [at, later] = [Date.UTC(2026, 0, 2, 3, 4, 5), Date.UTC(2026, 1, 2)]
  const single = (...parts: Uint8Array[]) => seq(id(), tlv(0x80), time(at), ...parts)
  const name = seq(tlv(0x31, Uint8Array.of()))
  const wrapped = (...list: Uint8Array[]) => tlv(0xa1, seq(...list))
  const plain = seq(oid('1.2.3'), octets(new Uint8Array(1)))
  const critical = seq(oid('1.2.3'), tlv(0x01, Uint8Array.of(0xff)), octets(new Uint8Array(1)))
  const data = (...parts: Uint8Array[]) => seq(tlv(0xa1, name), time(at), ...parts)
  const algorithm = seq(oid('1.2.840.10045.4.3.3'))
  const sound = data(seq(single()))
  const basic = (...parts: Uint8Array[]) => seq(...parts)
  const answer = (contents: Uint8Array, type = '1.3.6.1.5.5.7.48.1.1') => seq(oid(type), octets(contents))
  const response = (wrappedAnswer: Uint8Array, status = 0) =>
    seq(tlv(0x0a, Uint8Array.of(status)), tlv(0xa0, wrappedAnswer))
  const of = (found: Uint8Array, ...more: Uint8Array[]) =>
    response(answer(basic(found, algorithm, bits(Uint8Array.of(9)), ...more)))

  test('goal: every member comes out', () => {
    const found = decodeOcsp(of(data(seq(single(tlv(0xa0, time(later)), wrapped(plain))), wrapped(plain, ocspNonce))))
    const { singles, signedBytes, ...rest } = found
    expect(rest).toEqual({
      ...{ signatureAlgorithm: 'ecdsa-sha384', signature: Uint8Array.of(9), certificates: [] },
      responder: { kind: 'name', name },
    })
    expect(signedBytes).toEqual(data(seq(single(tlv(0xa0, time(later)), wrapped(plain))), wrapped(plain, ocspNonce)))
    const [{ hash, ...answered } = { hash: null }] = singles
    expect(answered as object).toEqual({
      ...{ issuerNameHash: Uint8Array.of(1), issuerKeyHash: Uint8Array.of(2), serial: '07', state: 'good' },
      ...{ thisUpdateMs: at, nextUpdateMs: later },
    })
    expect(hash?.(new Uint8Array(0)).toHex()).toBe('da39a3ee5e6b4b0d3255bfef95601890afd80709')
    expect(decodeOcsp(of(sound)).singles[0]?.nextUpdateMs).toBeNull()
    const states = [tlv(0x80), tlv(0xa1, time(at)), tlv(0x82)].map(state => seq(id(), state, time(at)))
    expect(decodeOcsp(of(data(seq(...states)))).singles.map(({ state }) => state)).toEqual([
      'good',
      'revoked',
      'unknown',
    ])
    const byKey = decodeOcsp(of(seq(tlv(0xa2, octets(Uint8Array.of(5))), time(at), seq(single()))))
    expect(byKey.responder).toEqual({ kind: 'key', sha1: Uint8Array.of(5) })
    const { der } = gpu.authorities.device.root
    const eight = new Array(8).fill(der)
    expect(decodeOcsp(of(sound, tlv(0xa0, seq(...eight)))).certificates.map(read => read.der)).toEqual(eight)
    expect(decodeOcsp(of(data(seq(...new Array(64).fill(single()))))).singles.length).toBe(64)
  })

  const hashed = (hash: Uint8Array) =>
    seq(
      seq(seq(hash), octets(Uint8Array.of(1)), octets(Uint8Array.of(2)), tlv(2, Uint8Array.of(7))),
      tlv(0x80),
      time(at),
    )
  test.each<[string, () => Uint8Array, string]>([
    ['a status of an error', () => response(answer(sound), 1), 'the responder did not answer the question'],
    ['a status of two bytes', () => seq(tlv(0x0a, Uint8Array.of(0, 0)), tlv(0xa0, answer(sound))), 'did not answer'],
    [
      'something after the answer',
      () => seq(tlv(0x0a, Uint8Array.of(0)), tlv(0xa0, answer(sound)), nothing),
      'an element',
    ],
    ['another type', () => response(answer(sound, '1.3.6.1.5.5.7.48.1.2')), 'not a basic one'],
    ['something in the answer', () => response(seq(oid('1.3.6.1.5.5.7.48.1.1'), octets(seq()), nothing)), 'an element'],
    ['something after the certificates', () => of(sound, tlv(0xa0, seq()), nothing), 'an element that does not belong'],
    ['nine certificates', () => of(sound, tlv(0xa0, seq(...new Array(9).fill(seq())))), '9 certificates, at most 8'],
    ['no answers', () => of(data(seq())), '0 answers'],
    ['65 answers', () => of(data(seq(...new Array(65).fill(single())))), '65 answers'],
    [
      'something after the extensions',
      () => of(data(seq(single()), wrapped(plain), nothing)),
      'an element that does not',
    ],
    ['a critical extension', () => of(data(seq(single()), wrapped(critical))), 'critical extension 1.2.3 is unknown'],
    ['one of an answer', () => of(data(seq(single(wrapped(critical))))), 'critical extension 1.2.3 is unknown'],
    ['something after an answer', () => of(data(seq(single(nothing)))), 'an element that does not belong there'],
    [
      'something in its certificate',
      () => of(data(seq(seq(id(nothing), tlv(0x80), time(at))))),
      'an element that does',
    ],
    ['an unknown hash', () => of(data(seq(hashed(oid('1.2.3'))))), 'named by a hash that is not known'],
    [
      'a hash without identifier',
      () => of(data(seq(hashed(octets(Uint8Array.of(0x2b, 14, 3, 2, 26)))))),
      'named by a hash',
    ],
    ['no state', () => of(data(seq(seq(id(), time(at))))), 'no state'],
    ['no time', () => of(data(seq(seq(id(), tlv(0x80))))), 'no thisUpdate'],
    ['a time that is none', () => of(data(seq(seq(id(), tlv(0x80), ascii(0x18, 'now'))))), 'not a time'],
    ['no responder', () => of(seq(time(at), seq(single()))), 'no responder'],
    ['no time of making', () => of(seq(tlv(0xa1, name), seq(single()))), 'no producedAt'],
    ['no signature', () => response(answer(basic(sound, algorithm))), 'no signature'],
  ])('%s', (_, made, message) => {
    expect(() => decodeOcsp(made())).toThrow(message)
    expect(() => decodeOcsp(made())).toThrow(Malformed)
  })

  test('goal: 64 KiB', () => {
    expect(() => decodeOcsp(new Uint8Array(65_537))).toThrow('OCSP response: 65537 bytes, at most 65536')
    expect(() => decodeOcsp(new Uint8Array(65_536))).not.toThrow('at most 65536')
  })
})

describe('whom a response is of', () => {
  const answered = async (change: Partial<Answer> = {}, parts: Partial<ResponseParts> = {}) => {
    const { brom, provisioner } = gpu.authorities.device
    const answers = [{ certificate: brom, issuer: provisioner, thisUpdateMs: asOfMs, ...change }]
    return decodeOcsp(await ocspResponse({ answers, signer: provisioner, ...parts }))
  }
  const read = ({ der }: Holder) => decodeCertificate(der)

  test('goal: name, key and number of the certificate, each by itself', async () => {
    const { brom, provisioner } = gpu.authorities.device
    const response = await answered()
    const [certificate, issuer] = [read(brom), read(provisioner)]
    expect(stateIn(response, certificate, issuer)?.state).toBe('good')
    expect(stateIn(response, { ...certificate, serial: '01' }, issuer)).toBeNull()
    expect(stateIn(response, { ...certificate, issuer: certificate.subject }, issuer)).toBeNull()
    expect(stateIn(response, certificate, { ...issuer, publicKey: certificate.publicKey })).toBeNull()
    expect(
      stateIn(response, certificate, { ...issuer, publicKey: { kind: 'unsupported', spki: issuer.der } }),
    ).toBeNull()
    const [single] = response.singles
    if (single === undefined) throw new Error('an answer')
    const zeros = new Uint8Array(48)
    for (const changed of [{ issuerNameHash: zeros }, { issuerKeyHash: zeros }])
      expect(stateIn({ ...response, singles: [{ ...single, ...changed }] }, certificate, issuer)).toBeNull()
    expect(stateIn({ ...response, singles: [] }, certificate, issuer)).toBeNull()
  })

  test('goal: name, signature and, of a delegate, purpose, time and issuer, each by itself', async () => {
    const { provisioner, brom, root } = gpu.authorities.device
    const issuer = read(provisioner)
    const own = await answered()
    expect(isAuthentic(own, [issuer], asOfMs)).toBe(true)
    expect(isAuthentic(own, [read(root), issuer], asOfMs)).toBe(true)
    expect(isAuthentic(own, [], asOfMs)).toBe(false)
    expect(isAuthentic(own, [{ ...issuer, subject: issuer.issuer }], asOfMs)).toBe(false)
    expect(isAuthentic(own, [{ ...issuer, publicKey: read(brom).publicKey }], asOfMs)).toBe(false)
    const byKey = await answered({}, { byKey: true })
    expect(isAuthentic(byKey, [issuer], asOfMs)).toBe(true)
    expect(isAuthentic({ ...byKey, responder: { kind: 'key', sha1: new Uint8Array(20) } }, [issuer], asOfMs)).toBe(
      false,
    )
    const unsupported = { ...issuer, publicKey: { kind: 'unsupported', spki: issuer.der } as const }
    expect(isAuthentic(byKey, [unsupported], asOfMs)).toBe(false)
    const signer = await ocspSigner(provisioner)
    const delegated = await answered({}, { signer, certificates: [signer] })
    const delegate = read(signer)
    const by = (change: Partial<typeof delegate>, ms = asOfMs) => {
      return isAuthentic({ ...delegated, certificates: [{ ...delegate, ...change }] }, [issuer], ms)
    }
    expect(by({})).toBe(true)
    expect(by({ extensions: new Map() })).toBe(false)
    const cut = new Map([['2.5.29.37', { critical: false, value: Uint8Array.of(0x30) }]])
    expect(by({ extensions: cut })).toBe(false)
    expect(by({ issuer: delegate.subject })).toBe(false)
    expect(by({ signature: read(brom).signature })).toBe(false)
    expect([by({}, delegate.notAfterMs), by({}, delegate.notAfterMs + 1), by({}, delegate.notBeforeMs - 1)]).toEqual([
      ...[true, false, false],
    ])
    expect(isAuthentic({ ...delegated, certificates: [] }, [issuer], asOfMs)).toBe(false)
    expect(isAuthentic(delegated, [read(root)], asOfMs)).toBe(false)
  })
})
