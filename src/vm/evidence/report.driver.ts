// A VM's report with its certificates, from hardware or simulated. Effects: reads the ledger, calls key services.

import { decodeReceipt, encodeReceipt, type ReceiptEvidence } from '../../attest/receipt/receipt.ts'
import { decodeReport } from '../../attest/report/report.ts'
import { present } from '../../base/assert.ts'
import { equalConstantTime, fromBase64Url, fromHex, utf8 } from '../../base/bytes.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { checkedJson } from '../../contract/check.ts'
import { LaunchDocument } from '../../contract/vm/launch.ts'
import { type CollateralResult, collateralRemedy } from '../../host/kds/collateral.ts'
import type { SimulatedHost } from '../../host/simulated-host.ts'
import type { LedgerDb } from '../../store/db.ts'
import { launchOf } from '../../store/ledger/launch.query.ts'
import { vmById } from '../../store/ledger/vm.query.ts'
import type { Launch, Vm } from '../../store/ledger/vm.table.ts'
import type { VmEvidence } from '../engine.ts'

export type EvidenceSources = {
  /**
   * Returns certificates for a report of this host's hardware. Null if they are unavailable (see
   * appliance/collateral.ts).
   */
  readonly collateral: ((report: Uint8Array) => Promise<CollateralResult>) | null
  /** Returns the platform of VMs without such hardware. */
  readonly simulated: () => Promise<Pick<SimulatedHost, 'evidence'>>
}

/** A VM and its recorded launch. */
export type Launched = { readonly vm: Vm; readonly launch: Launch }

/** Returns a VM with its launch. Throws Fault attest.unavailable if the launch is not recorded. */
export function launchedVm(db: LedgerDb, vmId: string): Launched {
  const vm = vmById(db, vmId)
  const launch = launchOf(db, vmId)
  if (vm !== null && launch !== null) return { vm, launch }
  throw new Fault(
    'attest.unavailable',
    `VM ${vmId} has no record of its launch: an earlier release started it. Delete the instance and create another`,
  )
}

/** Returns the launch as a simulated platform reports it. Null if the guest has a report device. */
export function simulatedLaunch({ vm, launch }: Launched): { measurement: string; operatorKey: string } | null {
  const { measurement, operatorKey } = launch
  return vm.platform === 'snp' ? null : { measurement, operatorKey }
}

/**
 * Completes the report over `reportData` with its certificates. `guestReport`: null if the simulated platform makes it.
 * A report of another launch is refused before the key distribution service is called. Faults: channel.refused,
 * attest.unavailable.
 */
export function completeReport(
  sources: EvidenceSources,
  launched: Launched,
  { guestReport, reportData }: { readonly guestReport: string | null; readonly reportData: Uint8Array },
): Promise<ReceiptEvidence> {
  const { vm, launch } = launched
  if ((guestReport !== null) !== (vm.platform === 'snp')) throw wrongPlatform(vm, guestReport !== null)
  if (guestReport === null) return simulate(sources, launch, reportData)
  return complete(sources, launched, { report: evidenceBytes(guestReport, 'report'), reportData })
}

/** Makes a simulated report. It states only that a VM of this launch asked for a report over these bytes. */
async function simulate(sources: EvidenceSources, launch: Launch, reportData: Uint8Array): Promise<ReceiptEvidence> {
  try {
    const host = await sources.simulated()
    return await host.evidence({
      reportData,
      measurement: ledgerHex(launch.measurement),
      hostData: ledgerHex(launch.hostData),
      operatorKey: ledgerHex(launch.operatorKey),
      policy: BigInt(launchDocumentOf(launch).policy),
    })
  } catch (error) {
    throw new Fault('attest.unavailable', `the simulated platform: ${messageOf(error)}`, { cause: error })
  }
}

