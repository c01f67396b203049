// Downloads manifests from NVIDIA's RIM service and OCSP responses for the certificates of GPUs and manifests. Effects:
// the network, files of --cache.

import { sha256 } from '../../../attest/hash.ts'
import { parsed } from '../../../attest/malformed.ts'
import { checkChain, decodeChain, deviceFault } from '../../../attest/nvidia/chain.ts'
import type { GpuEvidence } from '../../../attest/nvidia/evidence.ts'
import { readSwitchFields } from '../../../attest/nvidia/hgx/report.ts'
import { switchArch } from '../../../attest/nvidia/hgx/switch.ts'
import { architectureOf } from '../../../attest/nvidia/judge.ts'
import { decodeOcsp, ocspBytesMax } from '../../../attest/nvidia/ocsp.ts'
import { encodeOcspRequest } from '../../../attest/nvidia/ocsp-request.ts'
import type { GpuPolicy } from '../../../attest/nvidia/policy.ts'
import { portableP384 } from '../../../attest/nvidia/portable-p384.ts'
import { type ReadSignedXml, rimBytesMax } from '../../../attest/nvidia/rim.ts'
import { type DecodedRoot, decodeRoots, type NvidiaRoots } from '../../../attest/nvidia/roots.ts'
import { decodeGpuReport, decodeReport } from '../../../attest/nvidia/spdm.ts'
import { type Certificate, commonNameOf } from '../../../attest/x509/certificate.ts'
import { toHex } from '../../../base/bytes.ts'
import type { Downloader } from '../../collateral/download.ts'
import { below } from '../../collateral/fetch-options.ts'
import { rimOf } from './inputs.ts'

export const rimUrlDefault = 'https://rim.attestation.nvidia.com/v1/rim'
export const ocspUrlDefault = 'https://ocsp.ndis.nvidia.com'

export type GpuFetch = {
  readonly downloader: Downloader
  readonly rimUrl: string
  readonly ocspUrl: string
  readonly evidence: readonly GpuEvidence[]
  readonly roots: readonly NvidiaRoots[]
  readonly readSignedXml: ReadSignedXml
  readonly asOfMs: number
}

/** Returns the manifests of GPUs (driver, VBIOS) and switches. Devices without a good chain are left to the verdict. */
export async function fetchRims(from: GpuFetch): Promise<Uint8Array[]> {
  const { downloader, rimUrl, readSignedXml } = from
  const named = namedDevices(from.evidence).filter(([, device]) => devicePairs(device, from).length > 0)
  // A manifest is in force as long as its certificates are. Unreadable ones are left to the verdict, and not cached.
  const untilMs = (bytes: Uint8Array) => {
    const { certificates } = readSignedXml(bytes)
    const chain = parsed(() => decodeChain(certificates, 'chain'))
    return chain.ok ? Math.min(...chain.value.map(({ notAfterMs }) => notAfterMs)) : 0
  }
  const devices = Map.groupBy(
    named.flatMap(([name, device]) => rimIds(device).map(id => ({ id, name }))),
    ({ id }) => id,
  )
  const rims: Uint8Array[] = []
  for (const [id, wanting] of devices) {
    const file = `${id}.xml`
    const url = below(rimUrl, `/${id}`)
    const purpose = `manifest ${id} of ${listed(wanting.map(({ name }) => name))}`
    const asked = { kind: file, url, purpose, bodyBytesMax: 2 * rimBytesMax }
    const wanted = { ...asked, param: 'rim', mirror: 'rim-url', fileOf: rimOf }
    rims.push(await downloader.get(wanted, { file, fileBytesMax: rimBytesMax, isRenewed: false, untilMs }))
  }
  return rims
}

/** Returns each device with its name in the verdict: GPUs and switches are counted apart. */
function namedDevices(evidence: readonly GpuEvidence[]): readonly (readonly [name: string, device: GpuEvidence])[] {
  const counts = { gpu: 0, switch: 0 }
  return evidence.map(device => {
    const kind = device.arch === switchArch ? 'switch' : 'gpu'
    counts[kind] += 1
    return [`${kind}-${counts[kind] - 1}`, device]
  })
}

const listedMax = 12

