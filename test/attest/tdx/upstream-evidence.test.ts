// Goal: evidence of an upstream in a TD is one document of known members within its size, and its quote is for one
// nonce and one TLS key.

import { expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import { parseUpstreamEvidence, upstreamReportData } from '../../../src/attest/tdx/upstream-evidence.ts'
import { fromUtf8, toHex, utf8 } from '../../../src/base/bytes.ts'

const evidence = { format: 'strongroom/tdx-upstream/v1', quote: 'AQID' }
const read = (document: unknown, sizeBytes = 0) =>
  parseUpstreamEvidence(utf8(JSON.stringify(document).padEnd(sizeBytes)))

test('goal: a quote, with collateral or without', () => {
  expect(read(evidence)).toEqual({ quote: Uint8Array.of(1, 2, 3), collateral: null })
  const { collateral } = read({ ...evidence, collateral: { tcb_info: '{}' } })
  expect(fromUtf8(collateral ?? new Uint8Array(0))).toBe('{"tcb_info":"{}"}')
})

test('goal: what is refused, by name', () => {
  expect(() => read({ ...evidence, format: 'strongroom/tdx-upstream/v2' })).toThrow('evidence.format is')
  expect(() => read({ ...evidence, quote: 'AQI' })).toThrow('evidence.quote: not base64')
  expect(() => read({ format: evidence.format })).toThrow('evidence: no quote')
  expect(() => read({ quote: 'AQID' })).toThrow('evidence: no format')
  expect(() => read({ ...evidence, collateral: 'x' })).toThrow('evidence.collateral: not an object')
  expect(() => read({ ...evidence, other: 1 })).toThrow('evidence: the unknown field "other"')
  // 512 KiB of collateral, base64 of a quote of 16 KiB, and 1 KiB around them.
  expect(read(evidence, 558_080).collateral).toBeNull()
  expect(() => read(evidence, 558_081)).toThrow('evidence: 558081 bytes')
})

test('goal: REPORTDATA is SHA-512 of format, NUL, nonce and digest of the key', () => {
  const [nonce, spkiDigest] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)]
  const hash = createHash('sha512').update('strongroom/tdx-upstream/v1\0').update(nonce).update(spkiDigest)
  expect(toHex(upstreamReportData(nonce, spkiDigest))).toBe(hash.digest('hex'))
})
