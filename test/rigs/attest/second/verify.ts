// The second implementation's verdict: a report, its certificates, a revocation list and a policy. Written from AMD's
// specifications (56860, 57230) and the policy's manual alone, to be compared with src/attest. Pure.

import {
  type Certificate,
  type Crl,
  hasUnknownCritical,
  isSignedBy,
  readCertificate,
  readCrl,
  rightsOf,
  understood,
  type Vek,
  vekOf,
} from './certificate.ts'
import { hexOf } from './der.ts'
import { type Document, refusedBy } from './policy.ts'
import { isReport, isSignedByVek, type ProductName, partOf, productOf, signerOf, tcbOf } from './report.ts'

export type SecondRoot = {
  readonly product: ProductName
  readonly ark: Uint8Array
  readonly ask: Uint8Array
  readonly asvk: Uint8Array
}

export type Question = {
  readonly report: Uint8Array
  readonly product: ProductName | null
  readonly vek: Uint8Array
  readonly chain: readonly Uint8Array[]
  readonly crl: Uint8Array | null
  readonly requireCrl: boolean
  readonly roots: readonly SecondRoot[]
  readonly asOf: number
  readonly maskedChipId: 'refuse' | 'any'
  readonly policy: Document
  readonly certificateEntries: readonly string[] | null
}

export type Answer = {
  /** Why the evidence is not good, whatever the policy; null if it is. */
  readonly fault: string | null
  /** Fields of the policy that refuse it; null where no policy can be asked. */
  readonly refused: readonly string[] | null
}

export function verifySecond(question: Question): Answer {
  const { report, asOf } = question
  if (!isReport(report)) return { fault: 'no report', refused: null }
  const product = productOf(report, question.product)
  const chain = chainOf(question)
  const fault =
    product === null ? 'unknown product' : typeof chain === 'string' ? chain : faultOf(question, product, chain)
  if (product === null) return { fault, refused: null }
  const crl = typeof chain === 'string' ? null : signedCrl(question.crl, chain.ark)
  const around = {
    product,
    asOf,
    holder: typeof chain === 'string' ? null : chain.vek,
    crlIssued: crl?.thisUpdate ?? null,
    certificateEntries: question.certificateEntries,
  }
  return { fault, refused: refusedBy(report, question.policy, around) }
}

type Chain = {
  readonly leaf: Certificate
  readonly vek: Vek
  readonly intermediate: Certificate
  readonly ark: Certificate
  readonly root: SecondRoot | null
}

const isSame = (a: Uint8Array, b: Uint8Array) => Buffer.compare(a, b) === 0

/** The certificates that belong together by their names, or why there are none. */
function chainOf({ vek: der, chain, roots }: Question): Chain | string {
  const leaf = readCertificate(der)
  const vek = leaf === null ? null : vekOf(leaf)
  if (leaf === null || vek === null || !isP384(leaf.spki)) return 'no VEK'
  const given = chain.map(readCertificate)
  if (given.includes(null)) return 'unreadable chain'
  const others = given.flatMap(found => (found === null ? [] : [found]))
  const own = roots.map(root => readCertificate(vek.kind === 'vcek' ? root.ask : root.asvk))
  const pool = others.length === 0 ? own : others
  const intermediate = pool.find(found => found?.subject === leaf.issuer)
  if (intermediate == null) return 'no intermediate'
  const supplied = others.find(({ subject, issuer }) => subject === intermediate.issuer && subject === issuer)
  const ark =
    supplied ?? roots.map(root => readCertificate(root.ark)).find(found => found?.subject === intermediate.issuer)
  if (ark == null) return 'no ARK'
  // Where the ARK does not come with the evidence, no other certificate may stand in its place.
  const known = roots.filter(root => isSame(root.ark, ark.der)).flatMap(({ ask, asvk }) => [ask, asvk])
  const isStranger = ({ subject, der }: Certificate) =>
    subject !== leaf.issuer && !known.some(authority => isSame(authority, der))
  if (supplied === undefined && others.some(isStranger)) return 'a stranger in the place of the ARK'
  const root = roots.find(root => isSame(root.ark, ark.der)) ?? null
  return { leaf, vek, intermediate, ark, root }
}

