// A SIMULATED TDX platform: its certificates, collateral and quotes, under a root that no verifier trusts by itself. No
// hardware vouches for any of it. @peculiar/x509 makes the certificates, which the verifier reads with its own reader.

import { layoutBytes, writeRecord } from '../../../../src/attest/encoding/layout.ts'
import { toPem } from '../../../../src/attest/encoding/pem.ts'
import type { TdxRoot } from '../../../../src/attest/tdx/chain.ts'
import type { Collateral } from '../../../../src/attest/tdx/collateral.ts'
import { SGX_OID } from '../../../../src/attest/tdx/pck-extension.ts'
import {
  ENCLAVE_REPORT,
  type EnclaveReport,
  INTEL_QE_VENDOR,
  KEY_TYPE_P256,
  type QuoteHeader,
  type TdReport,
  TEE_TDX,
} from '../../../../src/attest/tdx/quote.ts'
import { OID } from '../../../../src/attest/x509/certificate.ts'
import { loadX509 } from '../../../../src/attest/x509/runtime.ts'
import { concat, fromHex, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { encodeSigned } from './encode-signed.ts'

export const SIMULATED_SGX = 'SIMULATED SGX'

const algorithm = { name: 'ECDSA', namedCurve: 'P-256' }
const signing = { name: 'ECDSA', hash: 'SHA-256' }
const dayMs = 86_400_000

export type PckFields = {
  readonly components: readonly number[]
  readonly pceSvn: number
  readonly fmspc: Uint8Array
  readonly pceId: Uint8Array
  readonly ppid: Uint8Array
  readonly serial: string
}

export type Issued = { readonly der: Uint8Array; readonly keys: CryptoKeyPair }

export type SimulatedTdx = {
  readonly root: TdxRoot
  readonly rootDer: Uint8Array
  readonly nowMs: number
  readonly authority: Issued
  readonly signer: Issued
  readonly attestation: CryptoKeyPair
  readonly keys: Readonly<Record<'root' | 'stranger', CryptoKeyPair>>
  readonly pck: (fields: PckFields, name?: string) => Promise<Issued>
  readonly crl: (by: 'root' | 'authority' | 'stranger', options?: CrlOptions) => Promise<Uint8Array>
}

export type CrlOptions = { readonly revoked?: readonly string[]; readonly fromMs?: number; readonly untilMs?: number }

export async function newKeys(): Promise<CryptoKeyPair> {
  return await crypto.subtle.generateKey(algorithm, true, ['sign', 'verify'])
}

/** Everything is valid from a day before `nowMs` to 30 days after it. */
export async function simulateTdx(nowMs: number): Promise<SimulatedTdx> {
  const [root, authority, signer, attestation, stranger] = await Promise.all(Array.from({ length: 5 }, newKeys))
  if (!root || !authority || !signer || !attestation || !stranger) throw new Error('five pairs of keys')
  const name = (role: string) => `CN=${SIMULATED_SGX} ${role},O=Strongroom simulator`
  const rootDer = await issue(
    { subject: name('Root CA'), issuer: name('Root CA'), serial: '01', ca: 1, nowMs },
    root,
    root,
  )
  const issued = async (role: string, serial: string, ca: number | null, keys: CryptoKeyPair) => ({
    der: await issue({ subject: name(role), issuer: name('Root CA'), serial, ca, nowMs }, keys, root),
    keys,
  })
  return {
    root: { certificate: rootDer, names: SIMULATED_SGX, simulated: true },
    rootDer,
    nowMs,
    authority: await issued('PCK Platform CA', '02', 0, authority),
    signer: await issued('TCB Signing', '03', null, signer),
    attestation,
    keys: { root, stranger },
    pck: async (fields, subject = name('PCK Certificate')) => {
      const keys = await newKeys()
      const wanted = { subject, issuer: name('PCK Platform CA'), serial: fields.serial, ca: null, nowMs }
      const extension = { oid: SGX_OID.extension, critical: false, value: sgxExtension(fields) }
      return { der: await issue({ ...wanted, extension }, keys, authority), keys }
    },
    crl: async (by, { revoked = [], fromMs = nowMs - dayMs, untilMs = nowMs + 30 * dayMs } = {}) => {
      const x509 = await loadX509()
      const made = await x509.X509CrlGenerator.create(
        {
          issuer: name(by === 'authority' ? 'PCK Platform CA' : 'Root CA'),
          thisUpdate: new Date(fromMs),
          nextUpdate: new Date(untilMs),
          entries: revoked.map(serialNumber => ({
            serialNumber,
            revocationDate: new Date(fromMs),
            reason: x509.X509CrlReason.keyCompromise,
          })),
          signingAlgorithm: signing,
          signingKey: { root, authority, stranger }[by].privateKey,
        },
        crypto,
      )
      return new Uint8Array(made.rawData)
    },
  }
}

export async function signed(keys: CryptoKeyPair, bytes: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.sign(signing, keys.privateKey, new Uint8Array(bytes)))
}

