// Goal: evidence of a VM's GPUs has its format and DevTools mode, and is for the one statement that names it.

import { describe, expect, test } from 'bun:test'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { DEVTOOLS, gpuEvidenceFormat, gpuNonce, readBoundGpuEvidence } from '../../../src/attest/nvidia/bound.ts'
import { toBase64, toHex, utf8 } from '../../../src/base/bytes.ts'

const der = Uint8Array.of(0x30, 0)
const certificate = toBase64(utf8(toPem(der, 'CERTIFICATE')))
const GPU = { arch: 'Hopper', nonce: '00', evidence: toBase64(Uint8Array.of(1, 2, 3)), certificate }
const bytesOf = (document: unknown) => utf8(JSON.stringify(document))
const read = { arch: 'HOPPER', report: Uint8Array.of(1, 2, 3), certificates: [der] }

describe('evidence of a VM', () => {
  const bound = { format: 'strongroom/gpu-evidence/v1', devtools: 'off', evidences: [GPU] }

  test('goal: its format, DevTools mode and GPUs', () => {
    expect(gpuEvidenceFormat).toBe('strongroom/gpu-evidence/v1')
    expect([...DEVTOOLS]).toEqual(['off', 'on', 'unknown'])
    for (const devtools of DEVTOOLS)
      expect(readBoundGpuEvidence(bytesOf({ ...bound, devtools }))).toEqual({ devtools, evidence: [read] })
    expect(readBoundGpuEvidence(utf8(JSON.stringify(bound).padEnd(524_288))).devtools).toBe('off')
  })

  // Goal: each refusal names what is wrong.
  test.each<[string, unknown, string]>([
    ['null', null, 'GPU evidence: not an object'],
    ['text', 'x', 'GPU evidence: not an object'],
    ['a list', [bound], 'GPU evidence: another format'],
    ['no format', { ...bound, format: undefined }, 'GPU evidence: another format'],
    ['another format', { ...bound, format: 'strongroom/gpu-evidence/v2' }, 'GPU evidence: another format'],
    ['no mode', { ...bound, devtools: undefined }, 'GPU evidence: devtools is not off, on, unknown'],
    ['another mode', { ...bound, devtools: 'maybe' }, 'GPU evidence: devtools is not off, on, unknown'],
    ['no GPUs', { ...bound, evidences: [] }, 'GPU evidence: 0 devices, 1 to 32'],
  ])('%s is refused', (_, document, message) => {
    expect(() => readBoundGpuEvidence(bytesOf(document))).toThrow(new Malformed(message))
  })

  test('goal: 512 KiB', () => {
    const long = utf8(JSON.stringify(bound).padEnd(524_289))
    expect(() => readBoundGpuEvidence(long)).toThrow('GPU evidence: 524289 bytes, at most 524288')
  })

  test('goal: the nonce of its reports follows from the domain, the nonce and the keys of its statement', () => {
    const [nonce, keysDigest] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)]
    const hash = new Bun.CryptoHasher('sha256').update('strongroom/gpu-nonce/v1\0').update(nonce).update(keysDigest)
    expect(toHex(gpuNonce({ nonce, keysDigest }))).toBe(hash.digest('hex'))
  })
})
