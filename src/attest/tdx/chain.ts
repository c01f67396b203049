// Intel's certificates: root → PCK CA → PCK certificate, root → TCB signing certificate, and the revocation lists of
// root and PCK CA. Pure. Intel SGX PCK Certificate and CRL Profile Specification.

import { derBlocks, type PemOrDer } from '../encoding/pem.ts'
import { Malformed, parsed, reasonOf, wellFormed } from '../malformed.ts'
import {
  type Certificate,
  commonNameOf,
  decodeCertificate,
  isCertificateAuthority,
  isSame,
  keyUsageOf,
  OID,
} from '../x509/certificate.ts'
import { type Crl, decodeCrl } from '../x509/crl.ts'
import { isIssuedWithP256 } from '../x509/ecdsa.ts'
import { hasPckExtension } from './pck-extension.ts'
import { INTEL_SGX_ROOT } from './roots.ts'

export type TdxRoot = {
  readonly certificate: PemOrDer
  /** Prefix of every common name below the root. */
  readonly names: string
  readonly simulated?: true
}

export const INTEL_ROOT: TdxRoot = { certificate: INTEL_SGX_ROOT, names: 'Intel SGX' }

const ROLES = {
  pck: ['PCK Certificate'],
  pckCa: ['PCK Platform CA', 'PCK Processor CA'],
  tcbSigner: ['TCB Signing'],
} as const

export type Anchor = TdxRoot & { readonly decoded: Certificate }
export type PckChain = { readonly pck: Certificate; readonly authority: Certificate }

/** Decodes a trusted root. Throws Malformed. */
export function decodeAnchor(root: TdxRoot): Anchor {
  const [der, ...more] = derBlocks(root.certificate, 'CERTIFICATE', 'root')
  if (der === undefined || more.length > 0) throw new Malformed('root: not exactly one certificate')
  return { ...root, decoded: decodeCertificate(der) }
}

/** Decodes the PCK certificate, its CA, and possibly the root, in this order. Throws Malformed. */
export function decodePckChain(pem: PemOrDer, { decoded: root }: Anchor): PckChain {
  const [pck, authority, ...more] = certificatesOf(pem, 'PCK chain')
  wellFormed(pck !== undefined && authority !== undefined, 'PCK chain: not a certificate and its CA')
  wellFormed(isOnlyRoot(more, root), 'PCK chain: its end is not the trusted root')
  wellFormed(hasPckExtension(pck.extensions), 'PCK chain: its first certificate has no SGX extension')
  return { pck, authority }
}

/** Decodes the TCB signing certificate, and possibly the root. Throws Malformed. */
export function decodeSigner(pem: PemOrDer, { decoded: root }: Anchor, what: string): Certificate {
  const [signer, ...more] = certificatesOf(pem, what)
  wellFormed(signer !== undefined, `${what}: no certificate in it`)
  wellFormed(isOnlyRoot(more, root), `${what}: its end is not the trusted root`)
  return signer
}

/** Decodes the only CRL in the input. Throws Malformed. */
export function decodeOnlyCrl(der: Uint8Array, what: string): Crl {
  const [only, ...more] = derBlocks(der, 'X509 CRL', what)
  wellFormed(only !== undefined && more.length === 0, `${what}: not exactly one`)
  return decodeCrl(only)
}

/** Returns all faults of a PCK certificate's chain at this time. */
export async function pckFaults({ pck, authority }: PckChain, anchor: Anchor, asOfMs: number): Promise<string[]> {
  return await faultsOf([
    { role: 'pck', certificate: pck, issuer: authority, anchor, asOfMs },
    { role: 'pckCa', certificate: authority, issuer: anchor.decoded, anchor, asOfMs },
  ])
}

/** Returns all faults of a TCB signing certificate at this time. */
export async function signerFaults(signer: Certificate, anchor: Anchor, asOfMs: number): Promise<string[]> {
  return await faultsOf([{ role: 'tcbSigner', certificate: signer, issuer: anchor.decoded, anchor, asOfMs }])
}

