// Simulated evidence: made by one runtime and verified by all, and made and verified in this one. Pure but for
// WebCrypto's keys and salts.

import {
  countingRandom,
  expectedOf,
  fieldsOf,
  kinds,
  measurement,
  questionOf,
  sampleKeys,
  sampleReceipt,
  statementOf,
} from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { simulatedAsOf, simulatedPlatform } from '../../../scripts/rigs/launch/simulated-platform.ts'
import { decodeCbor } from '../../../src/attest/encoding/cbor.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import {
  decodeReceipt,
  type Evidence,
  encodeStatement,
  issueReceipt,
  keysDigest,
  nativeVerifiers,
  PRODUCTS,
  type Product,
  portableSigner,
  portableVerifiers,
  type ReceiptQuestion,
  type StatementKind,
  strictPolicy,
  type TrustedRoot,
  type Verdict,
  verifyEvidence,
  verifyReceipt,
} from '../../../src/attest/index.ts'
import { present } from '../../../src/base/assert.ts'
import { fromHex, utf8 } from '../../../src/base/bytes.ts'
import { fromBase64Text, type SimulatedVectors, simulatedCrls, type Vectors } from './input.ts'
import { orRefused, type Told, told } from './outcome.ts'

export async function simulatedSuite(vectors: Vectors): Promise<unknown> {
  const evidence: Record<string, unknown> = {}
  for (const product of PRODUCTS) evidence[product] = await evidenceVerdicts(vectors, product)
  const receipts: Record<string, unknown> = {}
  for (const kind of kinds) receipts[kind] = await receiptVerdicts(vectors, kind)
  return {
    keys: keysDigest(sampleKeys().publicKeys),
    statements: kinds.map(kind => encodeStatement(statementOf(kind))),
    cbor: await refusedCbor(),
    evidence,
    receipts,
    live: await liveVerdicts(),
  }
}

function authorityOf(vectors: Vectors, product: Product): SimulatedVectors {
  return present(vectors.simulated.authorities[product], `the suite was given ${product}`)
}

function rootOf(vectors: Vectors, product: Product): TrustedRoot {
  const { ark, ask, asvk } = authorityOf(vectors, product)
  return { product, ark: fromBase64Text(ark), ask: fromBase64Text(ask), asvk: fromBase64Text(asvk) }
}

/** Both kinds of VEK, each under every CRL, without one, and for a relying party that trusts AMD alone. */
async function evidenceVerdicts(vectors: Vectors, product: Product): Promise<Record<string, Told>> {
  const own = authorityOf(vectors, product)
  const question = { asOf: simulatedAsOf, policy: strictPolicy(), roots: [rootOf(vectors, product)] }
  const signers = {
    vcek: { report: fromBase64Text(own.vcekReport), vek: fromBase64Text(own.vcek) },
    vlek: { report: fromBase64Text(own.vlekReport), vek: fromBase64Text(own.vlek) },
  }
  const stranger = authorityOf(vectors, product === 'genoa' ? 'turin' : 'genoa').crls.good
  const verdicts: Record<string, Told> = {}
  for (const [signer, given] of Object.entries(signers)) {
    const verify = async (name: string, changes: Partial<Evidence>) => {
      verdicts[`${signer}, ${name}`] = told(
        await verifyEvidence({ ...given, ...question, requireCrl: true, ...changes }),
      )
    }
    for (const crl of simulatedCrls) await verify(crl, { crl: fromBase64Text(own.crls[crl]) })
    await verify('stranger', { crl: fromBase64Text(stranger) })
    await verify('no CRL', {})
    await verify('no CRL wanted', { requireCrl: false })
    await verify('AMD alone', {
      requireCrl: false,
      roots: undefined,
      chain: [fromBase64Text(own.ask), fromBase64Text(own.ark)],
    })
  }
  return verdicts
}

