// This VM's evidence: its report device, or the host's simulation, and the certificates that the host adds. Effects:
// the report device, the host.

import type { ReceiptEvidence } from '../attest/receipt/receipt.ts'
import { decodeReport } from '../attest/report/report.ts'
import { present } from '../base/assert.ts'
import { equalConstantTime, fromBase64Url, fromHex, toBase64Url } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { checked } from '../contract/check.ts'
import { CompletedEvidence } from '../contract/vm/enclave.ts'
import type { ReportDevice } from '../guest/report/device.ts'
import { type Refusal, refuse } from '../guest/wire.codec.ts'
import type { EvidenceOrigin } from '../inference/attestation/attester.ts'
import type { HostRequests } from './host-requests.ts'

/** Launch values of a simulated platform; a VM with a report device refuses them. */
export type SimulatedLaunch = { readonly measurement: string; readonly operatorKey: string; readonly hostData: string }

/** Launch values of this VM, constant while it lives. */
export type Launch = {
  readonly measurement: Uint8Array
  readonly operatorKey: Uint8Array
  readonly hostData: Uint8Array
}

export type LaunchSources = {
  readonly device: ReportDevice | null
  readonly simulated: SimulatedLaunch | null
}

/** From a report of the device, if there is one. Fault internal if the device fails. */
export async function launchOf({
  device,
  simulated,
}: LaunchSources): Promise<{ readonly ok: true; readonly launch: Launch } | Refusal> {
  if (device !== null) {
    if (simulated !== null) return refuse('bad_request', 'workload.simulated: this VM has a report device')
    const { measurement, idKeyDigest, hostData } = decodeReport(await device.report(new Uint8Array(64)))
    return { ok: true, launch: { measurement, operatorKey: idKeyDigest, hostData } }
  }
  if (simulated === null) return refuse('bad_request', 'workload.simulated: this VM has no report device')
  const decodeHex = (hex: string) => present(fromHex(hex), 'the schema lets only hexadecimal through')
  const { measurement, operatorKey, hostData } = simulated
  return {
    ok: true,
    launch: { measurement: decodeHex(measurement), operatorKey: decodeHex(operatorKey), hostData: decodeHex(hostData) },
  }
}

export type OriginParts = {
  readonly device: ReportDevice | null
  readonly launch: Launch
  readonly imageName: string
  readonly hostRequests: HostRequests
}

/** The host's key service may be slow; after this time the caller gets 503 and may retry. */
const evidenceTimeoutMs = 25_000

export function evidenceOrigin({ device, launch, imageName, hostRequests }: OriginParts): EvidenceOrigin {
  const image = { name: imageName, measurement: launch.measurement }
  return {
    kind: 'available',
    platform: device === null ? 'simulated' : 'snp',
    image,
    operatorKey: launch.operatorKey,
    hostData: launch.hostData,
    evidence: async reportData => {
      const report = device === null ? null : await device.report(reportData)
      const wanted = {
        kind: 'evidence',
        reportData: toBase64Url(reportData),
        report: report === null ? null : toBase64Url(report),
      } as const
      const evidence = completed(await hostRequests.ask(wanted, evidenceTimeoutMs))
      if (report !== null && !equalConstantTime(report, evidence.report)) {
        throw new Fault('attest.unavailable', 'the host has replaced the report of this VM')
      }
      return evidence
    },
  }
}

/** Decodes completed evidence. Throws Fault attest.unavailable. */
function completed(answer: unknown): ReceiptEvidence {
  const { report, vek, chain, crl } = checked(CompletedEvidence, answer, {
    what: 'evidence of the host',
    code: 'attest.unavailable',
  })
  const decodeBase64Url = (text: string) => {
    const bytes = fromBase64Url(text)
    if (bytes === null) throw new Fault('attest.unavailable', 'evidence of the host: not canonical base64url')
    return bytes
  }
  return {
    report: decodeBase64Url(report),
    vek: decodeBase64Url(vek),
    chain: [decodeBase64Url(chain[0]), decodeBase64Url(chain[1])],
    ...(crl === undefined ? {} : { crl: decodeBase64Url(crl) }),
  }
}
