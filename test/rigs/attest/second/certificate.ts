// AMD's certificates and revocation lists for the second implementation (AMD 57230). Pure.

import { constants, createPublicKey, verify } from 'node:crypto'
import { type Extension, extensionsOf, hexOf, nodes, type Signed, signedOf, timeOf } from './der.ts'

export type Certificate = Signed & {
  readonly der: Uint8Array
  readonly serial: string
  /** Hexadecimal of the DER. */
  readonly issuer: string
  readonly subject: string
  readonly notBefore: number
  readonly notAfter: number
  readonly spki: Uint8Array
  readonly extensions: ReadonlyMap<string, Extension>
}

/** Certificates that were read before. A cache of the same bytes changes no result. */
const read = new WeakMap<Uint8Array, Certificate | null>()

export function readCertificate(der: Uint8Array): Certificate | null {
  const known = read.get(der)
  if (known !== undefined) return known
  const made = certificateOf(der)
  read.set(der, made)
  return made
}

function certificateOf(der: Uint8Array): Certificate | null {
  const signed = signedOf(der, 2)
  if (signed === null) return null
  const [version, serial, , issuer, validity, subject, spki, ...more] = signed.fields
  const [notBefore, notAfter] = nodes(validity?.body ?? new Uint8Array(0)) ?? []
  const wrapped = more.find(({ tag }) => tag === 0xa3)
  const extensions = extensionsOf(nodes(wrapped?.body ?? new Uint8Array(0))?.[0])
  const times = [timeOf(notBefore), timeOf(notAfter)] as const
  if (version === undefined || hexOf(version.body) !== '020102' || serial === undefined || extensions === null)
    return null
  if (issuer === undefined || subject === undefined || spki === undefined) return null
  if (times[0] === null || times[1] === null) return null
  return {
    ...signed,
    der,
    serial: hexOf(serial.body),
    issuer: hexOf(issuer.whole),
    subject: hexOf(subject.whole),
    notBefore: times[0],
    notAfter: times[1],
    spki: spki.whole,
    extensions,
  }
}

const judged = new WeakMap<Signed, WeakMap<Certificate, boolean>>()

export function isSignedBy(signed: Signed, issuer: Certificate): boolean {
  const known = judged.get(signed)?.get(issuer)
  if (known !== undefined) return known
  const found = isSignatureOf(signed, issuer)
  const ofSigned = judged.get(signed) ?? new WeakMap<Certificate, boolean>()
  judged.set(signed, ofSigned.set(issuer, found))
  return found
}

function isSignatureOf({ tbs, signature, isPss }: Signed, issuer: Certificate): boolean {
  if (!isPss) return false
  const key = createPublicKey({ key: Buffer.from(issuer.spki), format: 'der', type: 'spki' })
  if (key.asymmetricKeyType !== 'rsa') return false
  return verify('sha384', tbs, { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 48 }, signature)
}

const basicConstraints = '551d13'
const keyUsage = '551d0f'

/** May sign certificates (bit 5 of key usage), and revocation lists (bit 6). */
export function rightsOf({ extensions }: Certificate): { ca: boolean; certSign: boolean; crlSign: boolean } {
  const constraints = nodes(extensions.get(basicConstraints)?.value ?? new Uint8Array(0))?.[0]
  const ca = (nodes(constraints?.body ?? new Uint8Array(0)) ?? [])[0]
  const usage = nodes(extensions.get(keyUsage)?.value ?? new Uint8Array(0))?.[0]?.body[1] ?? 0
  return {
    ca: ca?.tag === 0x01 && ca.body[0] === 0xff,
    certSign: (usage & 0x04) !== 0,
    crlSign: (usage & 0x02) !== 0,
  }
}

export function hasUnknownCritical(extensions: ReadonlyMap<string, Extension>, known: readonly string[]): boolean {
  return [...extensions].some(([oid, { critical }]) => critical && !known.includes(oid))
}

export const understood = [basicConstraints, keyUsage]

