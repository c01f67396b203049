// NVIDIA's certificate chains: for a GPU's attestation key, a manifest's signer, and an OCSP responder. Pure.

import { booleanOf, byteInteger, DerFields, readSequence, TAG } from '../encoding/der.ts'
import { parsed, wellFormed } from '../malformed.ts'
import { type Check, check, fail, notChecked, pass } from '../verdict.ts'
import { type Certificate, commonNameOf, decodeCertificate, isSame, keyUsageOf, OID } from '../x509/certificate.ts'
import type { DecodedRoot } from './roots.ts'
import { isIssuedBy, type VerifyP384 } from './signature.ts'

/** Longest chain. A GPU has five certificates including its root; a manifest has four. */
const chainMax = 8

export type Chain = {
  /** Path from the leaf to the trusted root, inclusive. */
  readonly path: readonly [leaf: Certificate, issuer: Certificate, ...above: Certificate[]]
  readonly simulated: boolean
}

/** Decodes a chain from the leaf upwards, with or without its root. Throws Malformed. */
export function decodeChain(ders: readonly Uint8Array[], what: string): readonly Certificate[] {
  wellFormed(ders.length >= 1 && ders.length <= chainMax, `${what}: ${ders.length} certificates, at most ${chainMax}`)
  return ders.map((der, at) => {
    const read = parsed(() => decodeCertificate(der))
    wellFormed(read.ok, `${what}: certificate ${at}: ${read.ok ? '' : read.reason}`)
    return read.value
  })
}

type ChainQuestion = {
  readonly certificates: readonly Certificate[]
  readonly roots: readonly DecodedRoot[]
  readonly asOfMs: number
  readonly verify: VerifyP384
  /** Returns why a valid path is of another kind than the caller needs, or null. */
  readonly faultOf?: typeof deviceFault
}

/** Checks `PREFIX-root`, `PREFIX-signatures` and `PREFIX-times`; the chain is null unless the first two passed. */
export function checkChain(
  prefix: string,
  { certificates, roots, asOfMs, verify, faultOf = () => null }: ChainQuestion,
): { readonly checks: readonly Check[]; readonly chain: Chain | null } {
  const [rootName, signaturesName, timesName] = [`${prefix}-root`, `${prefix}-signatures`, `${prefix}-times`]
  const found = rootOf(certificates, roots)
  if (typeof found === 'string') {
    const skipped = [signaturesName, timesName].map(name => notChecked(name, `${rootName} is not good`, true))
    return { checks: [fail(rootName, found), ...skipped], chain: null }
  }
  const { path, root } = found
  const fault = parsed(() => pathFault(path, verify) ?? faultOf(path))
  const reason = fault.ok ? fault.value : fault.reason
  const old = path.find(certificate => !isValidAt(certificate, asOfMs))
  const name = `${commonNameOf(root.certificate.subject)}${root.simulated ? ', which is SIMULATED' : ''}`
  return {
    checks: [
      pass(rootName, name),
      check(signaturesName, reason === null, reason ?? '', `${path.length} certificates`),
      check(timesName, old === undefined, old === undefined ? '' : timeFault(old)),
    ],
    chain: reason === null ? { path, simulated: root.simulated } : null,
  }
}

type Path = Chain['path']

/** Returns null for a device. Its key is an authority without limit: a leaked one must not certify other devices. */
export function deviceFault(path: Path): string | null {
  if (path.length !== 5) return `${path.length} certificates, and the chain of a device has 5`
  const names = path.slice(1, 3).map(({ subject }) => commonNameOf(subject).replace(/^(SIMULATED|NVIDIA) /, ''))
  const [chip = '', above = ''] = names
  const isOfChip = above.startsWith(`${chip.split(' ')[0]} Provisioner`)
  return isOfChip ? null : `${chip} is issued by ${above}, which is not the provisioner of its chip`
}

/** Returns the path to a trusted root, or the reason that there is none. */
function rootOf(
  certificates: readonly Certificate[],
  roots: readonly DecodedRoot[],
): { readonly path: Path; readonly root: DecodedRoot } | string {
  const last = certificates.at(-1)
  if (last === undefined) return 'there are no certificates'
  const isWhole = isSame(last.subject, last.issuer)
  const root = roots.find(({ certificate }) =>
    isWhole ? isSame(certificate.der, last.der) : isSame(certificate.subject, last.issuer),
  )
  if (root === undefined) return `${commonNameOf(last.issuer)} is not a trusted root`
  const [leaf, ...above] = isWhole ? certificates.slice(0, -1) : certificates
  if (leaf === undefined) return 'the root alone is no chain'
  const [issuer = root.certificate, ...more] = [...above, root.certificate]
  return { path: [leaf, issuer, ...more], root }
}

/** Validates a path without policies and name constraints (RFC 5280 section 6.1). Null if it is valid. */
function pathFault(path: Path, verify: VerifyP384): string | null {
  for (const [at, certificate] of path.entries()) {
    const name = commonNameOf(certificate.subject)
    const unknown = unknownCritical(certificate)
    if (unknown !== null) return `${name}: critical extension ${unknown} is unknown`
    if (certificate.publicKey.kind !== 'p-384') return `${name}: not a key on P-384`
    const constraints = constraintsOf(certificate)
    if (at > 0 !== constraints.isAuthority) return `${name}: ${at > 0 ? 'not' : 'a leaf that is'} an authority`
    // Compare with the number of certificates between this one and the leaf.
    if (constraints.below !== null && at - 1 > constraints.below) return `${name}: too many certificates below it`
    if (at > 0 && keyUsageOf(certificate.extensions)?.certSign === false) return `${name}: may not sign certificates`
    const issuer = path[at + 1] ?? certificate
    if (!isSame(certificate.issuer, issuer.subject)) return `${name}: issued by another name than the next one's`
    if (!isIssuedBy(certificate, issuer, verify)) return `${name}: not signed by ${commonNameOf(issuer.subject)}`
  }
  return null
}

export const extendedKeyUsage = '2.5.29.37'
const knownCritical: ReadonlySet<string> = new Set([OID.keyUsage, OID.basicConstraints, extendedKeyUsage])

export function unknownCritical({ extensions }: Certificate): string | null {
  for (const [oid, { critical }] of extensions) if (critical && !knownCritical.has(oid)) return oid
  return null
}

/** Reads basic constraints (RFC 5280 section 4.2.1.9). `below`: how many authorities may follow; null for no limit. */
function constraintsOf({ extensions }: Certificate): { readonly isAuthority: boolean; readonly below: number | null } {
  const extension = extensions.get(OID.basicConstraints)
  if (extension === undefined) return { isAuthority: false, below: null }
  const what = 'basic constraints'
  const fields = new DerFields(readSequence(extension.value, what), what)
  const flag = fields.optional(TAG.boolean)
  const below = fields.optional(TAG.integer)
  fields.end()
  return {
    isAuthority: flag !== null && booleanOf(flag.contents, what),
    below: below === null ? null : byteInteger(below.contents, what),
  }
}

export function isValidAt({ notBeforeMs, notAfterMs }: Certificate, ms: number): boolean {
  return ms >= notBeforeMs && ms <= notAfterMs
}

function timeFault({ subject, notBeforeMs, notAfterMs }: Certificate): string {
  const [from, to] = [notBeforeMs, notAfterMs].map(ms => new Date(ms).toISOString())
  return `${commonNameOf(subject)} is valid from ${from} to ${to}, not at the time of this verification`
}