function listed(names: readonly string[]): string {
  const rest = names.length - listedMax
  return `${names.slice(0, listedMax).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}

/** Project, its SKU and the chip's SKU of every LS10, as in NVIDIA's verifier: a switch's report lacks them. */
const switchBoard = '5612_0002_890'

/** Returns the ids of the manifests of driver and VBIOS; of the driver alone if the report lacks the board. */
function rimIds({ arch, report, certificates }: GpuEvidence): readonly string[] {
  if (arch === switchArch) {
    const known = parsed(() => decodeReport(report, readSwitchFields).fields.biosVersion.replaceAll('.', ''))
    return known.ok ? [`NV_SWITCH_BIOS_${switchBoard}_${known.value}`] : []
  }
  const read = parsed(() => ({
    fields: decodeGpuReport(report).fields,
    device: decodeChain(certificates, 'GPU certificates')[1],
  }))
  if (!read.ok || read.value.device === undefined) return []
  const { fields, device } = read.value
  const [chip = ''] = commonNameOf(device.subject)
    .replace(/^SIMULATED /, '')
    .split(' ')
  const architecture = architectureOf(chip)
  if (architecture === null) return []
  const driver = architecture === 'HOPPER' ? 'NV_GPU_DRIVER_GH100' : `NV_GPU_CC_DRIVER_${chip}`
  const vbios = fields.board === null ? [] : [`NV_GPU_VBIOS_${fields.board}_${fields.vbiosVersion.replaceAll('.', '')}`]
  return [`${driver}_${fields.driverVersion}`, ...vbios]
}

/**
 * Returns a response for each certificate that can be revoked. Makes no request for a chain that does not end at a
 * trusted root: the verdict rejects it anyway.
 */
export async function fetchOcsp(
  from: GpuFetch,
  { rims, policy }: { readonly rims: readonly Uint8Array[]; readonly policy: GpuPolicy },
): Promise<Uint8Array[]> {
  const { downloader, ocspUrl, evidence, readSignedXml } = from
  const { rim } = decodeRoots(from.roots)
  const pairs = [
    // A GPU issues its own leaf, for which no responder has an entry.
    ...evidence.flatMap(device => devicePairs(device, from).slice(1)),
    ...rims.flatMap(bytes => {
      const xml = parsed(() => readSignedXml(bytes))
      return xml.ok ? pairsOf(xml.value.certificates, { ...from, decoded: rim }) : []
    }),
  ]
  const requests = pairs.map(([certificate, issuer]) => {
    const bytes = encodeOcspRequest(certificate, issuer)
    const name = parsed(() => commonNameOf(certificate.subject))
    const purpose = `OCSP response for ${name.ok ? name.value : 'a certificate without a name'}`
    return [`ocsp-${toHex(sha256(bytes)).slice(0, 32)}.der`, { bytes, purpose }] as const
  })
  const responses: Uint8Array[] = []
  for (const [file, { bytes, purpose }] of new Map(requests)) {
    const post = { type: 'application/ocsp-request', bytes }
    const url = below(ocspUrl, '/')
    const asked = { kind: file, url, purpose, post, bodyBytesMax: ocspBytesMax }
    const wanted = { ...asked, param: 'ocsp', mirror: 'ocsp-url' }
    const untilMs = (der: Uint8Array) => ocspUntilMs(der, policy)
    responses.push(await downloader.get(wanted, { file, fileBytesMax: ocspBytesMax, isRenewed: true, untilMs }))
  }
  return responses
}

function devicePairs({ certificates }: GpuEvidence, from: GpuFetch) {
  return pairsOf(certificates, { ...from, decoded: decodeRoots(from.roots).device, faultOf: deviceFault })
}

/** Returns each certificate of a good chain with its issuer, the root excepted. */
function pairsOf(
  ders: readonly Uint8Array[],
  {
    decoded: roots,
    asOfMs,
    faultOf = () => null,
  }: Pick<GpuFetch, 'asOfMs'> & { readonly decoded: readonly DecodedRoot[]; readonly faultOf?: typeof deviceFault },
): (readonly [Certificate, Certificate])[] {
  const read = parsed(() => decodeChain(ders, 'chain'))
  if (!read.ok) return []
  const { chain } = checkChain('chain', { certificates: read.value, roots, asOfMs, verify: portableP384, faultOf })
  const path = chain?.path ?? []
  return path.flatMap((certificate, at) => {
    const issuer = path[at + 1]
    return issuer === undefined ? [] : [[certificate, issuer] as const]
  })
}

/** Returns the time until which the policy accepts a response. Throws Malformed. */
function ocspUntilMs(der: Uint8Array, { ocspMaximumAgeSeconds: age }: GpuPolicy): number {
  const { singles } = decodeOcsp(der)
  const ends = singles.flatMap(({ thisUpdateMs, nextUpdateMs }) => [
    nextUpdateMs ?? Number.POSITIVE_INFINITY,
    age === 'any' ? Number.POSITIVE_INFINITY : thisUpdateMs + age * 1000,
  ])
  return Math.min(...ends)
}
