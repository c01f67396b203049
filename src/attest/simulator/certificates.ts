// Simulated authorities in the form of AMD's: ARK, ASK, ASVK, VCEK, VLEK and CRLs with AMD's extensions and algorithms,
// under names that contain SIMULATED. Callers pass keys and times; WebCrypto creates only salts and nonces of
// signatures. No default root accepts these certificates. @peculiar/x509 creates them, and the verifier reads them with
// its own DER reader, so neither can hide a mistake of the other.

import type { Product } from '../amd/product.ts'
import type { TrustedRoot } from '../amd/roots.ts'
import type { Tcb } from '../amd/tcb.ts'
import { PRODUCT_NAMES } from '../amd/trusted-roots.ts'
import { HW_ID_BYTES, VEK_OID } from '../amd/vek-extensions.ts'
import { wellFormed } from '../malformed.ts'
import { OID } from '../x509/certificate.ts'
import { loadX509 } from '../x509/runtime.ts'
import { pssSaltBytes } from '../x509/signature.ts'
import type { SimulatedKeys } from './keys.ts'

type Validity = { readonly notBefore: Date; readonly notAfter: Date }

/**
 * Store certificates and keys together: signatures are salted, so the same keys produce different certificates each
 * time.
 */
export type SimulatedAuthority = {
  readonly product: Product
  /** Root in DER, for a relying party that explicitly trusts the simulation. */
  readonly root: SimulatedRoot
  readonly keys: SimulatedKeys
}

export type SimulatedRoot = TrustedRoot & {
  readonly ark: Uint8Array
  readonly ask: Uint8Array
  readonly asvk: Uint8Array
}

/** Prefix of every simulated name. */
export const SIMULATED = 'SIMULATED'

/** Returns a subject that cannot be mistaken for AMD's: another organization, another common name. */
export function simulatedName(role: string): string {
  return `OU=${SIMULATED} - no hardware,O=Strongroom simulator,CN=${SIMULATED}-${role}`
}

/** Serial numbers in hexadecimal. AMD's are 01xxxx to 03xxxx. */
const SERIALS = {
  milan: { ark: '530100', ask: '530101', asvk: '530102' },
  genoa: { ark: '530200', ask: '530201', asvk: '530202' },
  turin: { ark: '530300', ask: '530301', asvk: '530302' },
} as const satisfies Record<Product, Record<'ark' | 'ask' | 'asvk', string>>

/** Creates ARK, ASK and ASVK of one product. */
export async function createSimulatedAuthority(
  product: Product,
  keys: SimulatedKeys,
  validity: Validity,
): Promise<SimulatedAuthority> {
  const names = namesOf(product)
  const authority = (role: 'ark' | 'ask' | 'asvk') =>
    issue({
      serial: SERIALS[product][role],
      subject: names[role],
      issuer: names.ark,
      publicKey: keys[role].publicKey,
      signingKey: keys.ark.privateKey,
      validity,
      extensions: authorityExtensions(role === 'ark'),
    })
  const [ark, ask, asvk] = await Promise.all([authority('ark'), authority('ask'), authority('asvk')])
  return { product, root: { product, ark, ask, asvk }, keys }
}

/**
 * Returns a VCEK in DER. `hwId` is chip_id; Turin certifies its first 8 bytes. `publicKey`: the key of another chip.
 */
export async function issueSimulatedVcek(
  { product, keys }: SimulatedAuthority,
  vcek: { readonly tcb: Tcb; readonly chipId: Uint8Array; readonly validity: Validity; readonly publicKey?: CryptoKey },
): Promise<Uint8Array> {
  wellFormed(vcek.chipId.length === HW_ID_BYTES.long, 'simulated VCEK: chip_id is not 64 bytes')
  const hwId = vcek.chipId.slice(0, product === 'turin' ? HW_ID_BYTES.short : HW_ID_BYTES.long)
  return await issue({
    serial: '01',
    subject: simulatedName('VCEK'),
    issuer: namesOf(product).ask,
    publicKey: vcek.publicKey ?? keys.vcek.publicKey,
    signingKey: keys.ask.privateKey,
    validity: vcek.validity,
    extensions: vekExtensions(product, vcek.tcb, [VEK_OID.hwId, hwId]),
  })
}

/** Returns a VLEK in DER. Real ones are valid for a year. */
export async function issueSimulatedVlek(
  { product, keys }: SimulatedAuthority,
  vlek: { readonly tcb: Tcb; readonly cspId: string; readonly validity: Validity },
): Promise<Uint8Array> {
  return await issue({
    serial: '01',
    subject: simulatedName('VLEK'),
    issuer: namesOf(product).asvk,
    publicKey: keys.vlek.publicKey,
    signingKey: keys.asvk.privateKey,
    validity: vlek.validity,
    extensions: vekExtensions(product, vlek.tcb, [VEK_OID.cspId, ia5(vlek.cspId)]),
  })
}

