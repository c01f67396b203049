// One SIMULATED machine of GPUs and switches, each with a chain of its own below the same authorities. The
// evidence has the form of genuine reports of GPUs and switches of an HGX H100 (NVIDIA/attestation-sdk, its test data).

import type { GpuEvidence } from '../../../../src/attest/nvidia/evidence.ts'
import { type HgxPolicy, parseHgxPolicy } from '../../../../src/attest/nvidia/hgx/policy.ts'
import type { GpuQuestion } from '../../../../src/attest/nvidia/verify.ts'
import { concat, fromHex, utf8 } from '../../../../src/base/bytes.ts'
import { authority, compositeDeviceId, type Extension, type Holder, issue } from './authority.ts'
import { tlv } from './der.ts'
import { signedManifest } from './manifest.ts'
import { ocspResponse, ocspSigner } from './ocsp.ts'
import { type Opaque, opaqueOf, sampleMeasurements, signedReport } from './report.ts'
import { asOfMs, fwid, nonce, policyDocument, type SimulatedGpu, simulatedGpu } from './simulated.ts'

export type Device = {
  readonly pdi: string
  readonly leaf: Holder
  readonly brom: Holder
  readonly opaque: Opaque
  readonly measurements: readonly Uint8Array[]
  readonly evidence: GpuEvidence
}

export type SimulatedHgx = {
  readonly base: SimulatedGpu
  readonly gpus: readonly Device[]
  readonly switches: readonly Device[]
  readonly switchRim: Uint8Array
  /** Issues the certificates of switches. */
  readonly provisioner: Holder
  readonly question: GpuQuestion
}

type Kind = 'gpus' | 'switches'
type Counts = Readonly<Record<Kind, number>>

/** An HGX of eight GPUs. */
export const HGX: Counts = { gpus: 8, switches: 4 }
/** The fewest devices of which one can be another: tests with it take a third of the time. */
export const SMALL: Counts = { gpus: 2, switches: 2 }

export function pdisOf(kind: Kind, counts: Counts, machine = 0x1a): readonly string[] {
  const start = `${kind === 'gpus' ? 'E2' : '20'}3D711E1C4F${machine.toString(16).toUpperCase()}`
  return Array.from({ length: counts[kind] }, (_, at) => `${start}A${at}`)
}

/** Genuine switches write 31 measurements. */
const switchMeasurements = () => sampleMeasurements().slice(0, 31)

export async function simulatedHgx(counts: Counts): Promise<SimulatedHgx> {
  const base = await simulatedGpu()
  const { authorities } = base
  const provisioner = await issue({
    ...{ name: 'SIMULATED LS_10 Provisioner ICA 1', serial: '06', issuer: authorities.device.identity },
    extensions: authority(),
  })
  const [gpuPdis, switchPdis] = [pdisOf('gpus', counts), pdisOf('switches', counts)]
  const gpus = await Promise.all(gpuPdis.map(pdi => device(base, { kind: 'gpus', pdi, opaque: gpuOpaque(switchPdis) })))
  const switches = await Promise.all(
    switchPdis.map(pdi => device(base, { kind: 'switches', pdi, opaque: switchOpaque(pdi, gpuPdis), provisioner })),
  )
  const resources = switchMeasurements().map((value, index) => ({ index, values: [value], active: index !== 20 }))
  const switchRim = await signedManifest(
    { version: '96.10.55.00.01', product: 'LS10', edition: 'SWITCH', resources },
    authorities,
  )
  const ocsp = await Promise.all([
    ...gpus.map(({ brom }) => good(brom, authorities.device.provisioner)),
    ...switches.map(({ brom }) => good(brom, provisioner)),
    good(provisioner, authorities.device.identity),
  ])
  const question = {
    ...base.question,
    evidence: [...gpus, ...switches].map(({ evidence }) => evidence),
    rims: [base.driver, base.vbios, switchRim],
    ocsp: [...base.ocsp, ...ocsp],
    policy: hgxPolicy(counts),
  }
  return { base, gpus, switches, switchRim, provisioner, question }
}

export const topologyDocument = (counts: Counts) => ({
  ...{ ...counts, switchBiosVersions: ['96.10.55.00.01'] },
  switchSerials: pdisOf('switches', counts).map(pdi => `50${pdi}`),
})

