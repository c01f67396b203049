// Goal: the pinned roots are NVIDIA's, by their fingerprints, and a simulated root cannot bear a name like theirs.

import { expect, test } from 'bun:test'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { Malformed } from '../../../src/attest/malformed.ts'
import { portableP384 } from '../../../src/attest/nvidia/portable-p384.ts'
import { decodeRoots, NVIDIA_ROOTS } from '../../../src/attest/nvidia/roots.ts'
import { isIssuedBy } from '../../../src/attest/nvidia/signature.ts'
import { readSimulatedRoots } from '../../../src/attest/nvidia/simulated-roots.ts'
import { commonNameOf } from '../../../src/attest/x509/certificate.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { authority, issue } from '../../rigs/attest/gpu/authority.ts'

test('goal: both roots are the published ones, signed by themselves', () => {
  const { device, rim } = decodeRoots([NVIDIA_ROOTS])
  const seen = [...device, ...rim].map(({ certificate, simulated }) => ({
    name: commonNameOf(certificate.subject),
    sha256: toHex(sha256(certificate.der)),
    own: isIssuedBy(certificate, certificate, portableP384),
    simulated,
  }))
  expect(seen).toEqual([
    {
      name: 'NVIDIA Device Identity CA',
      sha256: '102bf659d5419614c9d8e6aecebc80454eb26b1df6a769ac720b9a690b167b48',
      own: true,
      simulated: false,
    },
    {
      name: 'NVIDIA CoRIM signing Root CA',
      sha256: '12977b5115acb0381179279fffeb5a8c4d264971ebb32298023a465fa41df5d1',
      own: true,
      simulated: false,
    },
  ])
})

test('goal: a file of simulated roots has two, and their names say so', async () => {
  const make = (name: string) => issue({ name, serial: '01', issuer: null, extensions: authority() })
  const [device, rim, other] = [
    await make('SIMULATED A'),
    await make('SIMULATED B'),
    await make('NVIDIA Device Identity CA'),
  ]
  const pem = (...holders: (typeof device)[]) => holders.map(({ der }) => toPem(der, 'CERTIFICATE')).join('')
  const roots = readSimulatedRoots(pem(device, rim))
  expect(roots).toEqual({ device: device.der, rim: rim.der })
  expect(decodeRoots([roots]).device.map(({ simulated }) => simulated)).toEqual([true])
  for (const text of [pem(device), pem(device, rim, rim), pem(device, other), pem(other, rim)]) {
    expect(() => readSimulatedRoots(text)).toThrow(Malformed)
  }
})