/** The receipt of the vectors comes out again byte for byte, and verifies; what is not as it should be does not. */
async function receiptVerdicts(vectors: Vectors, kind: StatementKind): Promise<unknown> {
  const text = present(vectors.simulated.receipts[kind], `the suite was given a receipt: ${kind}`)
  const decoded = decodeReceipt(text)
  const again = await issueReceipt({
    fields: fieldsOf[kind],
    publicKeys: sampleKeys().publicKeys,
    sign: portableSigner(sampleKeys().secretKeys, countingRandom(50)),
    evidenceSource: async () => decoded.evidence,
    platform: 'simulated',
    nowMs: simulatedAsOf.getTime(),
  })
  const question: ReceiptQuestion = {
    kind,
    nonce: fieldsOf[kind].nonce,
    asOf: simulatedAsOf,
    ageMsMax: 60_000,
    roots: [rootOf(vectors, 'genoa')],
    requireCrl: true,
    policy: { ...strictPolicy(), measurements: [measurement] },
    expected: expectedOf(kind),
    tpm: 'any',
  }
  const cases: Record<string, Promise<Verdict>> = {
    good: verifyReceipt(text, question),
    native: verifyReceipt(text, { ...question, verifiers: nativeVerifiers }),
    javascript: verifyReceipt(text, { ...question, verifiers: portableVerifiers }),
    nonce: verifyReceipt(text, { ...question, nonce: new Uint8Array(32) }),
    late: verifyReceipt(text, { ...question, asOf: simulatedAsOf.getTime() + 60_001 }),
    mldsa65: verifyReceipt(withSignature(text, 'mldsa65'), question),
    mldsa65Native: verifyReceipt(withSignature(text, 'mldsa65'), { ...question, verifiers: nativeVerifiers }),
    ed25519: verifyReceipt(withSignature(text, 'ed25519'), question),
    cut: verifyReceipt(text.slice(0, -1), question),
  }
  const verdicts = await Promise.all(Object.entries(cases).map(async ([name, verdict]) => [name, told(await verdict)]))
  return {
    text: sha256(utf8(text)),
    isSame: JSON.stringify(again) === text,
    verdicts: Object.fromEntries(verdicts),
  }
}

/**
 * Byte strings in pieces, a map key twice, a number longer than it need be: none of it may reach cbor-x, which would
 * take it.
 */
async function refusedCbor(): Promise<unknown> {
  const forms = { pieces: '5f41014102ff', twice: 'a2616101616102', long: '1801', half: 'f93c00', tag: 'c101' }
  const limits = { sizeBytesMax: 64, depthMax: 3 }
  const refused = Object.entries(forms).map(async ([name, hex]) => [
    name,
    await orRefused(() => decodeCbor(present(fromHex(hex), 'hexadecimal'), limits)),
  ])
  return Object.fromEntries(await Promise.all(refused))
}

/** The same receipt with one bit of one signature changed. */
function withSignature(text: string, name: 'ed25519' | 'mldsa65'): string {
  const receipt = JSON.parse(text)
  const signature: string = receipt.signatures[name]
  receipt.signatures[name] = `${signature[0] === 'A' ? 'B' : 'A'}${signature.slice(1)}`
  return JSON.stringify(receipt)
}

/**
 * The simulator itself: keys, certificates, a CRL, reports and a receipt made here and now. Their bytes differ each
 * time, their verdicts do not.
 */
async function liveVerdicts(): Promise<unknown> {
  const { authority, vcek, report } = await simulatedPlatform('turin')
  const question = { asOf: simulatedAsOf, requireCrl: false, roots: [authority.root], policy: strictPolicy() }
  const good = await report()
  const forged = Uint8Array.from(good)
  forged[0x90] = (forged[0x90] ?? 0) ^ 1
  const receipt = await sampleReceipt('claim')
  return {
    evidence: told(await verifyEvidence({ report: good, vek: vcek, ...question })),
    forged: told(await verifyEvidence({ report: forged, vek: vcek, ...question })),
    amdAlone: told(await verifyEvidence({ report: good, vek: vcek, ...question, roots: undefined })),
    receipt: told(await verifyReceipt(JSON.stringify(receipt), await questionOf('claim'))),
  }
}
