// Writers of the forms in which other projects keep a report: go-sev-guest's protobuf, CoCo's, attestation-rs's and
// Tinfoil's JSON, extended reports. Written from their definitions, with offsets of their own. Pure.

import { gzipSync } from 'node:zlib'

/** DER. */
export type Certificates = { readonly vek: Uint8Array; readonly ask: Uint8Array; readonly ark: Uint8Array }

const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
const isTurin = (report: Uint8Array) => report[0x188] === 0x1a

function reader(report: Uint8Array) {
  const view = new DataView(report.buffer, report.byteOffset, report.byteLength)
  return {
    u8: (at: number) => view.getUint8(at),
    u32: (at: number) => view.getUint32(at, true),
    u64: (at: number) => view.getBigUint64(at, true),
    bytes: (at: number, count: number) => report.subarray(at, at + count),
  }
}

/** sevsnp.Attestation, or its Report alone without certificates. */
export function goSevGuest(report: Uint8Array, certificates: Certificates | null): Uint8Array {
  const message = Buffer.concat(goReportFields(report))
  if (certificates === null) return message
  const chain = [lengthField(1, certificates.vek), lengthField(2, certificates.ask), lengthField(3, certificates.ark)]
  return Buffer.concat([lengthField(1, message), lengthField(2, Buffer.concat(chain))])
}

function goReportFields(report: Uint8Array): Uint8Array[] {
  const { u8, u32, u64, bytes } = reader(report)
  const bigAt = (at: number) => BigInt(u32(at))
  const smallAt = (at: number) => BigInt(u8(at))
  const [family, model, stepping] = [u8(0x188), u8(0x189), u8(0x18a)]
  // CPUID leaf 1 of a family above 15: base 15, and the rest in the extended field.
  const eax =
    family === 0 ? 0 : stepping | ((model & 15) << 4) | (15 << 8) | ((model >> 4) << 16) | ((family - 15) << 20)
  return [
    ...[numberField(1, bigAt(0)), numberField(2, bigAt(4)), numberField(3, u64(8))],
    ...[lengthField(4, bytes(0x10, 16)), lengthField(5, bytes(0x20, 16))],
    ...[numberField(6, bigAt(0x30)), numberField(7, bigAt(0x34)), numberField(8, u64(0x38)), numberField(9, u64(0x40))],
    numberField(10, bigAt(0x48)),
    ...[lengthField(11, bytes(0x50, 64)), lengthField(12, bytes(0x90, 48)), lengthField(13, bytes(0xc0, 32))],
    ...[lengthField(14, bytes(0xe0, 48)), lengthField(15, bytes(0x110, 48))],
    ...[lengthField(16, bytes(0x140, 32)), lengthField(17, bytes(0x160, 32)), numberField(18, u64(0x180))],
    ...[lengthField(19, bytes(0x1a0, 64)), numberField(20, u64(0x1e0))],
    ...[numberField(21, smallAt(0x1e8)), numberField(22, smallAt(0x1e9)), numberField(23, smallAt(0x1ea))],
    ...[numberField(24, smallAt(0x1ec)), numberField(25, smallAt(0x1ed)), numberField(26, smallAt(0x1ee))],
    ...[numberField(27, u64(0x1f0)), lengthField(28, bytes(0x2a0, 512)), numberField(29, BigInt(eax))],
    ...[numberField(30, u64(0x1f8)), numberField(31, u64(0x200))],
  ]
}

function varint(value: bigint): number[] {
  return value < 128n ? [Number(value)] : [Number(value & 127n) | 128, ...varint(value >> 7n)]
}

/** As proto3 writes it: a zero is left out. */
export function numberField(field: number, value: bigint): Uint8Array {
  return value === 0n ? new Uint8Array(0) : Uint8Array.from([...varint(BigInt(field * 8)), ...varint(value)])
}

export function lengthField(field: number, bytes: Uint8Array): Uint8Array {
  return Buffer.concat([Uint8Array.from([...varint(BigInt(field * 8 + 2)), ...varint(BigInt(bytes.length))]), bytes])
}

