// Goal: a list of chips counts only as the operator key signed it: whole, unchanged, and by a key that is expected.

import { beforeAll, expect, test } from 'bun:test'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { readChipList, signChipList } from '../../../src/attest/policy/chip-list.ts'
import { utf8 } from '../../../src/base/bytes.ts'

const newKeys = () => crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const digestOf = async ({ publicKey }: CryptoKeyPair) => await idKeyDigest(await publicIdKey(publicKey))
const chip = (byte: number) => new Uint8Array(64).fill(byte)
const issuedAtMs = Date.parse('2026-11-30T12:00:00Z')

let keys: CryptoKeyPair
let signer: Uint8Array
let list: string
beforeAll(async () => {
  keys = await newKeys()
  signer = await digestOf(keys)
  list = await signChipList({ chipIds: [chip(2), chip(1), chip(2)], issuedAtMs: issuedAtMs + 789 }, keys)
})

const read = (text: string, ...signers: Uint8Array[]) => readChipList(utf8(text), signers)
const changed = (change: object) => `${JSON.stringify({ ...JSON.parse(list), ...change })}`

// Goal: what was signed is read again: each chip once, to the second; whatever the layout of the JSON.
test('a signed list', async () => {
  const expected = { chipIds: [chip(1), chip(2)], issuedAtMs, signer }
  expect(await read(list, new Uint8Array(48), signer)).toEqual(expected)
  expect(await read(changed({}), signer)).toEqual(expected)
})

// Goal: neither another key, nor that key put in the place of the expected one, nor no key makes a list count.
test('keys', async () => {
  const other = await newKeys()
  const foreign = await signChipList({ chipIds: [chip(1)], issuedAtMs }, other)
  await expect(read(foreign, signer)).rejects.toThrow('signed by another operator key')
  await expect(read(foreign)).rejects.toThrow('signed by another operator key')
  const { publicKey } = JSON.parse(foreign)
  await expect(read(changed({ publicKey }), signer)).rejects.toThrow('signed by another operator key')
  await expect(read(changed({ publicKey }), await digestOf(other))).rejects.toThrow('the file was changed')
  const noPoint = `04${'11'.repeat(96)}`
  await expect(read(changed({ publicKey: noPoint }), signer)).rejects.toThrow('another operator key')
})

// Goal: one more chip, one less, another time or another bit of the signature is seen.
test.each([
  { chipIds: ['01'.repeat(64)] },
  { chipIds: ['01'.repeat(64), '02'.repeat(64), '03'.repeat(64)] },
  { chipIds: ['02'.repeat(64), '01'.repeat(64)] },
  { issuedAt: '2026-12-30T12:00:00Z' },
])('changed content %#', async change => {
  await expect(read(changed(change), signer)).rejects.toThrow('the file was changed')
})

// Goal: one changed digit of the signature is seen.
test('a changed signature', async () => {
  const { signature } = JSON.parse(list)
  const flipped = (signature[0] === '0' ? '1' : '0') + signature.slice(1)
  await expect(read(changed({ signature: flipped }), signer)).rejects.toThrow('the file was changed')
})

// Goal: errors of form name their field, before any signature is looked at.
test.each([
  [{ chipIds: ['00'.repeat(64)] }, 'chip list.chipIds[0]: all zeros is the chip_id of every masked chip'],
  [{ chipIds: [] }, 'chip list.chipIds: not a list of 1 to 1024'],
  [{ chipIds: ['01'.repeat(64), '01'.repeat(64)] }, 'chip list.chipIds: an entry stands in it twice'],
  [{ issuedAt: '2026-13-30T12:00:00Z' }, 'chip list.issuedAt: there is no time'],
  [{ issuedAt: 'yesterday' }, 'chip list.issuedAt: not a time in UTC'],
  [{ format: 'strongroom/chip-list/v2' }, 'chip list.format: not one of strongroom/chip-list/v1'],
  [{ more: 1 }, 'chip list.more: unknown field'],
])('form %#', async (change, message) => {
  await expect(read(changed(change), signer)).rejects.toThrow(message)
})

// Goal: bytes that are no such file, or too many, are refused before they are read.
test('not JSON, a field twice, too long', async () => {
  await expect(read('chips', signer)).rejects.toThrow('chip list')
  await expect(read(list.replace('{', '{"format": "x",'), signer)).rejects.toThrow('chip list')
  await expect(read(`${list}${' '.repeat(512 * 1024)}`, signer)).rejects.toThrow('more than 524288 bytes')
})