/** Returns a CRL in DER, signed by the ARK. `revoked`: serial numbers in hexadecimal, as decoded by this library. */
export async function issueSimulatedCrl(
  { product, keys }: SimulatedAuthority,
  crl: {
    readonly thisUpdate: Date
    readonly nextUpdate: Date
    readonly revoked: readonly { readonly serial: string; readonly at: Date }[]
  },
): Promise<Uint8Array> {
  const x509 = await loadX509()
  const made = await x509.X509CrlGenerator.create(
    {
      issuer: namesOf(product).ark,
      thisUpdate: crl.thisUpdate,
      nextUpdate: crl.nextUpdate,
      entries: crl.revoked.map(({ serial, at }) => ({
        serialNumber: serial,
        revocationDate: at,
        // Without a reason, the library writes an empty list of extensions, which RFC 5280 forbids.
        reason: x509.X509CrlReason.cACompromise,
      })),
      signingAlgorithm,
      signingKey: keys.ark.privateKey,
    },
    crypto as unknown as Parameters<typeof x509.X509CrlGenerator.create>[1],
  )
  return new Uint8Array(made.rawData)
}

const signingAlgorithm = { name: 'RSA-PSS', hash: 'SHA-384', saltLength: pssSaltBytes }

type RawExtension = { readonly oid: string; readonly critical: boolean; readonly value: Uint8Array }

type Issue = {
  readonly serial: string
  readonly subject: string
  readonly issuer: string
  readonly publicKey: CryptoKey
  readonly signingKey: CryptoKey
  readonly validity: Validity
  readonly extensions: readonly RawExtension[]
}

async function issue(wanted: Issue): Promise<Uint8Array> {
  const x509 = await loadX509()
  const made = await x509.X509CertificateGenerator.create(
    {
      serialNumber: wanted.serial,
      subject: wanted.subject,
      issuer: wanted.issuer,
      notBefore: wanted.validity.notBefore,
      notAfter: wanted.validity.notAfter,
      publicKey: wanted.publicKey,
      signingKey: wanted.signingKey,
      signingAlgorithm,
      extensions: wanted.extensions.map(
        ({ oid, critical, value }) => new x509.Extension(oid, critical, new Uint8Array(value)),
      ),
    },
    crypto as unknown as Parameters<typeof x509.X509CertificateGenerator.create>[1],
  )
  return new Uint8Array(made.rawData)
}

function namesOf(product: Product): Record<'ark' | 'ask' | 'asvk', string> {
  const [line] = PRODUCT_NAMES[product]
  return {
    ark: simulatedName(`ARK-${line}`),
    ask: simulatedName(`SEV-${line}`),
    asvk: simulatedName(`SEV-VLEK-${line}`),
  }
}

/**
 * Returns DER values as in AMD's own: CA (intermediates: path length 0), certificate signing, and CRL signing for the
 * ARK.
 */
function authorityExtensions(isRoot: boolean): RawExtension[] {
  const constraints = isRoot ? [0x30, 3, 1, 1, 0xff] : [0x30, 6, 1, 1, 0xff, 2, 1, 0]
  const usage = isRoot ? [3, 2, 1, 0x06] : [3, 2, 2, 0x04]
  return [
    { oid: OID.basicConstraints, critical: true, value: Uint8Array.from(constraints) },
    { oid: OID.keyUsage, critical: true, value: Uint8Array.from(usage) },
  ]
}

function vekExtensions(product: Product, tcb: Tcb, holder: readonly [oid: string, value: Uint8Array]): RawExtension[] {
  wellFormed((tcb.fmc === null) === (product !== 'turin'), `simulated VEK: fmc does not fit ${product}`)
  const levels: (readonly [oid: string, level: number])[] = [
    ...(tcb.fmc === null ? [] : [[VEK_OID.fmc, tcb.fmc] as const]),
    [VEK_OID.bootloader, tcb.bootloader],
    [VEK_OID.tee, tcb.tee],
    [VEK_OID.snp, tcb.snp],
    [VEK_OID.reserved5, 0],
    [VEK_OID.reserved6, 0],
    [VEK_OID.reserved7, 0],
    [VEK_OID.microcode, tcb.microcode],
  ]
  const values: (readonly [oid: string, value: Uint8Array])[] = [
    [VEK_OID.structVersion, integer(product === 'turin' ? 1 : 0)],
    [VEK_OID.productName, ia5(PRODUCT_NAMES[product][0])],
    ...levels.map(([oid, level]) => [oid, integer(level)] as const),
    holder,
  ]
  return values.map(([oid, value]) => ({ oid, critical: false, value }))
}

/** Encodes a DER INTEGER of one unsigned byte. */
function integer(value: number): Uint8Array {
  wellFormed(Number.isInteger(value) && value >= 0 && value <= 255, `simulated VEK: ${value} is not 0 to 255`)
  return Uint8Array.from(value < 0x80 ? [2, 1, value] : [2, 2, 0, value])
}

/** Encodes a DER IA5String of at most 127 characters. */
function ia5(text: string): Uint8Array {
  wellFormed(text.length < 0x80 && /^[\x20-\x7e]*$/.test(text), 'simulated VEK: not a short ASCII text')
  return Uint8Array.from([0x16, text.length, ...Array.from(text, char => char.charCodeAt(0))])
}