/** As guest-components' attester writes it, whose report is that of the crate `sev`. */
export function cocoEvidence(report: Uint8Array, certificates: Certificates | null): object {
  const { u8, u32, u64, bytes } = reader(report)
  const list = (at: number, count: number) => [...bytes(at, count)]
  const version = (at: number) => ({ major: u8(at + 2), minor: u8(at + 1), build: u8(at) })
  const tcb = (at: number) =>
    isTurin(report)
      ? { fmc: u8(at), bootloader: u8(at + 1), tee: u8(at + 2), snp: u8(at + 3), microcode: u8(at + 7) }
      : { fmc: null, bootloader: u8(at), tee: u8(at + 1), snp: u8(at + 6), microcode: u8(at + 7) }
  const since = (first: number, value: unknown) => (u32(0) >= first ? value : null)
  const entry = (cert_type: string, data: Uint8Array) => ({ cert_type, data: [...data] })
  return {
    attestation_report: {
      ...{ version: u32(0), guest_svn: u32(4), policy: Number(u64(8)), family_id: list(0x10, 16) },
      ...{ image_id: list(0x20, 16), vmpl: u32(0x30), sig_algo: u32(0x34), current_tcb: tcb(0x38) },
      ...{ plat_info: Number(u64(0x40)), key_info: u32(0x48), report_data: list(0x50, 64) },
      ...{ measurement: list(0x90, 48), host_data: list(0xc0, 32), id_key_digest: list(0xe0, 48) },
      ...{ author_key_digest: list(0x110, 48), report_id: list(0x140, 32), report_id_ma: list(0x160, 32) },
      ...{ reported_tcb: tcb(0x180), cpuid_fam_id: since(3, u8(0x188)), cpuid_mod_id: since(3, u8(0x189)) },
      ...{ cpuid_step: since(3, u8(0x18a)), chip_id: list(0x1a0, 64), committed_tcb: tcb(0x1e0) },
      ...{ current: version(0x1e8), committed: version(0x1ec), launch_tcb: tcb(0x1f0) },
      launch_mit_vector: since(5, Number(u64(0x1f8))),
      current_mit_vector: since(5, Number(u64(0x200))),
      signature: { r: list(0x2a0, 72), s: list(0x2e8, 72) },
    },
    cert_chain:
      certificates === null
        ? null
        : [entry('VCEK', certificates.vek), entry('ASK', certificates.ask), entry('ARK', certificates.ark)],
  }
}

export function attestationRs(report: Uint8Array, { vek, ask, ark }: Certificates): object {
  const cert_chain = { vcek: base64(vek), ask: base64(ask), ark: base64(ark) }
  return { attestation_report: base64(report), cert_chain }
}

export function tinfoilDocument(report: Uint8Array): { format: string; body: string } {
  return { format: 'https://tinfoil.sh/predicate/sev-snp-guest/v2', body: base64(gzipSync(report)) }
}

export function tinfoilBundle(report: Uint8Array, { vek }: Certificates): object {
  return { domain: 'a.example', enclaveAttestationReport: tinfoilDocument(report), vcek: base64(vek), digest: '00' }
}

/** The report and the host's certificate table behind it. */
export function extendedReport(report: Uint8Array, { vek, ask, ark }: Certificates): Uint8Array {
  const entries = [
    ['63da758de6644564adc5f4b93be8accd', vek],
    ['4ab7b379bbac4fe4a02f05aef327c782', ask],
    ['c0b406a4a803495297433fb6014cd0ae', ark],
  ] as const
  const head = Buffer.alloc(24 * (entries.length + 1))
  let at = head.length
  for (const [index, [guid, bytes]] of entries.entries()) {
    const raw = Buffer.from(guid, 'hex')
    // The first three groups of a GUID are little-endian.
    raw.subarray(0, 4).reverse()
    raw.subarray(4, 6).reverse()
    raw.subarray(6, 8).reverse()
    head.set(raw, index * 24)
    head.writeUInt32LE(at, index * 24 + 16)
    head.writeUInt32LE(bytes.length, index * 24 + 20)
    at += bytes.length
  }
  return Buffer.concat([report, head, ...entries.map(([, bytes]) => bytes)])
}

/** MSG_REPORT_RSP as the kernel's ioctl hands it out: 4,000 bytes. */
export function firmwareResponse(report: Uint8Array): Uint8Array {
  const response = Buffer.alloc(4_000)
  response.writeUInt32LE(report.length, 4)
  response.set(report, 32)
  return response
}
