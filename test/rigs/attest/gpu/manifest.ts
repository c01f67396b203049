// SIMULATED manifests, with their XML signature. Text is written in its canonical form by hand, so that no library
// stands on both sides.

import { sha384 } from '../../../../src/attest/hash.ts'
import { toBase64, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { type Authorities, sign } from './authority.ts'

export type Resource = {
  readonly index: number
  readonly values: readonly Uint8Array[]
  readonly active?: boolean
}

export type ManifestParts = {
  readonly version: string
  readonly resources: readonly Resource[]
  readonly product?: string
  readonly edition?: string
}

const SWID = 'http://standards.iso.org/iso/19770/-2/2015/schema.xsd'
const DSIG = 'http://www.w3.org/2000/09/xmldsig#'
const C14N = 'http://www.w3.org/2006/12/xml-c14n11'

/** The document without its signature: canonical, and so the bytes whose digest is signed. */
export function manifestText({ version, resources, product = 'GH100', edition = 'GPU' }: ManifestParts): string {
  const lines = resources.map(({ index, values, active = true }) => {
    // Canonical: no namespace first, then by namespace and name.
    const hashes = values.map((value, at) => ` ns2:Hash${at}="${toHex(value)}"`).sort()
    const size = values[0]?.length ?? 0
    return (
      `        <ns0:Resource active="${active ? 'True' : 'False'}" alternatives="${values.length}" index="${index}"` +
      ` name="Measurement_${index}" size="${size}" type="Measurement"${hashes.join('')}></ns0:Resource>\n`
    )
  })
  return (
    `<SoftwareIdentity xmlns="${SWID}" xmlns:ns0="${SWID}" xmlns:ns2="http://www.w3.org/2001/04/xmlenc#sha384"` +
    ` corpus="false" name="SIMULATED" tagId="00" tagVersion="0" version="1.0">\n` +
    `    <ns0:Meta PayloadType="direct" colloquialVersion="${version}" edition="${edition}" product="${product}"></ns0:Meta>\n` +
    `    <ns0:Payload>\n${lines.join('')}    </ns0:Payload>\n</SoftwareIdentity>`
  )
}

const INFO =
  `<ds:CanonicalizationMethod Algorithm="${C14N}"></ds:CanonicalizationMethod>` +
  `<ds:SignatureMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha384"></ds:SignatureMethod>` +
  `<ds:Reference URI=""><ds:Transforms><ds:Transform Algorithm="${DSIG}enveloped-signature"></ds:Transform>` +
  `<ds:Transform Algorithm="${C14N}"></ds:Transform></ds:Transforms>` +
  `<ds:DigestMethod Algorithm="http://www.w3.org/2001/04/xmldsig-more#sha384"></ds:DigestMethod>`

export type SignedParts = {
  readonly text: string
  /** The text whose digest is signed, where it differs. */
  readonly signedText?: string
  readonly info?: string
  readonly certificates?: readonly Uint8Array[]
}

/** The signature element over `text`, by the authorities' signer. */
export async function signatureOf(parts: SignedParts, { rim }: Authorities): Promise<string> {
  const { text, signedText = text, info = INFO } = parts
  const digest = toBase64(sha384(utf8(signedText)))
  const inside = `${info}<ds:DigestValue>${digest}</ds:DigestValue></ds:Reference>`
  // Canonical: with the namespaces of its ancestors.
  const scope = ` xmlns="${SWID}" xmlns:ds="${DSIG}" xmlns:ns0="${SWID}" xmlns:ns2="http://www.w3.org/2001/04/xmlenc#sha384"`
  const canonical = `<ds:SignedInfo${scope}>${inside}</ds:SignedInfo>`
  const value = toBase64(await sign(rim.signer.keys, utf8(canonical)))
  const chain = parts.certificates ?? [rim.signer.der, rim.l3.der, rim.ca.der, rim.root.der]
  const x509 = chain.map(der => `<ds:X509Certificate>${toBase64(der).replace(/.{64}/g, '$&\n')}</ds:X509Certificate>`)
  return (
    `<ds:Signature xmlns:ds="${DSIG}"><ds:SignedInfo>${inside}</ds:SignedInfo>` +
    `<ds:SignatureValue>${value}</ds:SignatureValue>` +
    `<ds:KeyInfo><ds:X509Data>${x509.join('')}</ds:X509Data></ds:KeyInfo></ds:Signature>`
  )
}

const end = '</SoftwareIdentity>'

/** With the signature as the root's last child. */
export function withSignature(text: string, signature: string): string {
  return `${text.slice(0, -end.length)}${signature}${end}`
}

export async function signedManifest(parts: ManifestParts, authorities: Authorities): Promise<Uint8Array> {
  const text = manifestText(parts)
  return utf8(withSignature(text, await signatureOf({ text }, authorities)))
}

export const canonicalInfo = INFO
