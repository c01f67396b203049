// Goal: the SGX extension of a PCK certificate is read as Intel's profile has it (section 1.3.5), and one that lacks a
// value, has one twice or has one of another size is refused.

import { describe, expect, test } from 'bun:test'
import { derElement, derOid } from '../../../src/attest/encoding/der-writer.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodePckExtension, hasPckExtension, SGX_OID } from '../../../src/attest/tdx/pck-extension.ts'
import { concat, fromHex } from '../../../src/base/bytes.ts'

const hex = (text: string) => fromHex(text) ?? new Uint8Array(0)
const seq = (...parts: Uint8Array[]) => derElement(0x30, ...parts)
const octets = (text: string) => derElement(0x04, hex(text))
const int = (text: string) => derElement(0x02, hex(text))
const sgx = '1.2.840.113741.1.13.1'
const member = (arcs: string, ...value: Uint8Array[]) => seq(derOid(`${sgx}${arcs}`), ...value)

/** Components 1 to 16, PCE SVN 0x0b, and CPU SVN. */
const svns: Uint8Array[] = [
  ...Array.from({ length: 16 }, (_, at) => member(`.2.${at + 1}`, int(at === 15 ? '00ff' : `0${(at % 8) + 1}`))),
  member('.2.17', int('00ffff')),
  member('.2.18', octets('00'.repeat(16))),
]
const MEMBERS = {
  ppid: member('.1', octets('a1'.repeat(16))),
  tcb: member('.2', seq(...svns)),
  pceId: member('.3', octets('0102')),
  fmspc: member('.4', octets('00806f050001')),
  type: member('.5', hex('0a0100')),
}

const extensions = (value: Uint8Array, oid: string = sgx) => new Map([[oid, { critical: false, value }]])
const read = (changes: Partial<Record<keyof typeof MEMBERS, Uint8Array>> = {}, ...more: Uint8Array[]) =>
  decodePckExtension(extensions(seq(...Object.values({ ...MEMBERS, ...changes }), ...more)))

test('goal: the object identifiers, and each value', () => {
  expect(SGX_OID).toEqual({
    extension: '1.2.840.113741.1.13.1',
    ppid: '1.2.840.113741.1.13.1.1',
    tcb: '1.2.840.113741.1.13.1.2',
    pceId: '1.2.840.113741.1.13.1.3',
    fmspc: '1.2.840.113741.1.13.1.4',
  })
  expect(read()).toEqual({
    ppid: hex('a1'.repeat(16)),
    components: [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 255],
    pceSvn: 65_535,
    pceId: hex('0102'),
    fmspc: hex('00806f050001'),
  })
  // Unknown members stay unread, and the order does not matter.
  const turned = seq(member('.9', octets('')), ...Object.values(MEMBERS).toReversed())
  expect(decodePckExtension(extensions(turned))).toEqual(read())
})

test('goal: a certificate has the extension, or it is none', () => {
  expect(hasPckExtension(extensions(new Uint8Array(0)))).toBe(true)
  expect(hasPckExtension(extensions(new Uint8Array(0), `${sgx}.1`))).toBe(false)
  expect(() => decodePckExtension(new Map())).toThrow(new Malformed('PCK certificate: no SGX extension'))
})

describe('refused', () => {
  const nothing = new Uint8Array(0)
  const tcb = (at: number, value: Uint8Array) => ({ tcb: member('.2', seq(...svns.with(at, value))) })
  // Goal: each refusal names the value.
  test.each<[string, Partial<Record<keyof typeof MEMBERS, Uint8Array>>, string]>([
    ['no PPID', { ppid: nothing }, `SGX extension ${sgx}.1: missing`],
    ['no TCB', { tcb: nothing }, `SGX extension ${sgx}.2: missing`],
    ['no PCE ID', { pceId: nothing }, `SGX extension ${sgx}.3: missing`],
    ['no FMSPC', { fmspc: nothing }, `SGX extension ${sgx}.4: missing`],
    ['a short PPID', { ppid: member('.1', octets('a1'.repeat(15))) }, `${sgx}.1: 15 bytes instead of 16`],
    ['a long PPID', { ppid: member('.1', octets('a1'.repeat(17))) }, `${sgx}.1: 17 bytes instead of 16`],
    ['a long PCE ID', { pceId: member('.3', octets('010203')) }, `${sgx}.3: 3 bytes instead of 2`],
    ['a long FMSPC', { fmspc: member('.4', octets('00806f05000100')) }, `${sgx}.4: 7 bytes instead of 6`],
    ['an FMSPC that is a number', { fmspc: member('.4', int('01')) }, `SGX extension ${sgx}.4: tag 02, not 04`],
    ['a TCB that is a set', { tcb: member('.2', derElement(0x31, ...svns)) }, 'its TCB is not a sequence'],
    ['a TCB without component 7', tcb(6, nothing), `SGX extension ${sgx}.2.7: missing`],
    ['a TCB without PCE SVN', tcb(16, nothing), `SGX extension ${sgx}.2.17: missing`],
    ['a component twice', tcb(1, member('.2.1', int('01'))), `SGX extension TCB ${sgx}.2.1: no value, or two`],
    ['a component without value', tcb(1, member('.2.2')), `SGX extension TCB ${sgx}.2.2: no value, or two`],
    ['a component above 255', tcb(2, member('.2.3', int('0100'))), `SGX extension ${sgx}.2.3: more than 255`],
    ['a PCE SVN above 65535', tcb(16, member('.2.17', int('010000'))), `SGX extension ${sgx}.2.17: more than 65535`],
    ['a PPID twice', { fmspc: concat(MEMBERS.fmspc, MEMBERS.ppid) }, `SGX extension ${sgx}.1: no value, or two`],
    ['a member without identifier', { type: seq(octets('')) }, 'SGX extension: no OID'],
  ])('%s', (_, changes, message) => {
    expect(() => read(changes)).toThrow(message)
    expect(() => read(changes)).toThrow(Malformed)
  })
})
