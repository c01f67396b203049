// Goal: the pinned root is Intel's, by its fingerprint and as an independent implementation has it, @phala/dcap-qvl.

import { expect, test } from 'bun:test'
import { constants } from '@phala/dcap-qvl'
import { sha256 } from '../../../src/attest/hash.ts'
import { decodeAnchor, INTEL_ROOT } from '../../../src/attest/tdx/chain.ts'
import { commonNameOf } from '../../../src/attest/x509/certificate.ts'
import { isIssuedWithP256 } from '../../../src/attest/x509/ecdsa.ts'
import { toHex } from '../../../src/base/bytes.ts'

test('goal: it is the published one, signed by itself', async () => {
  const { decoded, simulated } = decodeAnchor(INTEL_ROOT)
  expect(toHex(decoded.der)).toBe(toHex(constants.TRUSTED_ROOT_CA_DER))
  expect({
    name: commonNameOf(decoded.subject),
    sha256: toHex(sha256(decoded.der)),
    own: await isIssuedWithP256(decoded, decoded),
    simulated,
  }).toEqual({
    name: 'Intel SGX Root CA',
    sha256: '44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3',
    own: true,
    simulated: undefined,
  })
})
