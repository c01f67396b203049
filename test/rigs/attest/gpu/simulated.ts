// One SIMULATED GPU with all that a good verdict needs: report, chain, both manifests, OCSP responses, a policy.

import { toPem } from '../../../../src/attest/encoding/pem.ts'
import type { GpuEvidence } from '../../../../src/attest/nvidia/evidence.ts'
import { type GpuPolicy, parseGpuPolicy } from '../../../../src/attest/nvidia/policy.ts'
import { NVIDIA_ROOTS, type NvidiaRoots } from '../../../../src/attest/nvidia/roots.ts'
import type { GpuQuestion } from '../../../../src/attest/nvidia/verify.ts'
import { toBase64, toHex, utf8 } from '../../../../src/base/bytes.ts'
import { readSignedXml } from '../../../../src/client/verify/gpu/signed-xml.ts'
import { type Authorities, compositeDeviceId, type Extension, type Holder, makeAuthorities } from './authority.ts'
import { type Resource, signedManifest } from './manifest.ts'
import { type Answer, ocspResponse, ocspSigner } from './ocsp.ts'
import { opaqueOf, sampleMeasurements, signedReport } from './report.ts'

export const asOfMs = Date.parse('2026-06-01T12:00:00Z')
export const fwid = new Uint8Array(48).fill(0xf1)
export const nonce = Uint8Array.from({ length: 32 }, (_, at) => at * 7)
const hourMs = 3_600_000

/** Measurements of the VBIOS are 0 to 9, of the driver 20 to 40, as with real ones. */
const isOfVbios = (index: number) => index < 10

export function resourcesOf(kind: 'driver' | 'vbios', measurements: readonly Uint8Array[]): Resource[] {
  return measurements.map((value, index) => {
    const active = kind === 'vbios' ? isOfVbios(index) : index >= 20 && index <= 40
    // Each has an alternative before the right one. 35 is not measured, because the video decoder is off.
    const right = index === 35 ? new Uint8Array(48).fill(0xee) : value
    return { index, active, values: active ? [new Uint8Array(48).fill(0xdd), right] : [new Uint8Array(48)] }
  })
}

export type SimulatedGpu = {
  readonly authorities: Authorities
  readonly roots: NvidiaRoots
  readonly evidence: GpuEvidence
  readonly measurements: readonly Uint8Array[]
  readonly driver: Uint8Array
  readonly vbios: Uint8Array
  readonly ocsp: readonly Uint8Array[]
  readonly question: GpuQuestion
}

export async function simulatedGpu({
  chip = 'GH100',
  arch = 'HOPPER',
  firmware = compositeDeviceId(fwid),
}: {
  chip?: string
  arch?: string
  firmware?: Extension
} = {}): Promise<SimulatedGpu> {
  const authorities = await makeAuthorities(chip, firmware)
  const measurements = sampleMeasurements()
  const { leaf } = authorities.device
  const report = await signedReport({ nonce, measurements, opaque: opaqueOf(fwid) }, leaf)
  const evidence = { arch, report, certificates: deviceChain(authorities).map(({ der }) => der) }
  const rim = (kind: 'driver' | 'vbios', version: string) =>
    signedManifest({ version, product: chip, resources: resourcesOf(kind, measurements) }, authorities)
  const [driver, vbios] = [await rim('driver', '550.90.07'), await rim('vbios', '96.00.9F.00.01')]
  const ocsp = await ocspOf(authorities)
  const roots = { device: authorities.device.root.der, rim: authorities.rim.root.der }
  const question = {
    evidence: [evidence],
    nonce,
    rims: [driver, vbios],
    readSignedXml,
    ocsp,
    roots: [NVIDIA_ROOTS, roots],
    policy: samplePolicy(arch),
    asOfMs,
    devtools: null,
  }
  return { authorities, roots, evidence, measurements, driver, vbios, ocsp, question }
}

export function deviceChain({ device }: Authorities): readonly Holder[] {
  return [device.leaf, device.brom, device.provisioner, device.identity, device.root]
}

/** Each certificate that can be revoked, with its issuer. */
export function revocable({ device, rim }: Authorities): readonly (readonly [Holder, Holder])[] {
  return [
    [device.brom, device.provisioner],
    [device.provisioner, device.identity],
    [device.identity, device.root],
    [rim.signer, rim.l3],
    [rim.l3, rim.ca],
    [rim.ca, rim.root],
  ]
}

/** One response for each, an hour old, signed by a delegate of the issuer. */
export async function ocspOf(
  authorities: Authorities,
  change: (certificate: Holder) => Partial<Answer> = () => ({}),
): Promise<Uint8Array[]> {
  return await Promise.all(
    revocable(authorities).map(async ([certificate, issuer]) => {
      const signer = await ocspSigner(issuer)
      const answer = {
        certificate,
        issuer,
        thisUpdateMs: asOfMs - hourMs,
        nextUpdateMs: asOfMs + hourMs,
        ...change(certificate),
      }
      return await ocspResponse({ answers: [answer], signer, certificates: [signer] })
    }),
  )
}

export function samplePolicy(arch = 'HOPPER'): GpuPolicy {
  return parseGpuPolicy(JSON.stringify(policyDocument(arch)))
}

export function policyDocument(arch = 'HOPPER') {
  return {
    format: 'strongroom/gpu-policy/v1',
    architectures: [arch],
    driverVersions: ['550.90.07'],
    vbiosVersions: ['96.00.9F.00.01'],
    modes: ['SPT'],
    ueids: ['478176379286082186618948445787393647364802107249'],
    deviceSerials: ['41E23D711E1C4FBFAC'],
    ocspMaximumAgeSeconds: 7200,
    devtools: 'any',
  }
}

/** As NVIDIA's tools write it. */
export function evidenceDocument({ arch, report, certificates }: GpuEvidence) {
  const pem = certificates.map(der => toPem(der, 'CERTIFICATE')).join('')
  return { arch, nonce: toHex(nonce), evidence: toBase64(report), certificate: toBase64(utf8(pem)) }
}