/** X and Y. */
export async function pointOf(keys: CryptoKeyPair): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey)).slice(1)
}

export type QuoteWanted = {
  readonly version: 4 | 5
  readonly report: TdReport
  readonly pck: Issued
  readonly header?: Partial<Omit<QuoteHeader, 'version'>>
  readonly qe?: Partial<EnclaveReport>
  /** Instead of the digest of attestation key and authentication data. */
  readonly qeReportData?: Uint8Array
  readonly authData?: Uint8Array
  /** PEM instead of PCK, its CA and the root. */
  readonly chain?: string
}

export const SIMULATED_QE: EnclaveReport = {
  cpuSvn: new Uint8Array(16),
  miscSelect: 0,
  reserved20: new Uint8Array(28),
  attributes: Uint8Array.of(0x11, ...new Uint8Array(15)),
  mrEnclave: new Uint8Array(32).fill(7),
  reserved96: new Uint8Array(32),
  mrSigner: new Uint8Array(32).fill(9),
  reserved160: new Uint8Array(96),
  isvProdId: 2,
  isvSvn: 4,
  reserved260: new Uint8Array(60),
  reportData: new Uint8Array(64),
}

export async function simulateQuote(platform: SimulatedTdx, wanted: QuoteWanted): Promise<Uint8Array> {
  const { pck, authData = new Uint8Array(32).fill(3) } = wanted
  const header = {
    attestationKeyType: KEY_TYPE_P256,
    teeType: TEE_TDX,
    reserved8: 0,
    qeVendorId: fromHex(INTEL_QE_VENDOR) ?? new Uint8Array(16),
    userData: new Uint8Array(20).fill(5),
    ...wanted.header,
  }
  const body = encodeSigned(wanted.version, header, wanted.report)
  const key = await pointOf(platform.attestation)
  const bound = new Uint8Array(64)
  bound.set(new Uint8Array(await crypto.subtle.digest('SHA-256', new Uint8Array(concat(key, authData)))))
  const qe = { ...SIMULATED_QE, reportData: wanted.qeReportData ?? bound, ...wanted.qe }
  const qeBytes = writeRecord('QE report', ENCLAVE_REPORT, qe)
  const chain = utf8(wanted.chain ?? chainOf(platform, pck))
  const inner = concat(
    qeBytes,
    await signed(pck.keys, qeBytes),
    u16(authData.length),
    authData,
    u16(5),
    u32(chain.length),
    chain,
  )
  const signature = concat(await signed(platform.attestation, body), key, u16(6), u32(inner.length), inner)
  return concat(body, u32(signature.length), signature)
}

export function chainOf({ authority, rootDer }: SimulatedTdx, { der }: Issued): string {
  return [der, authority.der, rootDer].map(der => toPem(der, 'CERTIFICATE')).join('')
}

/** Where the parts of a simulated quote are. */
export function partsOf(
  version: 4 | 5,
  report: TdReport,
): Readonly<Record<'signature' | 'key' | 'qe' | 'qeSignature', number>> {
  const body = 48 + (version === 5 ? 6 : 0) + (report.added === null ? 584 : 648)
  const signature = body + 4
  const qe = signature + 64 + 64 + 6
  return { signature, key: signature + 64, qe, qeSignature: qe + layoutBytes(ENCLAVE_REPORT) }
}

export const SIMULATED_REPORT: TdReport = {
  version: '1.0',
  teeTcbSvn: Uint8Array.of(5, 0, 3, ...new Uint8Array(13)),
  mrSeam: new Uint8Array(48).fill(1),
  mrSignerSeam: new Uint8Array(48),
  seamAttributes: 0n,
  tdAttributes: 1n << 28n,
  xfam: 0x602e7n,
  mrTd: new Uint8Array(48).fill(2),
  mrConfigId: new Uint8Array(48),
  mrOwner: new Uint8Array(48),
  mrOwnerConfig: new Uint8Array(48),
  rtmr0: new Uint8Array(48).fill(10),
  rtmr1: new Uint8Array(48).fill(11),
  rtmr2: new Uint8Array(48).fill(12),
  rtmr3: new Uint8Array(48).fill(13),
  reportData: new Uint8Array(64).fill(14),
  added: null,
}

