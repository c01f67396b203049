// SIMULATED authorities in the form of NVIDIA's: P-384 keys, ECDSA with SHA-384, five certificates of a GPU and four of
// a manifest's signer. @peculiar/x509 makes the certificates; no default root accepts them.

import { loadX509 } from '../../../../src/attest/x509/runtime.ts'
import { ascii, octets, oid, seq, tlv } from './der.ts'

export type Holder = {
  readonly der: Uint8Array
  readonly keys: CryptoKeyPair
  readonly name: string
}

export type Extension = { readonly oid: string; readonly critical: boolean; readonly value: Uint8Array }

const algorithm = { name: 'ECDSA', namedCurve: 'P-384' }
export const signing = { name: 'ECDSA', hash: 'SHA-384' }

/** Validity of all certificates, unless one says otherwise. */
export const VALID = { from: Date.parse('2025-01-01T00:00:00Z'), to: Date.parse('2035-01-01T00:00:00Z') }

export async function sign(keys: CryptoKeyPair, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.sign(signing, keys.privateKey, new Uint8Array(bytes)))
}

export type Issue = {
  readonly name: string
  readonly serial: string
  /** Null if self-signed. */
  readonly issuer: Holder | null
  readonly extensions: readonly Extension[]
  readonly from?: number
  readonly to?: number
}

export async function issue({ name, serial, issuer, extensions, from, to }: Issue): Promise<Holder> {
  const x509 = await loadX509()
  const keys = (await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])) as CryptoKeyPair
  const made = await x509.X509CertificateGenerator.create({
    serialNumber: serial,
    subject: `CN=${name}, O=Strongroom simulator`,
    issuer: `CN=${issuer?.name ?? name}, O=Strongroom simulator`,
    notBefore: new Date(from ?? VALID.from),
    notAfter: new Date(to ?? VALID.to),
    publicKey: keys.publicKey,
    signingKey: issuer?.keys.privateKey ?? keys.privateKey,
    signingAlgorithm: signing,
    extensions: extensions.map(
      ({ oid: id, critical, value }) => new x509.Extension(id, critical, new Uint8Array(value)),
    ),
  })
  return { der: new Uint8Array(made.rawData), keys, name }
}

/** `below`: how many authorities may stand under it; null means no limit. */
export function authority(below: number | null = null): readonly Extension[] {
  const constraints = [tlv(0x01, Uint8Array.of(0xff)), ...(below === null ? [] : [tlv(0x02, Uint8Array.of(below))])]
  return [
    { oid: '2.5.29.19', critical: true, value: seq(...constraints) },
    { oid: '2.5.29.15', critical: true, value: tlv(0x03, Uint8Array.of(1, 0x06)) },
  ]
}

/** Hopper's form of the firmware's identity. */
export function compositeDeviceId(fwid: Uint8Array): Extension {
  const key = seq(seq(oid('1.2.840.10045.2.1'), oid('1.3.132.0.34')), tlv(0x03, new Uint8Array(98)))
  const value = seq(tlv(0x02, Uint8Array.of(1)), key, digestOf(fwid))
  return { oid: '2.23.133.5.4.1', critical: false, value }
}

/** Blackwell's, with the first byte of its flags. */
export function tcbInfo(fwid: Uint8Array, flags = 0x80): Extension {
  const value = seq(
    ascii(0x80, 'NVIDIA'),
    ascii(0x81, 'GB100 A01 GSP'),
    ascii(0x82, '01'),
    tlv(0x83, Uint8Array.of(1)),
    tlv(0xa6, digestOf(fwid), digestOf(new Uint8Array(48))),
    tlv(0x87, Uint8Array.of(0, flags, 0, 0, 1)),
  )
  return { oid: '2.23.133.5.4.1.1', critical: false, value }
}

function digestOf(fwid: Uint8Array): Uint8Array {
  return seq(oid('2.16.840.1.101.3.4.2.2'), octets(fwid))
}

export type Authorities = {
  readonly device: {
    readonly root: Holder
    readonly identity: Holder
    readonly provisioner: Holder
    readonly brom: Holder
    readonly leaf: Holder
  }
  readonly rim: { readonly root: Holder; readonly ca: Holder; readonly l3: Holder; readonly signer: Holder }
}

/** One GPU of this chip, whose leaf has `firmware`, and a signer of manifests. */
export async function makeAuthorities(chip: string, firmware: Extension): Promise<Authorities> {
  const usage: Extension = { oid: '2.5.29.15', critical: true, value: tlv(0x03, Uint8Array.of(7, 0x80)) }
  const root = await issue({
    name: 'SIMULATED Device Identity CA',
    serial: '01',
    issuer: null,
    extensions: authority(),
  })
  const identity = await issue({
    name: `SIMULATED ${chip} Identity`,
    serial: '02',
    issuer: root,
    extensions: authority(),
  })
  const provisioner = await issue({
    name: `SIMULATED ${chip} Provisioner ICA 1`,
    serial: '03',
    issuer: identity,
    extensions: authority(),
  })
  const brom = await issue({
    name: `SIMULATED ${chip} A01 GSP BROM`,
    serial: '41E23D711E1C4FBFAC',
    issuer: provisioner,
    extensions: authority(),
  })
  const leaf = await issue({
    name: `SIMULATED ${chip} A01 GSP FMC LF`,
    serial: '53C22BA15E5D68088282DA074ED9FB37AA585771',
    issuer: brom,
    extensions: [usage, firmware],
  })
  const rimRoot = await issue({
    name: 'SIMULATED CoRIM signing Root CA',
    serial: '11',
    issuer: null,
    extensions: authority(),
  })
  const ca = await issue({
    name: 'SIMULATED Reference Value CA',
    serial: '12',
    issuer: rimRoot,
    extensions: authority(),
  })
  const l3 = await issue({ name: 'SIMULATED Reference Value L3', serial: '13', issuer: ca, extensions: authority(0) })
  const signer = await issue({
    name: 'SIMULATED RIM L4 Signer',
    serial: '14',
    issuer: l3,
    extensions: [{ oid: '2.5.29.19', critical: true, value: seq() }, usage],
  })
  return { device: { root, identity, provisioner, brom, leaf }, rim: { root: rimRoot, ca, l3, signer } }
}
