// Goal: a simulated root is read from exactly one ARK and ASK, and at most one ASVK, in any order, and from nothing
// else.

import { expect, test } from 'bun:test'
import { simulatedPlatform } from '../../scripts/rigs/launch/simulated-platform.ts'
import { PRODUCTS } from '../../src/attest/amd/product.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { toPem } from '../../src/attest/encoding/pem.ts'
import { Malformed } from '../../src/attest/malformed.ts'
import { utf8 } from '../../src/base/bytes.ts'
import { readSimulatedRoot } from '../../src/verifier/simulated-root.ts'

function pem(...certificates: Uint8Array[]): Uint8Array {
  return utf8(certificates.map(der => toPem(der, 'CERTIFICATE')).join(''))
}

// Goal: the product comes from the ARK's name, and the order of the certificates does not matter.
test.each(PRODUCTS)('the root of a simulated %s is read in any order of its certificates', async product => {
  const { root } = (await simulatedPlatform(product)).authority
  const { ark, ask, asvk } = root
  for (const order of [pem(ark, ask, asvk), pem(asvk, ask, ark), pem(ask, ark, asvk)]) {
    expect(readSimulatedRoot(order)).toEqual({ product, ark, ask, asvk })
  }
})

test('goal: an ASVK is needed for VLEKs alone: without one the root is read all the same', async () => {
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  expect(readSimulatedRoot(pem(ask, ark))).toEqual({ product: 'genoa', ark, ask, asvk: null })
})

test('goal: what is missing, there twice or of another platform is refused', async () => {
  const { ark, ask, asvk } = (await simulatedPlatform('genoa')).authority.root
  const other = (await simulatedPlatform('milan')).authority.root
  const vcek = (await simulatedPlatform('genoa')).vcek
  const refused = [
    pem(ask, asvk),
    pem(ark, asvk),
    pem(ark),
    pem(ark, ark, ask, asvk),
    pem(ark, ask, ask, asvk),
    pem(ark, ask, asvk, asvk),
    pem(ark, other.ark, ask, asvk),
    pem(ark, ask, asvk, vcek),
    pem(),
    Uint8Array.of(1, 2, 3),
  ]
  for (const bytes of refused) expect(() => readSimulatedRoot(bytes)).toThrow(Malformed)
})

test("goal: the roots that are trusted without being named are AMD's alone", () => {
  expect(AMD_ROOTS.map(root => root.product).toSorted()).toEqual([...PRODUCTS].toSorted())
})
