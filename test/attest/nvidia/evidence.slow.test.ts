// Goal: evidence is read as NVIDIA's tools write it, up to its limits, and refused by GPU and field.

import { describe, expect, test } from 'bun:test'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { readGpuEvidence } from '../../../src/attest/nvidia/evidence.ts'
import { toBase64, utf8 } from '../../../src/base/bytes.ts'

const der = Uint8Array.of(0x30, 0)
const certificate = toBase64(utf8(toPem(der, 'CERTIFICATE').repeat(2)))
const GPU = { arch: 'Hopper', nonce: '00', evidence: toBase64(Uint8Array.of(1, 2, 3)), certificate }
const bytesOf = (document: unknown) => utf8(JSON.stringify(document))
const read = { arch: 'HOPPER', report: Uint8Array.of(1, 2, 3), certificates: [der, der] }

test('goal: one GPU, a list, or the document around a list', () => {
  expect(readGpuEvidence(bytesOf(GPU))).toEqual([read])
  expect(readGpuEvidence(bytesOf([GPU, { ...GPU, other: 1 }]))).toEqual([read, read])
  expect(readGpuEvidence(bytesOf({ evidences: [GPU] }))).toEqual([read])
  expect(readGpuEvidence(bytesOf(new Array(32).fill(GPU))).length).toBe(32)
  const largest = { ...GPU, arch: `${'A'.repeat(31)}_`, evidence: toBase64(new Uint8Array(65_536)) }
  expect(readGpuEvidence(bytesOf(largest))[0]?.report.length).toBe(65_536)
  expect(readGpuEvidence(bytesOf({ ...GPU, arch: 'a 1' }))[0]?.arch).toBe('A 1')
  const padded = utf8(JSON.stringify(GPU).padEnd(32 * 128 * 1024))
  expect(readGpuEvidence(padded)).toEqual([read])
})

describe('refused', () => {
  // Goal: each refusal names the GPU and the field.
  test.each<[string, unknown, string]>([
    ['none', [], 'GPU evidence: 0 devices, 1 to 32'],
    ['33 GPUs', new Array(33).fill(GPU), 'GPU evidence: 33 devices, 1 to 32'],
    ['null', null, 'GPU evidence: device 0: not an object'],
    ['a list for a GPU', [[GPU]], 'GPU evidence: device 0: not an object'],
    ['text for the second GPU', [GPU, 'x'], 'GPU evidence: device 1: not an object'],
    ['no architecture', { ...GPU, arch: undefined }, 'GPU evidence: device 0: arch is missing or no text'],
    ['an empty architecture', { ...GPU, arch: '' }, 'GPU evidence: device 0: arch is not a name'],
    ['a long architecture', { ...GPU, arch: 'A'.repeat(33) }, 'GPU evidence: device 0: arch is not a name'],
    ['an architecture with a mark', { ...GPU, arch: 'A\n' }, 'GPU evidence: device 0: arch is not a name'],
    ['a number for a report', { ...GPU, evidence: 1 }, 'GPU evidence: device 0: evidence is missing or no text'],
    ['a report that is no base64', { ...GPU, evidence: '!' }, 'GPU evidence: device 0: evidence is not base64'],
    ['a long report', { ...GPU, evidence: toBase64(new Uint8Array(65_537)) }, 'device 0: a report of 65537 bytes'],
    ['no certificates', { ...GPU, certificate: '' }, 'device 0: certificate'],
    ['certificates that are no base64', { ...GPU, certificate: '!' }, 'device 0: certificate is not base64'],
  ])('%s', (_, document, message) => {
    expect(() => readGpuEvidence(bytesOf(document))).toThrow(message)
    expect(() => readGpuEvidence(bytesOf(document))).toThrow(Malformed)
  })

  test('goal: 4 MiB', () => {
    expect(() => readGpuEvidence(new Uint8Array(4_194_305))).toThrow('4194305 bytes, at most 4194304')
  })
})
