import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'
import { PRODUCTS } from '../../../src/attest/amd/product.ts'
import {
  decodeTcb,
  isTcbAtLeast,
  TCB_COMPONENTS,
  TCB_LAYOUTS,
  tcbComponentsOf,
  tcbText,
} from '../../../src/attest/amd/tcb.ts'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { decodeReport } from '../../../src/attest/report/report.ts'
import { readReport } from '../../rigs/attest/report-vectors.ts'

const turin = { fmc: 0, bootloader: 1, tee: 0, snp: 2, microcode: 71 }

// Goal: each layout places each component of its product once, in 8 bytes.
test('layouts', () => {
  for (const product of PRODUCTS) {
    expect(TCB_LAYOUTS[product]).toHaveLength(8)
    const wanted = TCB_COMPONENTS.filter(kind => product === 'turin' || kind !== 'fmc')
    expect(tcbComponentsOf(product).toSorted()).toEqual([...wanted].sort())
  }
})

describe('decodeTcb', () => {
  // Goal: the bytes of each product are where AMD says.
  test('by product', () => {
    const old = { fmc: null, bootloader: 1, tee: 2, snp: 3, microcode: 4 }
    expect(decodeTcb(0x0403_0000_0000_0201n, 'milan')).toEqual(old)
    expect(decodeTcb(0x0403_0000_0000_0201n, 'genoa')).toEqual(old)
    expect(decodeTcb(0x0500_0000_0403_0201n, 'turin')).toEqual({ fmc: 1, bootloader: 2, tee: 3, snp: 4, microcode: 5 })
  })

  // Goal: a Turin TCB read as Milan's fails instead of giving numbers, and so does the reverse; a small one gives other
  // numbers.
  test('of another product', async () => {
    const report = decodeReport(await readReport('turin-v5.bin'))
    expect(decodeTcb(report.rawTcb.reported, 'turin')).toEqual(turin)
    expect(() => decodeTcb(report.rawTcb.reported, 'milan')).toThrow('TCB: byte 3 is reserved on milan but 2')
    expect(() => decodeTcb(report.rawTcb.reported, 'genoa')).toThrow(Malformed)
    const genoa = decodeReport(await readReport('genoa-v3.bin')).rawTcb.reported
    expect(() => decodeTcb(genoa, 'turin')).toThrow(Malformed)
    expect(decodeTcb(0x0102n, 'turin')).not.toEqual(decodeTcb(0x0102n, 'milan'))
  })

  // Goal: every reserved byte is guarded, and so is the range.
  test('refusals', () => {
    for (const product of PRODUCTS) {
      TCB_LAYOUTS[product].forEach((component, at) => {
        const decode = () => decodeTcb(1n << BigInt(at * 8 + 7), product)
        if (component === null) expect(decode).toThrow(Malformed)
        else expect(decode()[component]).toBe(128)
      })
      expect(() => decodeTcb(1n << 64n, product)).toThrow(Malformed)
      expect(() => decodeTcb(-1n, product)).toThrow(Malformed)
    }
  })
})

describe('encodeTcb', () => {
  const u8 = fc.integer({ min: 0, max: 255 })

  // Goal: every TCB of every product comes back from its u64.
  test('is inverted by decodeTcb', () => {
    const tcbs = fc.constantFrom(...PRODUCTS).chain(product =>
      fc.record({
        product: fc.constant(product),
        tcb: fc.record({
          bootloader: u8,
          tee: u8,
          snp: u8,
          microcode: u8,
          fmc: product === 'turin' ? u8 : fc.constant(null),
        }),
      }),
    )
    fc.assert(fc.property(tcbs, ({ product, tcb }) => expect(decodeTcb(encodeTcb(tcb, product), product)).toEqual(tcb)))
  })

  // Goal: what does not fit a byte, or the product, is refused.
  test('refusals', () => {
    expect(() => encodeTcb(turin, 'milan')).toThrow(Malformed)
    expect(() => encodeTcb({ ...turin, fmc: null }, 'turin')).toThrow(Malformed)
    for (const snp of [256, -1, 0.5, Number.NaN]) expect(() => encodeTcb({ ...turin, snp }, 'turin')).toThrow(Malformed)
  })
})

// Goal: the order is by component: more of one does not make up for less of another.
test('isTcbAtLeast', () => {
  expect(isTcbAtLeast(turin, turin)).toBe(true)
  expect(isTcbAtLeast({ ...turin, microcode: 72 }, turin)).toBe(true)
  for (const component of ['bootloader', 'snp', 'microcode'] as const) {
    const mixed = { fmc: 255, bootloader: 255, tee: 255, snp: 255, microcode: 255, [component]: turin[component] - 1 }
    expect(isTcbAtLeast(mixed, turin)).toBe(false)
  }
})

// Goal: people see the components that the product has.
test('tcbText', () => {
  expect(tcbText(turin)).toBe('fmc 0, bootloader 1, tee 0, snp 2, microcode 71')
  expect(tcbText({ ...turin, fmc: null })).toBe('bootloader 1, tee 0, snp 2, microcode 71')
})
