// Selects the chain from the given certificates. Pure; throws Malformed.
//
// AMD's extensions distinguish VCEKs and VLEKs from other certificates. Candidates are sorted by their bytes, so the
// order of a bundle does not matter. Certificates outside of the chain are ignored, with two exceptions: an unreadable
// certificate, and a foreign one in the position of the ARK, are rejected. A built-in certificate therefore never
// silently replaces a given one.

import type { DecodedRoot } from '../amd/trusted-roots.ts'
import { decodeVekExtensions, hasVekExtensions, type VekExtensions } from '../amd/vek-extensions.ts'
import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { Malformed, parsed, wellFormed } from '../malformed.ts'
import { type Certificate, commonNameOf, decodeCertificate, isSame } from '../x509/certificate.ts'
import { isSignedBy } from '../x509/signature.ts'

type Pool = {
  readonly vek: Certificate
  readonly extensions: VekExtensions
  /** All other certificates. If empty, the intermediates of the trusted roots are used. */
  readonly others: readonly Certificate[]
  /** Why one of the others is unreadable; null if all are readable. */
  readonly unreadable: string | null
}

export type Chain = {
  readonly intermediate: Certificate
  readonly ark: Certificate
  readonly root: DecodedRoot | null
  /** Which of the two came with the evidence; the trusted root supplies the others. */
  readonly given: 'both' | 'intermediate' | 'none'
}

const certificatesMax = 24

/**
 * Separates the VEK from the other certificates. In a bundle, the first certificate with AMD's extensions is the VEK.
 */
export function poolOf(vek: PemOrDer, chain: PemOrDer | readonly PemOrDer[] | undefined): Pool {
  const given = derBlocks(vek, 'CERTIFICATE', 'VEK').map(der => decodeCertificate(der))
  const first = given.find(certificate => hasVekExtensions(certificate.extensions))
  if (first === undefined) throw new Malformed('VEK: a certificate without the extensions of a VCEK or VLEK')
  const bundles = chain === undefined ? [] : isList(chain) ? chain : [chain]
  wellFormed(bundles.length <= certificatesMax, `chain: ${bundles.length} parts`)
  const supplied = bundles.flatMap(bundle => derBlocks(bundle, 'CERTIFICATE', 'chain'))
  const read = supplied.map(der => parsed(() => decodeCertificate(der)))
  const others = [
    ...given.filter(certificate => certificate !== first),
    ...read.flatMap(parsed => (parsed.ok ? [parsed.value] : [])),
  ]
  wellFormed(others.length <= certificatesMax, `chain: ${others.length} certificates`)
  const broken = read.find(parsed => !parsed.ok)
  const unreadable = broken === undefined || broken.ok ? null : broken.reason
  const extensions = decodeVekExtensions(first.extensions)
  return { vek: first, extensions, others: inOrderOfBytes(others), unreadable }
}

/**
 * Finds the intermediate that the VEK names, the ARK that the intermediate names, and the trusted root with this ARK.
 */
export async function selectChain(
  { vek, extensions, others, unreadable }: Pool,
  roots: readonly DecodedRoot[],
): Promise<Chain> {
  wellFormed(unreadable === null, `chain: a certificate in it cannot be read: ${unreadable}`)
  const intermediate = others.length === 0 ? await builtIn(vek, extensions, roots) : await issuerOf(vek, others)
  const arks = others.filter(other => isSame(other.subject, intermediate.issuer) && isSame(other.subject, other.issuer))
  const isTrusted = (ark: Certificate) => roots.find(root => isSame(root.arkDer, ark.der)) ?? null
  // Several certificates may have the ARK's name. Prefer trusted ones, and among them the one that signed the
  // intermediate.
  const trusted = arks.filter(ark => isTrusted(ark) !== null)
  const supplied = (await signerOf(intermediate, trusted, ark => ark)) ?? arks[0]
  if (supplied !== undefined) return { intermediate, ark: supplied, root: isTrusted(supplied), given: 'both' }
  // The root itself need not be sent.
  const bearers = roots.filter(root => isSame(root.ark.subject, intermediate.issuer))
  const named = await signerOf(intermediate, bearers, root => root.ark)
  const wanted = commonNameOf(intermediate.issuer)
  if (named === undefined) throw new Malformed(`chain: no ARK named ${wanted}`)
  const own = [named.ask, ...(named.asvk === null ? [] : [named.asvk])]
  const stranger = others.find(
    other => !isSame(other.subject, vek.issuer) && !own.some(authority => isSame(authority.der, other.der)),
  )
  if (stranger !== undefined) {
    throw new Malformed(`chain: no ARK named ${wanted} in it, but ${commonNameOf(stranger.subject)}`)
  }
  return { intermediate, ark: named.ark, root: named, given: others.length === 0 ? 'none' : 'intermediate' }
}

async function builtIn(
  vek: Certificate,
  { holder }: VekExtensions,
  roots: readonly DecodedRoot[],
): Promise<Certificate> {
  const own = roots.flatMap(root => (holder.kind === 'vcek' ? [root.ask] : root.asvk === null ? [] : [root.asvk]))
  const bearers = own.filter(certificate => isSame(certificate.subject, vek.issuer))
  const found = await signerOf(vek, bearers, certificate => certificate)
  if (found !== undefined) return found
  throw new Malformed(`chain: none was given, and no trusted root has an intermediate ${commonNameOf(vek.issuer)}`)
}

/** Several certificates may have the issuer's name, because AMD has renewed intermediates. */
async function issuerOf(vek: Certificate, others: readonly Certificate[]): Promise<Certificate> {
  const bearers = others.filter(other => isSame(other.subject, vek.issuer))
  const found = await signerOf(vek, bearers, certificate => certificate)
  if (found === undefined) throw new Malformed(`chain: no certificate named ${commonNameOf(vek.issuer)}`)
  return found
}

/** Returns the signer among certificates with the issuer's name, or the first, whose signature check then fails. */
async function signerOf<One>(
  signed: Certificate,
  bearers: readonly One[],
  authority: (one: One) => Certificate,
): Promise<One | undefined> {
  if (bearers.length > 1) for (const bearer of bearers) if (await isSignedBy(signed, authority(bearer))) return bearer
  return bearers[0]
}

function inOrderOfBytes(certificates: readonly Certificate[]): Certificate[] {
  return certificates.toSorted((a, b) => compareBytes(a.der, b.der))
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const at = a.findIndex((byte, i) => byte !== b[i])
  return at < 0 ? a.length - b.length : (a[at] ?? 0) - (b[at] ?? -1)
}

function isList(chain: PemOrDer | readonly PemOrDer[]): chain is readonly PemOrDer[] {
  return Array.isArray(chain)
}
