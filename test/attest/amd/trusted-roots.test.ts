// The pinned roots are AMD's, and nothing else is.

import { describe, expect, test } from 'bun:test'
import { AMD_NAMES, AMD_ROOTS } from '../../../src/attest/amd/roots.ts'
import { decodeRoot, productOfName } from '../../../src/attest/amd/trusted-roots.ts'
import { derBlocks, toPem } from '../../../src/attest/encoding/pem.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { commonNameOf } from '../../../src/attest/x509/certificate.ts'
import { loadX509 } from '../../../src/attest/x509/runtime.ts'
import { isSignedBy } from '../../../src/attest/x509/signature.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { vector } from '../../rigs/attest/chain-vectors.ts'

/** SHA-256 of the DER, computed with openssl. */
const FINGERPRINTS = {
  milan: {
    ark: '69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd',
    ask: '67d303bd3905fd38db8b20e0793699870e7fa612eaad5dec358293fd8c0bac1b',
    asvk: 'c5e081f59b7efab1fe2f8b505e159704e72f29cab7ef7cf628a05a42439082f5',
  },
  genoa: {
    ark: '4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1',
    ask: '5464738c1546aed5f2cecf1dc98c5c960a92e8913238a61711bc90ec6e828521',
    asvk: '197e610743a917d6b9bb982a5a9226ccc0a15b611be0619e626aca9151457372',
  },
  turin: {
    ark: '1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a',
    ask: '5b77ef5fe7a7a004fd9032668fba9d0fda22f88c4442069a479636a6ae3b3185',
    asvk: '104e10a8bd060a3c20a434261a57d0588fd65a88915b4f65b08bdecaf8df1a3c',
  },
} as const

describe.each(AMD_ROOTS.map(root => [root.product, root] as const))('%s', (product, root) => {
  test('pinned by name', () => {
    // Goal: no root of a relying party's own takes a name of AMD's.
    const { ark, ask, asvk } = decodeRoot(root)
    for (const { subject } of [ark, ask, asvk]) expect(AMD_NAMES).toContain(commonNameOf(subject))
    expect(AMD_NAMES.length).toBe(3 * AMD_ROOTS.length)
  })

  test('pinned by fingerprint', () => {
    // Goal: nobody changes a pinned certificate without changing this table.
    const { ark, ask, asvk } = decodeRoot(root)
    const found = { ark: toHex(sha256(ark.der)), ask: toHex(sha256(ask.der)), asvk: toHex(sha256(asvk.der)) }
    expect(found).toEqual(FINGERPRINTS[product])
  })

  test('the same as in the file that AMD serves', async () => {
    // Goal: the data files hold what their source holds, byte for byte.
    const served = derBlocks(await vector(`roots/${product}-ask-ark-asvk.pem`), 'CERTIFICATE', 'served').map(toHex)
    const { ark, ask, asvk } = decodeRoot(root)
    expect(served).toEqual([ask, ark, asvk].map(certificate => toHex(certificate.der)))
  })

  test('each is signed by the ARK, by two implementations', async () => {
    // Goal: our own reader and another library agree on who signed what; a signature of another certificate does not
    // pass.
    const x509 = await loadX509()
    const { ark, ask, asvk } = decodeRoot(root)
    const publicKey = new x509.X509Certificate(new Uint8Array(ark.der)).publicKey
    for (const certificate of [ark, ask, asvk]) {
      expect(await isSignedBy(certificate, ark)).toBe(true)
      const other = new x509.X509Certificate(new Uint8Array(certificate.der))
      expect(await other.verify({ publicKey, signatureOnly: true })).toBe(true)
      expect(await isSignedBy(certificate, ask)).toBe(false)
      expect(await isSignedBy({ ...certificate, signature: asvk.signature }, ark)).toBe(certificate === asvk)
    }
  })

  test('what the certificates say', () => {
    // Goal: names, algorithms and keys are AMD's for this product.
    const { ark, ask, asvk, simulated } = decodeRoot(root)
    const line = `${product[0]?.toUpperCase()}${product.slice(1)}`
    expect([ark, ask, asvk].map(certificate => commonNameOf(certificate.subject))).toEqual([
      `ARK-${line}`,
      `SEV-${line}`,
      `SEV-VLEK-${line}`,
    ])
    for (const certificate of [ark, ask, asvk]) {
      expect(certificate.signatureAlgorithm).toBe('rsa-pss-sha384')
      expect(certificate.publicKey).toMatchObject({ kind: 'rsa', modulusBits: 4096, exponentHex: '010001' })
    }
    expect(simulated).toBe(false)
  })
})

test('a root under another product is not AMD’s', () => {
  // Goal: AMD's word for one product is not its word for another, and a changed byte makes a root simulated.
  const [milan, genoa] = AMD_ROOTS.map(root => decodeRoot(root))
  if (milan === undefined || genoa === undefined) throw new Error('two roots are pinned')
  const moved = { product: 'genoa', ark: milan.ark.der, ask: milan.ask.der, asvk: milan.asvk.der } as const
  expect(decodeRoot(moved).simulated).toBe(true)
  const changed = Uint8Array.from(genoa.ark.der)
  changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1
  expect(decodeRoot({ ...moved, ark: toPem(changed, 'CERTIFICATE') }).simulated).toBe(true)
  expect(decodeRoot({ ...moved, ark: genoa.ark.der }).simulated).toBe(false)
})

test('product names', () => {
  // Goal: every name that AMD writes leads to one product, and no other name to any.
  const known = { Milan: 'milan', 'Milan-B0': 'milan', 'Genoa-B1': 'genoa', Siena: 'genoa', Turin: 'turin' } as const
  for (const [name, product] of Object.entries(known)) expect(productOfName(name)).toBe(product)
  for (const name of [
    '',
    'milan',
    'Milan-',
    'Milan-B0-B0',
    'Milan-b0',
    'Venice',
    'Turin Dense',
    '-B0',
    'constructor',
  ]) {
    expect(productOfName(name)).toBeNull()
  }
})

test('the runtime of the certificate library', async () => {
  // Goal: the library is loaded once, and loading it leaves working what else uses the Reflect functions.
  expect(await loadX509()).toBe(await loadX509())
  expect(Reflect.has(Reflect, 'getMetadata')).toBe(true)
})
