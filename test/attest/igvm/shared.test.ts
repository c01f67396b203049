// Pages with the flag `shared` (igvm_defs, IgvmPageDataFlags): assigned to the guest, visible to the host, and not part
// of the measurement.

import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { buildIgvm } from '../../../src/attest/igvm/build.ts'
import { describeIgvm } from '../../../src/attest/igvm/describe.ts'
import { crc32, readIgvm, writeIgvm } from '../../../src/attest/igvm/file.ts'
import type { IgvmHeader } from '../../../src/attest/igvm/headers.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { kernelHashesOf } from '../../../src/attest/launch/kernel-hashes.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'

const read = (name: string) => new Uint8Array(readFileSync(`${import.meta.dir}/../../vectors/${name}`))
const vector = read('igvm/bz-x64-vtl0-encrypted.igvm')
const vectorDigest = new TextDecoder().decode(read('igvm/bz-x64-vtl0-encrypted.ld')).trim()

/** Where the vector has nothing. */
const freeGpa = 0x7fff_f000n

type Flags = { readonly isShared: boolean; readonly isUnmeasured: boolean }
const shared = { isShared: true, isUnmeasured: false }

function page(flags: Flags, more: object = {}): IgvmHeader {
  const data = new Uint8Array(4096).fill(0x5a)
  return {
    kind: 'pageData',
    compatibilityMask: 1,
    gpa: freeGpa,
    dataType: 'normal',
    data,
    ...flags,
    ...more,
  } as IgvmHeader
}

/** The vector with one page more, before its last page. */
function withPage(added: IgvmHeader): Uint8Array {
  const { headers } = readIgvm(vector)
  const last = headers.findLastIndex(({ kind }) => kind === 'pageData')
  return writeIgvm({ headers: headers.toSpliced(last, 0, added) })
}

const directiveOrder = async (bytes: Uint8Array) =>
  toHex((await measureIgvm(bytes, { profile: 'directive-order' })).digest)

describe('the vector with a shared page', () => {
  // Goal: the digest of its maker does not change by a page that is shared, whatever is in it; by any other page it
  // does.
  test('digest', async () => {
    const without = { data: null }
    for (const added of [page(shared), page(shared, without), page({ isShared: true, isUnmeasured: true })])
      expect(await directiveOrder(withPage(added))).toBe(vectorDigest)
    for (const isUnmeasured of [true, false])
      expect(await directiveOrder(withPage(page({ isShared: false, isUnmeasured })))).not.toBe(vectorDigest)
  })

  // Goal: what was read is written to the same bytes, flags included.
  test('round trip', () => {
    for (const isUnmeasured of [true, false]) {
      const bytes = withPage(page({ isShared: true, isUnmeasured }))
      const file = readIgvm(bytes)
      expect(writeIgvm(file)).toEqual(bytes)
      expect(file.headers.filter(header => header.kind === 'pageData' && header.isShared)).toMatchObject([
        { gpa: freeGpa, isShared: true, isUnmeasured },
      ])
    }
  })

  // Goal: people see how many there are, and that QEMU, which does not know the flag, would measure them as private
  // pages.
  test('description', async () => {
    expect((await describeIgvm(vector, { expected: 'any' })).sharedPageCount).toBe(0)
    const described = await describeIgvm(withPage(page(shared)), { expected: 'any' })
    expect(described.sharedPageCount).toBe(1)
    expect(described.digests['directive-order'].kind).toBe('digest')
    expect(described.digests['qemu-kvm']).toMatchObject({
      kind: 'none',
      reason: 'IGVM: QEMU does not know the shared flag, and would load page 0x7ffff000 as a private one',
    })
  })

  // Goal: a page of secrets or CPUID is never one that the host sees, and a page is loaded once, shared or not.
  test('refused', async () => {
    for (const dataType of ['secrets', 'cpuid', 'cpuidXf'])
      expect(() => withPage(page(shared, { dataType }))).toThrow('IGVM pageData: a shared page of type')
    const { headers } = readIgvm(vector)
    const taken = headers.find(header => header.kind === 'pageData')
    if (taken?.kind !== 'pageData') throw new Error('the vector has pages')
    const twice = [page(shared, { gpa: taken.gpa }), page(shared, { gpa: 1n << 52n })].map(withPage)
    for (const bytes of twice)
      await expect(measureIgvm(bytes, { profile: 'directive-order' })).rejects.toThrow(Malformed)
    const both = writeIgvm({ headers: [...readIgvm(withPage(page(shared))).headers, page(shared)] })
    await expect(measureIgvm(both, { profile: 'directive-order' })).rejects.toThrow('loaded twice')
    // Bit 0, a page of 2 MiB, and bits that have no meaning yet.
    const bytes = withPage(page(shared))
    const view = new DataView(bytes.buffer, bytes.byteOffset)
    const end = 24 + view.getUint32(12, true)
    const at = bytes.findIndex((_, i) => i + 24 <= end && view.getBigUint64(i, true) === freeGpa)
    for (const flags of [1, 4, 5, 8, 0x8000_0004]) {
      view.setUint32(at + 16, flags, true)
      view.setUint32(20, 0, true)
      view.setUint32(20, crc32(bytes.subarray(0, end)), true)
      if (flags === 4) expect(readIgvm(bytes).headers.length).toBe(headers.length + 1)
      else expect(() => readIgvm(bytes)).toThrow('IGVM pageData: flags')
    }
  })
})

// Goal: honest firmware with honest hashes says nothing about a file that also puts pages under the host's eyes: such a
// file is not ours.
test('a shared page beside our firmware', async () => {
  const files = { kernel: utf8('a kernel'), initrd: utf8('an initrd'), cmdline: 'roothash=00ff' }
  const bytes = await buildIgvm({
    firmware: read('ovmf/ovmf_AmdSev_suffix.bin'),
    kernelHashes: await kernelHashesOf(files),
    vcpus: 1,
    vcpuType: 'EPYC-Milan',
    features: 1n,
    policy: 0x30000n,
  })
  const { headers } = readIgvm(bytes)
  const layoutOf = async (changed: readonly IgvmHeader[]) =>
    (await describeIgvm(writeIgvm({ headers: changed }), { expected: files })).checks[0]
  expect(await layoutOf(headers)).toMatchObject({ name: 'igvm-layout', outcome: 'pass' })
  expect(await layoutOf([...headers, page(shared)])).toMatchObject({ name: 'igvm-layout', outcome: 'fail' })
  // Firmware that the host may change is none: its pages are not measured.
  const open = headers.map(header =>
    header.kind === 'pageData' && header.dataType === 'normal' ? { ...header, isShared: true } : header,
  )
  const described = await describeIgvm(writeIgvm({ headers: open }), { expected: files })
  expect([described.firmware, described.kernelHashes]).toEqual([null, null])
  expect(described.checks.every(check => check.outcome === 'fail')).toBe(true)
})
