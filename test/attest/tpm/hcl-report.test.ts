// Goal: runtime data name the vTPM's key once, in at most 16 KiB.

import { expect, test } from 'bun:test'
import { runtimeAttestationKey } from '../../../src/attest/tpm/hcl-report.ts'
import { toBase64Url, utf8 } from '../../../src/base/bytes.ts'

const modulus = new Uint8Array(256).fill(0xff)
const key = { kid: 'HCLAkPub', kty: 'RSA', n: toBase64Url(modulus), e: 'AQAB' }
const read = (document: unknown, sizeBytes = 0) =>
  runtimeAttestationKey(utf8(JSON.stringify(document).padEnd(sizeBytes)))

test('goal: the key, whatever stands beside it', () => {
  const other = { ...key, kid: 'HCLEkPub' }
  expect(read({ keys: [other, key], more: 1 })).toEqual({ type: 'rsa', modulus })
  expect(read({ keys: [key] }, 16_384)).toEqual({ type: 'rsa', modulus })
  expect(() => read({ keys: [key] }, 16_385)).toThrow('hcl runtime data: too long')
  for (const keys of [[], [other], [key, key], [null], ['HCLAkPub']])
    expect(() => read({ keys })).toThrow('hcl runtime data: HCLAkPub is not named once')
  for (const document of [null, 'keys', {}, { keys: { 0: key } }, [key]])
    expect(() => read(document)).toThrow('hcl runtime data: no keys')
  expect(() => read({ keys: [{ ...key, n: toBase64Url(modulus.with(255, 2)) }] })).toThrow('even RSA modulus')
})
