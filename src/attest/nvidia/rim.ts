// NVIDIA's reference integrity manifests: the measurements that a driver or a VBIOS must have. Pure; throws Malformed.
//
// SWID tags (ISO/IEC 19770-2:2015) in the profile of TCG's Reference Integrity Manifest Information Model 1.01, with an
// XML signature. The caller parses the XML: this library needs only `SignedXml`, so it includes no XML parser.

import { fromHex } from '../../base/bytes.ts'
import { wellFormed } from '../malformed.ts'

/** An element of the canonical form that a signature covers. Text is omitted, because manifests contain none. */
export type XmlElement = {
  readonly namespace: string
  readonly name: string
  /** Unqualified names unchanged, qualified ones as `{namespace}name`. Namespace declarations are omitted. */
  readonly attributes: ReadonlyMap<string, string>
  readonly children: readonly XmlElement[]
}

/** A document with one enveloped signature that covers all of it. */
export type SignedXml = {
  /** Certificates in DER, from the signer upwards. */
  readonly certificates: readonly Uint8Array[]
  /**
   * Returns the document's root, read from exactly the bytes whose digest is signed. Throws Malformed unless `isSigned`
   * accepts the canonical SignedInfo and its signature (R and S), and the digest matches the document.
   */
  readonly verify: (isSigned: (bytes: Uint8Array, signature: Uint8Array) => boolean) => XmlElement
}

/** Reads a signed document. Throws Malformed for any other. */
export type ReadSignedXml = (bytes: Uint8Array) => SignedXml

export type Golden = {
  /** Allowed values of the measurement. */
  readonly values: readonly Uint8Array[]
  readonly name: string
}

export type Rim = {
  /** `switch`: the BIOS of an NVSwitch, which has no other manifest. */
  readonly kind: 'driver' | 'vbios' | 'switch'
  readonly version: string
  /** Chip name, such as GH100. */
  readonly product: string
  /** Active measurements by index; the others have no meaning. */
  readonly golden: ReadonlyMap<number, Golden>
}

/** Size limit. Real manifests have 21 KiB. */
export const rimBytesMax = 256 * 1024

const SWID = 'http://standards.iso.org/iso/19770/-2/2015/schema.xsd'
const SHA384 = 'http://www.w3.org/2001/04/xmlenc#sha384'
const resourcesMax = 256
const alternativesMax = 64

/** Version patterns of drivers (550.90.07) and VBIOSes (96.00.9F.00.01). Only the version shows which a GPU's is. */
const VERSIONS = {
  driver: /^[0-9]{3}(?:\.[0-9]{1,4}){1,3}$/,
  vbios: /^[0-9A-F]{2}(?:\.[0-9A-F]{2}){4}$/,
} as const

export function decodeRim(root: XmlElement): Rim {
  wellFormed(root.namespace === SWID && root.name === 'SoftwareIdentity', 'RIM: not a SWID tag')
  const meta = only(root, 'Meta')
  const edition = attribute(meta, 'edition')
  const isSwitch = edition === 'SWITCH'
  wellFormed(isSwitch || edition === 'GPU', `RIM: for a ${edition.slice(0, 32)}, neither a GPU nor a switch`)
  const product = attribute(meta, 'product')
  wellFormed((isSwitch ? /^LS10$/ : /^G[A-Z0-9]{2,15}$/).test(product), 'RIM: no name of a chip as product')
  const version = attribute(meta, 'colloquialVersion').toUpperCase()
  const isVbios = VERSIONS.vbios.test(version)
  wellFormed(isVbios || (!isSwitch && VERSIONS.driver.test(version)), 'RIM: a version of no driver, VBIOS or switch')
  const kind = isSwitch ? 'switch' : isVbios ? 'vbios' : 'driver'
  const golden = goldenOf(only(root, 'Payload'))
  wellFormed(golden.size > 0, 'RIM: no measurement in it is active')
  return { kind, version, product, golden }
}

function goldenOf(payload: XmlElement): ReadonlyMap<number, Golden> {
  const { children } = payload
  wellFormed(children.length <= resourcesMax, `RIM: ${children.length} measurements, at most ${resourcesMax}`)
  const seen = new Set<number>()
  const golden = new Map<number, Golden>()
  for (const resource of children) {
    const isResource = resource.namespace === SWID && resource.name === 'Resource'
    wellFormed(isResource && attribute(resource, 'type') === 'Measurement', 'RIM: something else than measurements')
    const index = numberOf(resource, 'index', resourcesMax - 1)
    wellFormed(!seen.has(index), `RIM: measurement ${index} twice`)
    seen.add(index)
    const active = attribute(resource, 'active')
    wellFormed(active === 'True' || active === 'False', `RIM: measurement ${index} is neither active nor not`)
    const measured = { values: valuesOf(resource, index), name: attribute(resource, 'name').slice(0, 128) }
    if (active === 'True') golden.set(index, measured)
  }
  return golden
}

function valuesOf(resource: XmlElement, index: number): readonly Uint8Array[] {
  const count = numberOf(resource, 'alternatives', alternativesMax)
  const sizeBytes = numberOf(resource, 'size', 1024)
  const hashes = [...resource.attributes.keys()].filter(name => name.startsWith(`{${SHA384}}Hash`))
  wellFormed(
    count >= 1 && hashes.length === count,
    `RIM: measurement ${index} has ${hashes.length} values, not ${count}`,
  )
  return Array.from({ length: count }, (_, at) => {
    const value = fromHex(attribute(resource, `{${SHA384}}Hash${at}`))
    wellFormed(value?.length === sizeBytes && sizeBytes > 0, `RIM: measurement ${index}: not ${sizeBytes} bytes in hex`)
    return value
  })
}

function only(parent: XmlElement, name: string): XmlElement {
  const [found, ...more] = parent.children.filter(child => child.namespace === SWID && child.name === name)
  wellFormed(found !== undefined && more.length === 0, `RIM: not exactly one ${name}`)
  return found
}

function attribute({ attributes, name: element }: XmlElement, name: string): string {
  const value = attributes.get(name)
  wellFormed(value !== undefined, `RIM: ${element} without ${name}`)
  return value
}

function numberOf(element: XmlElement, name: string, max: number): number {
  const text = attribute(element, name)
  wellFormed(/^(?:0|[1-9][0-9]{0,4})$/.test(text) && Number(text) <= max, `RIM: ${name} is not a number up to ${max}`)
  return Number(text)
}
