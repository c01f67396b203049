// Whether the system's trust store may have the authority that a claim brings, and the store with it. Pure.
//
// The host that sends a claim may be hostile, and every TLS connection of the VM passes it: an authority that could sign for any name would
// let it read them all. So this one must be held, by critical name constraints, to the domain that the instance's attested host name is in.
// Addresses are not constrained (see http/authority.ts): whoever has its key can pass as the server of any https://ADDRESS/.

import { asciiOf, DerFields, readAll, readSequence, TAG } from '../attest/encoding/der.ts'
import { derBlocks } from '../attest/encoding/pem.ts'
import { Malformed } from '../attest/malformed.ts'
import { decodeCertificate } from '../attest/x509/certificate.ts'
import type { Claim } from '../contract/agent.ts'

/** Whether every certificate of the claim's authority can sign for names of the appliance's domain, and for no other DNS name. */
export function isHeldToDomain({ inference, hostname, name, organization }: Claim): boolean {
  const own = `${name}.${organization}.`
  if (inference.ca === null || !hostname.startsWith(own)) return false
  const domain = hostname.slice(own.length).toLowerCase()
  try {
    const names = derBlocks(inference.ca, 'CERTIFICATE', 'claim.inference.ca').flatMap(permittedNames)
    return domain !== '' && names.every(name => name === 'localhost' || name === domain || name.endsWith(`.${domain}`))
  } catch (error) {
    if (error instanceof Malformed) return false
    throw error
  }
}

/** RFC 5280 4.2.1.10. */
const nameConstraints = '2.5.29.30'
/** GeneralName, IMPLICIT: a dNSName is an IA5String. */
const dnsNameTag = 0x82

/** The DNS names of the permitted subtrees. Malformed where there is none: then all names are permitted. */
function permittedNames(der: Uint8Array): string[] {
  const what = 'name constraints'
  const extension = decodeCertificate(der).extensions.get(nameConstraints)
  if (extension === undefined || !extension.critical) throw new Malformed(`${what}: none that are critical`)
  const fields = new DerFields(readSequence(extension.value, what), what)
  const subtrees = readAll(fields.take(TAG.context0, 'permitted subtrees').contents, what)
  fields.optional(TAG.context1)
  fields.end()
  const names = subtrees.map(subtree => {
    const base = new DerFields(readSequence(subtree.whole, what), what)
    const name = asciiOf(base.take(dnsNameTag, 'DNS name').contents, what).toLowerCase()
    base.end()
    return name
  })
  if (names.length === 0) throw new Malformed(`${what}: no permitted DNS name`)
  return names
}

const mark = '# Authority of the inference gateway, from the claim\n'

/** The bundle with this authority at its end, in the place of an earlier claim's. */
export function bundleWith(bundle: string, ca: string): string {
  return `${bundleWithout(bundle)}${mark}${ca}`
}

/** The bundle as the image has it. */
export function bundleWithout(bundle: string): string {
  return bundle.split(mark, 1)[0] ?? ''
}
