// Goal: collateral is read in both of its forms, quote verifiers' and the PCS's own, and refused by the member's name.

import { describe, expect, test } from 'bun:test'
import { Malformed } from '../../../src/attest/malformed.ts'
import { parseCollateral } from '../../../src/attest/tdx/collateral.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'

const pem = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const DOCUMENT = {
  root_ca_crl: '3001',
  pck_crl: '3002AB',
  tcb_info: '{"id":"TDX"}',
  tcb_info_signature: '01'.repeat(64),
  tcb_info_issuer_chain: pem,
  qe_identity: '{"id":"TD_QE"}',
  qe_identity_signature: '02'.repeat(64),
  qe_identity_issuer_chain: pem,
}

const read = (changes: Readonly<Record<string, unknown>> = {}) => {
  return parseCollateral(utf8(JSON.stringify({ ...DOCUMENT, ...changes })))
}

test('goal: each member, with bytes in place of hexadecimal', () => {
  const collateral = read({ pck_crl_issuer_chain: 'a', pck_certificate_chain: 'b' })
  expect(collateral).toEqual({
    root_ca_crl: Uint8Array.of(0x30, 1),
    pck_crl: Uint8Array.of(0x30, 2, 0xab),
    tcb_info: '{"id":"TDX"}',
    tcb_info_signature: new Uint8Array(64).fill(1),
    tcb_info_issuer_chain: pem,
    qe_identity: '{"id":"TD_QE"}',
    qe_identity_signature: new Uint8Array(64).fill(2),
    qe_identity_issuer_chain: pem,
    pck_crl_issuer_chain: 'a',
    pck_certificate_chain: 'b',
  })
  expect(read({ tcb_info_issuer_chain: encodeURIComponent(pem) }).tcb_info_issuer_chain).toBe(pem)
})

test('goal: the whole body of the PCS has its signature in it', () => {
  const body = (member: string, signed: string, byte: string) =>
    `{"${member}":${signed},"signature":"${byte.repeat(64)}"}`
  const collateral = read({
    tcb_info: body('tcbInfo', '{"id":"TDX"}', 'a1'),
    tcb_info_signature: undefined,
    qe_identity: `\n${body('enclaveIdentity', '{"id":"TD_QE"}', 'B2')} `,
    qe_identity_signature: undefined,
  })
  expect([collateral.tcb_info, collateral.qe_identity]).toEqual(['{"id":"TDX"}', '{"id":"TD_QE"}'])
  expect([collateral.tcb_info_signature, collateral.qe_identity_signature].map(toHex)).toEqual([
    'a1'.repeat(64),
    'b2'.repeat(64),
  ])
  const message = 'collateral.tcb_info: no tcb_info_signature beside it, and not the whole body of the PCS'
  for (const bad of [
    '{"id":"TDX"}',
    body('enclaveIdentity', '{}', 'a1'),
    `{"tcbInfo":{},"signature":"${'a1'.repeat(63)}"}`,
    `{"tcbInfo":{},"signature":"${'a1'.repeat(64)}"} x`,
  ])
    expect(() => read({ tcb_info: bad, tcb_info_signature: undefined })).toThrow(message)
})

describe('refused', () => {
  // Goal: no member may be left out.
  test.each(['root_ca_crl', 'pck_crl', 'tcb_info', 'tcb_info_issuer_chain', 'qe_identity', 'qe_identity_issuer_chain'])(
    'without %s',
    name => {
      expect(() => read({ [name]: undefined })).toThrow(`collateral: no ${name}`)
    },
  )

  // Goal: a member of another form or size is refused by its name.
  test.each<[string, unknown, string]>([
    ['root_ca_crl', '', 'collateral.root_ca_crl: not bytes in hexadecimal'],
    ['pck_crl', '300', 'collateral.pck_crl: not bytes in hexadecimal'],
    ['pck_crl', '30zz', 'collateral.pck_crl: not bytes in hexadecimal'],
    ['pck_crl', 'a'.repeat(65_538), 'collateral.pck_crl: 65538 characters, at most 65536'],
    ['tcb_info', 'a'.repeat(131_073), 'collateral.tcb_info: 131073 characters, at most 131072'],
    ['tcb_info_signature', 'aa'.repeat(65), 'collateral.tcb_info_signature: 130 characters, at most 128'],
    ['qe_identity_issuer_chain', 'a'.repeat(16_385), 'qe_identity_issuer_chain: 16385 characters, at most 16384'],
    ['qe_identity_issuer_chain', '-----BEGIN%20%', 'qe_identity_issuer_chain: not percent-encoded'],
    ['tcb_info', 1, 'collateral.tcb_info: not a text'],
    ['other', '', 'collateral: the unknown field "other"'],
  ])('another %s', (name, value, message) => {
    expect(() => read({ [name]: value })).toThrow(message)
    expect(() => read({ [name]: value })).toThrow(Malformed)
  })

  test('goal: 512 KiB is the end of a document', () => {
    const whole = JSON.stringify(DOCUMENT)
    expect(parseCollateral(utf8(whole.padEnd(512 * 1024))).tcb_info).toBe('{"id":"TDX"}')
    expect(() => parseCollateral(utf8(whole.padEnd(512 * 1024 + 1)))).toThrow(
      'collateral: 524289 bytes, at most 524288',
    )
  })
})

test('goal: the ends of what is allowed', () => {
  expect(read({ pck_crl: 'ab'.repeat(32_768) }).pck_crl.length).toBe(32_768)
  expect(read({ tcb_info: 'a'.repeat(131_072) }).tcb_info.length).toBe(131_072)
  expect(read({ pck_certificate_chain: 'a'.repeat(16_384) }).pck_certificate_chain?.length).toBe(16_384)
})