/** Returns all faults of this authority's revocation list at this time. */
export async function crlFaults(crl: Crl, authority: Certificate, asOfMs: number): Promise<string[]> {
  const unknown = [...crl.extensions].find(([oid, extension]) => extension.critical && oid !== OID.crlNumber)
  const { thisUpdateMs, nextUpdateMs } = crl
  return [
    ...(isSame(crl.issuer, authority.subject) ? [] : ['it is issued by another name']),
    ...(unknown === undefined ? [] : [`critical extension ${unknown[0]} is unknown`]),
    ...((await isIssuedWithP256(crl, authority)) ? [] : ["its signature is not the authority's"]),
    ...(nextUpdateMs === null ? ['it has no nextUpdate'] : spanFaults(thisUpdateMs, nextUpdateMs, asOfMs)),
  ]
}

export function spanFaults(fromMs: number, untilMs: number, asOfMs: number): string[] {
  if (asOfMs >= fromMs && asOfMs <= untilMs) return []
  return [`it is for ${iso(fromMs)} to ${iso(untilMs)}, not for the time of this verification`]
}

type Link = {
  readonly role: keyof typeof ROLES
  readonly certificate: Certificate
  readonly issuer: Certificate
  readonly anchor: Anchor
  readonly asOfMs: number
}

async function faultsOf(links: readonly Link[]): Promise<string[]> {
  const root = links[0]?.anchor.decoded
  const own = root === undefined ? [] : linkTimes(root, links[0]?.asOfMs ?? 0).map(fault => `root: ${fault}`)
  const all = await Promise.all(
    links.map(async link => [...nameFaults(link), ...(await linkFaults(link))].map(fault => `${link.role}: ${fault}`)),
  )
  return [...own, ...all.flat()]
}

function nameFaults({ role, certificate, issuer, anchor }: Link): string[] {
  const name = parsed(() => commonNameOf(certificate.subject))
  const allowed = ROLES[role].map(rest => `${anchor.names} ${rest}`)
  return [
    ...(isSame(certificate.issuer, issuer.subject) ? [] : ['its issuer has another name']),
    ...(name.ok && allowed.includes(name.value) ? [] : [`its name is not ${allowed.join(' or ')}`]),
  ]
}

async function linkFaults({ role, certificate, issuer, asOfMs }: Link): Promise<string[]> {
  try {
    const isCa = isCertificateAuthority(certificate.extensions)
    const usage = keyUsageOf(certificate.extensions)
    const maySign = isCa && usage?.certSign === true && usage.crlSign
    return [
      ...(role === 'pckCa' && !maySign ? ['it may not sign certificates and CRLs'] : []),
      ...(role !== 'pckCa' && isCa ? ['it is a certificate authority'] : []),
      ...(certificate.publicKey.kind === 'p-256' ? [] : ['its key is not on P-256']),
      ...unknownCritical(certificate),
      ...((await isIssuedWithP256(certificate, issuer)) ? [] : ["its signature is not its issuer's"]),
      ...linkTimes(certificate, asOfMs),
    ]
  } catch (error) {
    return [reasonOf(error)]
  }
}

function linkTimes({ notBeforeMs, notAfterMs }: Certificate, asOfMs: number): string[] {
  return spanFaults(notBeforeMs, notAfterMs, asOfMs)
}

function unknownCritical({ extensions }: Certificate): string[] {
  const understood: readonly string[] = [OID.basicConstraints, OID.keyUsage]
  const unknown = [...extensions].filter(([oid, extension]) => extension.critical && !understood.includes(oid))
  return unknown.map(([oid]) => `critical extension ${oid} is unknown`)
}

function certificatesOf(pem: PemOrDer, what: string): Certificate[] {
  return derBlocks(pem, 'CERTIFICATE', what).map(der => decodeCertificate(der))
}

function isOnlyRoot(more: readonly Certificate[], root: Certificate): boolean {
  const [last, ...others] = more
  return last === undefined || (others.length === 0 && isSame(last.der, root.der))
}

function iso(ms: number): string {
  return new Date(ms).toISOString()
}
