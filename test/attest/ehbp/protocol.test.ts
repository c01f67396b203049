// Goal: the names, sizes and labels by which the two ends of an encrypted body find each other, written out as SPEC.md
// of the protocol, RFC 9180 and RFC 9458 have them. An end that differs in one of them opens nothing of the other.

import { expect, test } from 'bun:test'
import {
  aeadId,
  encapsulatedKeyHeader,
  epochHeader,
  frameOverheadBytes,
  kdfId,
  keyConfigMediaType,
  keyConfigPath,
  keyConfigProblem,
  LABELS,
  requestNonceHeader,
  responseNonceHeader,
  SIZES,
  sealedHeaderNames,
  sealedHeadersHeader,
  sealedHeadersLengthMax,
  staleEpoch,
} from '../../../src/attest/ehbp/protocol.ts'
import { fromUtf8 } from '../../../src/base/bytes.ts'

test('goal: headers, and where a key configuration is', () => {
  expect([encapsulatedKeyHeader, responseNonceHeader]).toEqual(['Ehbp-Encapsulated-Key', 'Ehbp-Response-Nonce'])
  expect([keyConfigPath, keyConfigMediaType]).toEqual(['/.well-known/hpke-keys', 'application/ohttp-keys'])
  expect(keyConfigProblem).toEqual({
    status: 422,
    mediaType: 'application/problem+json',
    type: 'urn:ietf:params:ehbp:error:key-config',
  })
  expect([sealedHeadersHeader, requestNonceHeader, epochHeader, staleEpoch]).toEqual([
    ...['X-Strongroom-Sealed-Headers', 'X-Strongroom-Request-Nonce', 'X-Strongroom-Epoch', 'stale '],
  ])
  expect([...sealedHeaderNames]).toEqual(['x-strongroom-receipt', 'x-strongroom-ignored', 'x-strongroom-epoch'])
  expect(sealedHeadersLengthMax).toBe(12_288)
})

test('goal: HKDF-SHA256 and AES-256-GCM, and their sizes', () => {
  expect([kdfId, aeadId]).toEqual([1, 2])
  expect(SIZES).toEqual({
    ...{ key: 32, nonce: 12, tag: 16, responseNonce: 32, requestNonce: 32, epoch: 16, exported: 32, frameLength: 4 },
  })
  expect(frameOverheadBytes).toBe(20)
})

test('goal: the label of each derived key', () => {
  expect(Object.entries(LABELS).map(([name, label]) => [name, fromUtf8(label)])).toEqual([
    ['request', 'ehbp request'],
    ['response', 'ehbp response'],
    ['key', 'key'],
    ['nonce', 'nonce'],
    ['headersKey', 'strongroom headers key'],
    ['headersNonce', 'strongroom headers nonce'],
    ['session', 'strongroom session'],
    ['requestKey', 'strongroom request key'],
    ['requestNonce', 'strongroom request nonce'],
    ['requestExport', 'strongroom request export'],
  ])
})