export const SIMULATED_PCK: PckFields = {
  components: Array.from({ length: 16 }, () => 3),
  pceSvn: 11,
  fmspc: Uint8Array.of(0xb0, 0xc0, 0x6f, 0, 0, 0),
  pceId: new Uint8Array(2),
  ppid: new Uint8Array(16).fill(6),
  serial: '1001',
}

export type Json = { readonly [field: string]: unknown }

const iso = (ms: number) => new Date(Math.floor(ms / 1000) * 1000).toISOString().replace('.000Z', 'Z')
const zeros48 = '00'.repeat(48)
const svns = (values: readonly number[]) => values.map(svn => ({ svn }))

/** One level that the simulated platform reaches; `changes` replace members. */
export function tcbInfoOf(nowMs: number, changes: Json = {}): Json {
  const module = { mrsigner: zeros48, attributes: '00'.repeat(8), attributesMask: 'FF'.repeat(8) }
  return {
    id: 'TDX',
    version: 3,
    issueDate: iso(nowMs - dayMs),
    nextUpdate: iso(nowMs + 30 * dayMs),
    fmspc: toHex(SIMULATED_PCK.fmspc).toUpperCase(),
    pceId: '0000',
    tcbType: 0,
    tcbEvaluationDataNumber: 17,
    tdxModule: module,
    tdxModuleIdentities: [{ id: 'TDX_01', ...module, tcbLevels: [svnLevel(4, 'UpToDate'), svnLevel(2, 'OutOfDate')] }],
    tcbLevels: [tcbLevel({ status: 'UpToDate' })],
    ...changes,
  }
}

type LevelWanted = {
  readonly status: string
  readonly sgx?: readonly number[]
  readonly tdx?: readonly number[]
  readonly pceSvn?: number
  readonly advisories?: readonly string[]
}

export function tcbLevel({ status, sgx, tdx, pceSvn = 11, advisories }: LevelWanted): Json {
  const tcb = {
    sgxtcbcomponents: svns(sgx ?? Array.from({ length: 16 }, () => 2)),
    pcesvn: pceSvn,
    tdxtcbcomponents: svns(tdx ?? [5, 0, 2, ...Array.from({ length: 13 }, () => 0)]),
  }
  const level = { tcb, tcbDate: '2024-03-13T00:00:00Z', tcbStatus: status }
  return advisories === undefined ? level : { ...level, advisoryIDs: advisories }
}

export function svnLevel(isvsvn: number, tcbStatus: string): Json {
  return { tcb: { isvsvn }, tcbDate: '2024-03-13T00:00:00Z', tcbStatus }
}

export function qeIdentityOf(nowMs: number, changes: Json = {}): Json {
  return {
    id: 'TD_QE',
    version: 2,
    issueDate: iso(nowMs - dayMs),
    nextUpdate: iso(nowMs + 30 * dayMs),
    tcbEvaluationDataNumber: 17,
    miscselect: '00000000',
    miscselectMask: 'FFFFFFFF',
    attributes: `11${'00'.repeat(15)}`,
    attributesMask: `FBFFFFFFFFFFFFFF${'00'.repeat(8)}`,
    mrsigner: toHex(SIMULATED_QE.mrSigner),
    isvprodid: 2,
    tcbLevels: [svnLevel(4, 'UpToDate')],
    ...changes,
  }
}

export type CollateralWanted = {
  readonly tcbInfo?: Json
  readonly qeIdentity?: Json
  readonly rootCrl?: Uint8Array
  readonly pckCrl?: Uint8Array
  /** The signer of both documents. */
  readonly signer?: Issued
  readonly changes?: Partial<Collateral>
}