async function complete(
  { collateral }: EvidenceSources,
  { vm, launch }: Launched,
  { report, reportData }: { readonly report: Uint8Array; readonly reportData: Uint8Array },
): Promise<ReceiptEvidence> {
  checkReport(report, reportData, { vmId: vm.id, launch })
  if (collateral === null) {
    throw new Fault(
      'attest.unavailable',
      'there are no certificates for reports of this host: its processor is of no known EPYC product. Install a newer strongroom',
    )
  }
  const found = await collateral(report)
  if (found.ok) return { report, ...found.collateral }
  const retry =
    found.retryAfterMs === null ? '' : `; the next attempt may be made in ${Math.ceil(found.retryAfterMs / 1000)} s`
  throw new Fault(
    'attest.unavailable',
    `the report of VM ${vm.id} lacks its certificates: ${found.reason}${retry}. To do: ${collateralRemedy}`,
  )
}

/** Returns the link. Throws Fault channel.closed if the VM is not attached. */
export function attached<Link>(vmId: string, link: Link | null): Link {
  if (link === null) throw new Fault('channel.closed', `VM ${vmId} is not attached`)
  return link
}

/**
 * Builds the receipt of a guest's statement, in the form sent to the VM's owner. Throws Fault channel.refused if it
 * exceeds the bounds.
 */
export function vmEvidence({ vm, launch }: Launched, signed: Signed, evidence: ReceiptEvidence): VmEvidence {
  const platform = vm.platform === 'snp' ? 'snp' : 'simulated'
  const receipt = encodeReceipt({ platform, ...signed, evidence })
  try {
    // The bounds of receipts also apply here: a receipt that exceeds them would be useless.
    decodeReceipt(receipt)
  } catch (error) {
    throw refusedEvidence(vm.id, messageOf(error))
  }
  const operatorKey = ledgerHex(launch.operatorKey)
  return { receipt, launch: launch.document, operatorKey, simulated: platform === 'simulated' }
}

export type Signed = Omit<Parameters<typeof encodeReceipt>[0], 'platform' | 'evidence'>

export function refusedEvidence(vmId: string, what: string): Fault {
  return new Fault('channel.refused', `evidence of VM ${vmId}: ${what}`)
}

export function wrongPlatform(vm: Vm, hasDevice: boolean): Fault {
  const found = hasDevice ? 'a report device of its own' : 'no report device'
  const reason = hasDevice
    ? 'this host started it without SEV-SNP'
    : 'its kernel lacks the driver, or it was not started with SEV-SNP'
  return refusedEvidence(vm.id, `the VM was started on ${vm.platform}, but its guest reports ${found}: ${reason}`)
}

/** Decodes the bytes. Throws Fault channel.refused. */
export function evidenceBytes(base64url: string, what: string): Uint8Array {
  const bytes = fromBase64Url(base64url)
  if (bytes === null) throw new Fault('channel.refused', `agent evidence: ${what} is not canonical base64url`)
  return bytes
}

function checkReport(
  bytes: Uint8Array,
  reportData: Uint8Array,
  { vmId, launch }: { vmId: string; launch: Launch },
): void {
  let report: ReturnType<typeof decodeReport>
  try {
    report = decodeReport(bytes)
  } catch (error) {
    throw refusedEvidence(vmId, messageOf(error))
  }
  const wrong = (
    [
      ['REPORT_DATA', report.reportData, reportData],
      ['MEASUREMENT', report.measurement, ledgerHex(launch.measurement)],
      ['HOST_DATA', report.hostData, ledgerHex(launch.hostData)],
      ['ID_KEY_DIGEST', report.idKeyDigest, ledgerHex(launch.operatorKey)],
    ] as const
  ).find(([, found, expected]) => !equalConstantTime(found, expected))
  if (wrong !== undefined)
    throw refusedEvidence(vmId, `${wrong[0]} of its report is not that of its launch and statement`)
}

export function launchDocumentOf(launch: Launch): LaunchDocument {
  const what = `launch document of VM ${launch.vmId}`
  return checkedJson(LaunchDocument, utf8(launch.document), { what, code: 'internal' })
}

export function ledgerHex(text: string): Uint8Array {
  return present(fromHex(text), 'the ledger keeps digests in hexadecimal')
}