const p384 = '301006072a8648ce3d020106052b81040022'

function isP384(spki: Uint8Array): boolean {
  return hexOf(spki).startsWith(`3076${p384}03620004`)
}

function faultOf(question: Question, product: ProductName, chain: Chain): string | null {
  const { report, asOf, maskedChipId } = question
  const { leaf, vek, intermediate, ark, root } = chain
  const name = vek.product.replace(/-[A-Z][0-9]$/, '')
  const expected = root === null ? null : readCertificate(vek.kind === 'vcek' ? root.ask : root.asvk)
  const rights = [rightsOf(ark), rightsOf(intermediate), rightsOf(leaf)] as const
  const certificates = [leaf, intermediate, ark]
  const checks: readonly (readonly [string, boolean])[] = [
    ['root', root !== null],
    ['names', intermediate.issuer === ark.subject && ark.issuer === ark.subject],
    ['role', expected?.subject === intermediate.subject],
    ['rights', rights[0].ca && rights[0].certSign && rights[0].crlSign && rights[1].ca && rights[1].certSign],
    ['leaf', !rights[2].ca],
    ['critical', !certificates.some(({ extensions }) => hasUnknownCritical(extensions, understood))],
    ['signatures', isSignedBy(leaf, intermediate) && isSignedBy(intermediate, ark) && isSignedBy(ark, ark)],
    ['validity', certificates.every(({ notBefore, notAfter }) => notBefore <= asOf && asOf <= notAfter)],
    ['revocation', isUnrevoked(question, chain)],
    ['product', PRODUCTS[name] === product && root?.product === product],
    ['signer', signerOf(report) === vek.kind],
    [
      'chip',
      vek.kind === 'vlek' || isChip(partOf(report, 'chipId'), vek.hwId ?? new Uint8Array(0), product, maskedChipId),
    ],
    ['tcb', isTcb(report, vek, product)],
    ['signature', isSignedByVek(report, leaf.spki)],
  ]
  return checks.find(([, holds]) => !holds)?.[0] ?? null
}

const PRODUCTS: Readonly<Record<string, ProductName>> = {
  Milan: 'milan',
  Genoa: 'genoa',
  Siena: 'genoa',
  Bergamo: 'genoa',
  Turin: 'turin',
}

function isChip(chipId: Uint8Array, hwId: Uint8Array, product: ProductName, masked: 'refuse' | 'any'): boolean {
  if (hwId.length !== (product === 'turin' ? 8 : 64)) return false
  if (chipId.every(byte => byte === 0)) return masked === 'any'
  return isSame(chipId.subarray(0, hwId.length), hwId) && chipId.subarray(hwId.length).every(byte => byte === 0)
}

function isTcb(report: Uint8Array, { spl }: Vek, product: ProductName): boolean {
  const reported = tcbOf(partOf(report, 'reportedTcb'), product)
  if (reported === null) return false
  const names = ['fmc', 'bootloader', 'tee', 'snp', 'microcode']
  return names.every(name => reported[name] === spl[name])
}

function signedCrl(der: Uint8Array | null, ark: Certificate): Crl | null {
  const crl = der === null ? null : readCrl(der)
  const crlNumber = '551d14'
  if (crl === null || crl.issuer !== ark.subject || hasUnknownCritical(crl.extensions, [crlNumber])) return null
  return isSignedBy(crl, ark) ? crl : null
}

function isUnrevoked({ crl: der, requireCrl, asOf }: Question, { intermediate, ark }: Chain): boolean {
  if (der === null) return !requireCrl
  const crl = signedCrl(der, ark)
  if (crl === null || crl.nextUpdate === null || asOf < crl.thisUpdate || asOf > crl.nextUpdate) return false
  return !crl.revoked.includes(intermediate.serial) && !crl.revoked.includes(ark.serial)
}