export async function simulateCollateral(platform: SimulatedTdx, wanted: CollateralWanted = {}): Promise<Uint8Array> {
  const { nowMs, signer: own, rootDer } = platform
  const signer = wanted.signer ?? own
  const tcbInfo = JSON.stringify(wanted.tcbInfo ?? tcbInfoOf(nowMs))
  const qeIdentity = JSON.stringify(wanted.qeIdentity ?? qeIdentityOf(nowMs))
  const chain = [signer.der, rootDer].map(der => toPem(der, 'CERTIFICATE')).join('')
  return collateralJson({
    root_ca_crl: wanted.rootCrl ?? (await platform.crl('root')),
    pck_crl: wanted.pckCrl ?? (await platform.crl('authority')),
    tcb_info: tcbInfo,
    tcb_info_signature: await signed(signer.keys, utf8(tcbInfo)),
    tcb_info_issuer_chain: chain,
    qe_identity: qeIdentity,
    qe_identity_signature: await signed(signer.keys, utf8(qeIdentity)),
    qe_identity_issuer_chain: chain,
    ...wanted.changes,
  })
}

function collateralJson(collateral: Collateral): Uint8Array {
  const members = Object.entries(collateral).map(([name, value]) => [
    name,
    value instanceof Uint8Array ? toHex(value) : value,
  ])
  return utf8(JSON.stringify(Object.fromEntries(members)))
}

type RawExtension = { readonly oid: string; readonly critical: boolean; readonly value: Uint8Array }

type IssueWanted = {
  readonly subject: string
  readonly issuer: string
  readonly serial: string
  /** Length of the path below it; null for a certificate that is no authority. */
  readonly ca: number | null
  readonly nowMs: number
  readonly extension?: RawExtension
}

export async function issue(wanted: IssueWanted, keys: CryptoKeyPair, by: CryptoKeyPair): Promise<Uint8Array> {
  const x509 = await loadX509()
  const constraints = wanted.ca === null ? [0x30, 0] : [0x30, 6, 1, 1, 0xff, 2, 1, wanted.ca]
  const extensions: RawExtension[] = [
    { oid: OID.keyUsage, critical: true, value: Uint8Array.of(3, 2, ...(wanted.ca === null ? [6, 0xc0] : [1, 6])) },
    { oid: OID.basicConstraints, critical: true, value: Uint8Array.from(constraints) },
    ...(wanted.extension === undefined ? [] : [wanted.extension]),
  ]
  const made = await x509.X509CertificateGenerator.create(
    {
      serialNumber: wanted.serial,
      subject: wanted.subject,
      issuer: wanted.issuer,
      notBefore: new Date(wanted.nowMs - dayMs),
      notAfter: new Date(wanted.nowMs + 30 * dayMs),
      publicKey: keys.publicKey,
      signingKey: by.privateKey,
      signingAlgorithm: signing,
      extensions: extensions.map(
        ({ oid, critical, value }) => new x509.Extension(oid, critical, new Uint8Array(value)),
      ),
    },
    crypto,
  )
  return new Uint8Array(made.rawData)
}

/** DER of the SGX extension's value. */
function sgxExtension({ components, pceSvn, fmspc, pceId, ppid }: PckFields): Uint8Array {
  const octets = (bytes: Uint8Array) => der(0x04, bytes)
  const integer = (value: number) => {
    const bytes = value > 255 ? [value >> 8, value & 255] : [value]
    return der(0x02, Uint8Array.from((bytes[0] ?? 0) > 0x7f ? [0, ...bytes] : bytes))
  }
  const member = (arcs: readonly number[], value: Uint8Array) => der(0x30, concat(oid(arcs), value))
  const tcb = concat(
    ...components.map((svn, at) => member([2, at + 1], integer(svn))),
    member([2, 17], integer(pceSvn)),
    member([2, 18], octets(Uint8Array.from(components))),
  )
  return der(
    0x30,
    concat(
      member([1], octets(ppid)),
      member([2], der(0x30, tcb)),
      member([3], octets(pceId)),
      member([4], octets(fmspc)),
      member([5], der(0x0a, Uint8Array.of(0))),
    ),
  )
}

/** 1.2.840.113741.1.13.1 and what is below it. */
function oid(arcs: readonly number[]): Uint8Array {
  return der(0x06, Uint8Array.from([0x2a, 0x86, 0x48, 0x86, 0xf8, 0x4d, 1, 13, 1, ...arcs]))
}

function der(tag: number, contents: Uint8Array): Uint8Array {
  const { length } = contents
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 255]
  return concat(Uint8Array.of(tag, ...size), contents)
}

function u16(value: number): Uint8Array {
  return Uint8Array.of(value & 255, value >> 8)
}

function u32(value: number): Uint8Array {
  return Uint8Array.of(value & 255, (value >> 8) & 255, (value >> 16) & 255, value >>> 24)
}
