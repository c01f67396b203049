// Whether the system's trust store may have the authority that a claim brings, and the store with it. Pure.
//
// The host that sends a claim may be hostile, and every TLS connection of the VM passes it: an authority that could sign for any name would
// let it read them all. So this one must be held, by critical name constraints, to the one name of the gateway, which exists in instances
// alone, and every address must be excluded.

import { asciiOf, DerFields, readAll, readSequence, TAG } from '../attest/encoding/der.ts'
import { derBlocks } from '../attest/encoding/pem.ts'
import { Malformed } from '../attest/malformed.ts'
import { decodeCertificate } from '../attest/x509/certificate.ts'
import { toHex } from '../base/bytes.ts'
import { type Claim, guestGatewayName } from '../contract/agent.ts'
import type { InferenceGateway } from '../contract/inference-gateway.ts'

/** PEM of the authority that vouches for the connection, where no evidence does. */
export function authorityOf(gateway: InferenceGateway): string | null {
  return gateway.kind === 'unattested' ? gateway.ca : null
}

/** Whether every certificate of the claim's authority can sign for the name of the gateway, for no other DNS name, and for no address. */
export function isHeldToGateway({ inference }: Pick<Claim, 'inference'>): boolean {
  const ca = authorityOf(inference.gateway)
  if (ca === null) return false
  try {
    const all = derBlocks(ca, 'CERTIFICATE', 'claim.inference.ca').map(constraintsOf)
    return all.every(
      ({ permitted, excluded }) =>
        permitted.every(name => name === guestGatewayName) && everyAddress.every(address => excluded.includes(address)),
    )
  } catch (error) {
    if (error instanceof Malformed) return false
    throw error
  }
}

/** Address and mask of 0.0.0.0/0 and ::/0. */
const everyAddress = ['00'.repeat(8), '00'.repeat(32)]

/** RFC 5280 4.2.1.10. */
const nameConstraints = '2.5.29.30'
/** GeneralName, IMPLICIT: a dNSName is an IA5String, an iPAddress an OCTET STRING. */
const dnsNameTag = 0x82
const addressTag = 0x87

/** DNS names of the permitted subtrees, addresses of the excluded ones in hexadecimal. Malformed where something else, or nothing, is permitted. */
function constraintsOf(der: Uint8Array): { permitted: string[]; excluded: string[] } {
  const extension = decodeCertificate(der).extensions.get(nameConstraints)
  if (extension === undefined || !extension.critical) throw new Malformed(`${what}: none that are critical`)
  const fields = new DerFields(readSequence(extension.value, what), what)
  const permitted = fields.take(TAG.context0, 'permitted subtrees')
  const excluded = fields.optional(TAG.context1)
  fields.end()
  const names = basesOf(permitted.contents, dnsNameTag).map(base => asciiOf(base, what).toLowerCase())
  if (names.length === 0) throw new Malformed(`${what}: no permitted DNS name`)
  return {
    permitted: names,
    excluded: excluded === null ? [] : basesOf(excluded.contents, addressTag).map(base => toHex(base)),
  }
}

const what = 'name constraints'

function basesOf(subtrees: Uint8Array, tag: number): Uint8Array[] {
  return readAll(subtrees, what).map(subtree => {
    const base = new DerFields(readSequence(subtree.whole, what), what)
    const { contents } = base.take(tag, 'name')
    base.end()
    return contents
  })
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