/** 1.3.6.1.4.1.3704.1 */
const arc = '2b060104019c7801'

export type Vek = {
  readonly kind: 'vcek' | 'vlek'
  readonly product: string
  /** By component; Turin alone has `fmc`. */
  readonly spl: Readonly<Record<string, number>>
  readonly hwId: Uint8Array | null
  readonly cspId: string | null
}

const LEVELS = { bootloader: '0301', tee: '0302', snp: '0303', microcode: '0308', fmc: '0309' } as const
const reservedLevels = ['0304', '0305', '0306', '0307']

/** Null for a certificate that is no VCEK and no VLEK. */
export function vekOf({ extensions }: Certificate): Vek | null {
  const value = (id: string) => extensions.get(arc + id)?.value ?? null
  const level = (id: string) => numberOf(value(id))
  const spl: Record<string, number> = {}
  for (const [name, id] of Object.entries(LEVELS)) {
    const found = level(id)
    if (found === null && (name !== 'fmc' || value(id) !== null)) return null
    if (found !== null) spl[name] = found
  }
  if (reservedLevels.some(id => value(id) !== null && level(id) !== 0)) return null
  const version = level('01')
  if (version !== 0 && version !== 1) return null
  const product = decodeIa5(value('02'))
  const hwId = value('04')
  const cspId = value('05')
  if (product === null || (hwId === null) === (cspId === null)) return null
  if (hwId !== null) {
    return hwId.length === 64 || hwId.length === 8 ? { kind: 'vcek', product, spl, hwId, cspId: null } : null
  }
  const provider = decodeIa5(cspId)
  return provider === null ? null : { kind: 'vlek', product, spl, hwId: null, cspId: provider }
}

/** A DER INTEGER of one unsigned byte. */
function numberOf(der: Uint8Array | null): number | null {
  const text = der === null ? '' : hexOf(der)
  const [, plain, padded] = /^(?:0201([0-7][0-9a-f])|020200([89a-f][0-9a-f]))$/.exec(text) ?? []
  const digits = plain ?? padded
  return digits === undefined ? null : Number.parseInt(digits, 16)
}

/** A DER IA5String. */
function decodeIa5(der: Uint8Array | null): string | null {
  const [node, ...more] = (der === null ? null : nodes(der)) ?? []
  return node?.tag === 0x16 && more.length === 0 ? new TextDecoder().decode(node.body) : null
}

export type Crl = Signed & {
  readonly issuer: string
  readonly thisUpdate: number
  readonly nextUpdate: number | null
  readonly revoked: readonly string[]
  readonly extensions: ReadonlyMap<string, Extension>
}

const readLists = new WeakMap<Uint8Array, Crl | null>()

export function readCrl(der: Uint8Array): Crl | null {
  const known = readLists.get(der)
  if (known !== undefined) return known
  const made = crlOf(der)
  readLists.set(der, made)
  return made
}

function crlOf(der: Uint8Array): Crl | null {
  const signed = signedOf(der, 1)
  if (signed === null) return null
  const [version, , issuer, thisUpdate, ...rest] = signed.fields
  const next = rest.find(({ tag }) => tag === 0x17 || tag === 0x18)
  const entries = rest.find(({ tag }) => tag === 0x30)
  const wrapped = rest.find(({ tag }) => tag === 0xa0)
  const issued = timeOf(thisUpdate)
  const extensions = extensionsOf(nodes(wrapped?.body ?? new Uint8Array(0))?.[0])
  if (version === undefined || hexOf(version.whole) !== '020101') return null
  if (issuer === undefined || issued === null || extensions === null) return null
  const serials = (nodes(entries?.body ?? new Uint8Array(0)) ?? []).map(({ body }) => nodes(body)?.[0]?.body)
  return {
    ...signed,
    issuer: hexOf(issuer.whole),
    thisUpdate: issued,
    nextUpdate: next === undefined ? null : timeOf(next),
    revoked: serials.map(serial => hexOf(serial ?? new Uint8Array(0))),
    extensions,
  }
}
