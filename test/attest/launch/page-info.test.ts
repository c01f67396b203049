// Goal: PAGE_INFO is byte by byte the record of AMD 56860, section 8.17.2, by which the firmware extends the digest.

import { expect, test } from 'bun:test'
import {
  hasMeasuredContents,
  launchDigestBytes,
  PAGE_INFO,
  type PageType,
  pageInfoBytes,
  putPageInfo,
} from '../../../src/attest/launch/page-info.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { toHex } from '../../../src/base/bytes.ts'

const digest = new Uint8Array(48).fill(0xd1)
const contents = new Uint8Array(48).fill(0xc0)

test('goal: where each field stands', () => {
  expect(PAGE_INFO).toEqual({
    ...{ digestCurrent: [0, 48], contents: [48, 48], length: [96, 2], pageType: [98, 1], imiPage: [99, 1] },
    ...{ vmpl3Permissions: [100, 1], vmpl2Permissions: [101, 1], vmpl1Permissions: [102, 1], reserved: [103, 1] },
    gpa: [104, 8],
  })
  expect([pageInfoBytes, launchDigestBytes]).toEqual([112, 48])
})

// Goal: the number of each type, and whether the digest covers what is in such a page.
test.each<[PageType, string, boolean]>([
  ['normal', '01', true],
  ['vmsa', '02', true],
  ['zero', '03', false],
  ['unmeasured', '04', false],
  ['secrets', '05', false],
  ['cpuid', '06', false],
])('a page of type %s', (type, number, isMeasured) => {
  expect(hasMeasuredContents(type)).toBe(isMeasured)
  const into = new Uint8Array(112).fill(0xff)
  putPageInfo(into, { type, gpa: 0x0000_fedc_ba98_7000n }, digest, isMeasured ? contents : null)
  const measured = isMeasured ? 'c0'.repeat(48) : '00'.repeat(48)
  expect(toHex(into)).toBe(`${'d1'.repeat(48)}${measured}7000${number}0000000000007098badcfe0000`)
  expect(() => putPageInfo(into, { type, gpa: 0n }, digest, isMeasured ? null : contents)).toThrow(
    new Malformed(`PAGE_INFO: contents of a ${type} page`),
  )
})

test('goal: a record of 112 bytes', () => {
  for (const size of [111, 113])
    expect(() => putPageInfo(new Uint8Array(size), { type: 'zero', gpa: 0n }, digest, null)).toThrow('not 112 bytes')
})
