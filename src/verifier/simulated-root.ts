// A simulated platform's root, for relying parties that choose to trust it: ARK, ASK and, for VLEKs, ASVK in one PEM
// file. Pure; throws Malformed.

import type { Product } from '../attest/amd/product.ts'
import { AMD_NAMES, type TrustedRoot } from '../attest/amd/roots.ts'
import { productOfName } from '../attest/amd/trusted-roots.ts'
import { derBlocks } from '../attest/encoding/pem.ts'
import { wellFormed } from '../attest/malformed.ts'
import { type Certificate, commonNameOf, decodeCertificate, isSame } from '../attest/x509/certificate.ts'

/**
 * Reads a root. The ARK is self-issued, and its name ends with a product. The name of the ASVK, needed only for VLEKs,
 * contains VLEK.
 */
export function readSimulatedRoot(pem: Uint8Array): TrustedRoot {
  const certificates = derBlocks(pem, 'CERTIFICATE', 'simulated root').map(decodeCertificate)
  const ark = only(certificates.filter(isSelfIssued), 'ARK, which is issued by itself,')
  const others = certificates.filter(certificate => certificate !== ark)
  const [asvk = null, ...more] = others.filter(isVlekIssuer)
  wellFormed(more.length === 0, 'simulated root: more than one ASVK (a name with VLEK) in it')
  const ask = only(
    others.filter(other => other !== asvk),
    'ASK',
  )
  const name = commonNameOf(ark.subject)
  const product = productOfArkName(name)
  wellFormed(product !== null, `simulated root: the ARK's name ${JSON.stringify(name)} ends with no product`)
  for (const certificate of certificates) {
    wellFormed(
      !bearsNameOfAmd(certificate),
      `simulated root: ${commonNameOf(certificate.subject)} is a name of AMD's; ${ownNames}`,
    )
  }
  return { product, ark: ark.der, ask: ask.der, asvk: asvk?.der ?? null }
}

const ownNames = "AMD's roots are trusted without this file, and a simulation has to bear names of its own"

/** Reports whether a certificate has a name of AMD's, with which it would pass for AMD's if only names are shown. */
function bearsNameOfAmd({ subject }: Certificate): boolean {
  return AMD_NAMES.includes(commonNameOf(subject))
}

function productOfArkName(name: string): Product | null {
  return productOfName(name.split('-').at(-1) ?? '')
}

function isSelfIssued({ subject, issuer }: Certificate): boolean {
  return isSame(subject, issuer)
}

function isVlekIssuer({ subject }: Certificate): boolean {
  return commonNameOf(subject).includes('VLEK')
}

function only(found: readonly Certificate[], what: string): Certificate {
  const [certificate, ...more] = found
  wellFormed(certificate !== undefined && more.length === 0, `simulated root: not exactly one ${what} in it`)
  return certificate
}