export function hgxPolicyDocument(counts: Counts, topology: unknown = topologyDocument(counts)) {
  const serials = pdisOf('gpus', counts).map(pdi => `41${pdi}`)
  return { ...policyDocument(), modes: ['PPCIE'], ueids: 'any', deviceSerials: serials, topology }
}

export const hgxPolicy = (counts: Counts, topology?: unknown): HgxPolicy =>
  parseHgxPolicy(hgxPolicyDocument(counts, topology))

/** The OCSP response that a certificate is good, by a delegate of its issuer unless it has another signer. */
export async function good(certificate: Holder, issuer: Holder, by: Holder | null = null): Promise<Uint8Array> {
  const signer = by ?? (await ocspSigner(issuer))
  const answer = { certificate, issuer, thisUpdateMs: asOfMs - 3_600_000, nextUpdateMs: asOfMs + 3_600_000 }
  return await ocspResponse({ answers: [answer], signer, certificates: by === null ? [signer] : [] })
}

const pdiBytes = (pdi: string) => fromHex(pdi) ?? new Uint8Array(0)
const u16 = (value: number) => Uint8Array.of(value, 0)

/** 18 links, each with the PDI of its switch in reverse order; two are off. */
export function gpuOpaque(switchPdis: readonly string[]): Opaque {
  const links = Array.from({ length: 18 }, (_, at) => {
    const pdi = at < 16 ? switchPdis[at % switchPdis.length] : undefined
    return pdi === undefined ? new Uint8Array(8) : pdiBytes(pdi).reverse()
  })
  return { ...opaqueOf(fwid), 21: Uint8Array.of(0xaa), 22: concat(...links), 36: u16(2) }
}

/** Places for eight PDIs, then an index for each of 64 ports. */
export function switchOpaque(pdi: string, gpuPdis: readonly string[]): Opaque {
  const places = Array.from({ length: 8 }, (_, at) => pdiBytes(gpuPdis[at] ?? '00'.repeat(8)))
  const ports = Uint8Array.from({ length: 64 }, (_, at) => (at < 16 ? at >> 1 : 0xff))
  return {
    ...{ 6: utf8('96.10.55.00.01'), 22: pdiBytes(pdi), 23: Uint8Array.of(0xec, 0) },
    ...{ 24: u16(2), 25: u16(1), 26: concat(...places, ports) },
  }
}

type DeviceParts = {
  readonly kind: Kind
  readonly pdi: string
  readonly opaque: Opaque
  readonly provisioner?: Holder
}

export async function device(base: SimulatedGpu, { kind, pdi, opaque, provisioner }: DeviceParts): Promise<Device> {
  const { root, identity, provisioner: ofGpus } = base.authorities.device
  const issuer = provisioner ?? ofGpus
  const [chip, engine, mark] = kind === 'gpus' ? ['GH100', 'GSP', '41'] : ['LS_10', 'FSP', '50']
  const usage: Extension = { oid: '2.5.29.15', critical: true, value: tlv(0x03, Uint8Array.of(7, 0x80)) }
  const name = `SIMULATED ${chip} A01 ${engine}`
  const brom = await issue({ name: `${name} BROM`, serial: `${mark}${pdi}`, issuer, extensions: authority() })
  const leaf = await issue({
    ...{ name: `${name} FMC LF`, serial: `53${pdi}${pdi}`, issuer: brom },
    extensions: [usage, compositeDeviceId(fwid)],
  })
  const measurements = kind === 'gpus' ? sampleMeasurements() : switchMeasurements()
  const report = await signedReport({ nonce, measurements, opaque }, leaf)
  const certificates = [leaf, brom, issuer, identity, root].map(({ der }) => der)
  const evidence = { arch: kind === 'gpus' ? 'HOPPER' : 'LS10', report, certificates }
  return { pdi, leaf, brom, opaque, measurements, evidence }
}

/** The same device with another report. */
export async function reported(
  of: Device,
  change: { readonly opaque?: Opaque; readonly measurements?: readonly Uint8Array[]; readonly nonce?: Uint8Array },
): Promise<GpuEvidence> {
  const parts = { nonce, measurements: of.measurements, opaque: of.opaque, ...change }
  return { ...of.evidence, report: await signedReport(parts, of.leaf) }
}
