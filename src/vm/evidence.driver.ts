// Fresh evidence of claimed VMs: the guest's signed statement, and the platform's report over it. Effects: asks guests, reads the ledger.
//
// The guest is hostile: what it says is held against the launch before anybody works for it, and one VM gets one piece of work at a time.
// What comes out is complete, not yet verified: whoever asked knows what the statement has to say.

import { keysDigest, type PublicKeys } from '../attest/receipt/public-keys.ts'
import { decodeReceipt, encodeReceipt, type Receipt, type ReceiptEvidence } from '../attest/receipt/receipt.ts'
import { decodeStatement, reportDataOf, type StatementOf } from '../attest/receipt/statement.ts'
import { decodeReport } from '../attest/report/report.ts'
import { present } from '../base/assert.ts'
import { equalConstantTime, fromBase64Url, fromHex, utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { createSerial, type Serial } from '../base/serial.ts'
import type { GuestEvidence } from '../contract/agent.ts'
import { LaunchDocument } from '../contract/launch.ts'
import { checkedJson } from '../contract/shape.ts'
import { type CollateralResult, collateralRemedy } from '../host/kds/collateral.ts'
import type { SimulatedHost } from '../host/simulated-host.ts'
import type { LedgerDb } from '../store/db.ts'
import { launchOf } from '../store/ledger/launch.query.ts'
import { vmById } from '../store/ledger/vm.query.ts'
import type { Launch, Vm } from '../store/ledger/vm.table.ts'
import type { VmEvidence } from './engine.ts'
import type { VmLink } from './link.driver.ts'

export type EvidenceSources = {
  /** Certificates for a report of this host's hardware; null where nobody has them (appliance/collateral.ts says why). */
  readonly collateral: ((report: Uint8Array) => Promise<CollateralResult>) | null
  /** The platform of VMs without such hardware. */
  readonly simulated: () => Promise<Pick<SimulatedHost, 'evidence'>>
}

export type EvidenceTakerDeps = {
  readonly db: LedgerDb
  readonly clock: Clock
  readonly sources: EvidenceSources
  readonly linkOf: (vmId: string) => Pick<VmLink, 'channel' | 'observe'> | null
}

/** For each VM: one that is being taken, the others wait. */
const countMax = 4
/** As the wire allows (contract/agent.ts). */
const receiptCharsMax = 98_304

/** What an answer is waited for, in words. */
type Progress = { step: string; readonly deadlineMs: number }

export class EvidenceTaker {
  readonly #deps: EvidenceTakerDeps
  readonly #turns = new Map<string, Serial>()

  constructor(deps: EvidenceTakerDeps) {
    this.#deps = deps
  }

  /** As VmEngine.evidence. */
  async take(vmId: string, nonce: Uint8Array, timeoutMs: number): Promise<VmEvidence> {
    const turns = this.#turns.get(vmId) ?? createSerial()
    this.#turns.set(vmId, turns)
    if (turns.size() >= countMax) throw new Fault('channel.refused', `evidence of VM ${vmId}: ${countMax} wait already`)
    const progress: Progress = { step: 'its turn', deadlineMs: this.#deps.clock.monotonicMs() + timeoutMs }
    const turn = turns
      .run(() => this.#take(vmId, nonce, progress))
      .finally(() => {
        if (turns.size() === 0 && this.#turns.get(vmId) === turns) this.#turns.delete(vmId)
      })
    const late = new AbortController()
    const lateness = this.#deps.clock.sleep(timeoutMs, late.signal).then(() => {
      throw tooLate(vmId, progress, timeoutMs)
    })
    try {
      return await Promise.race([turn, lateness])
    } finally {
      late.abort()
    }
  }

  /** As VmEngine.handReceipt. */
  async hand(vmId: string, receipt: Receipt, timeoutMs: number): Promise<void> {
    const text = JSON.stringify(receipt)
    if (text.length > receiptCharsMax) throw new Fault('channel.refused', `a receipt of ${text.length} characters`)
    await this.#linkTo(vmId).channel.receipt(text, timeoutMs)
  }

  async #take(vmId: string, nonce: Uint8Array, progress: Progress): Promise<VmEvidence> {
    const { db, clock } = this.#deps
    const leftMs = progress.deadlineMs - clock.monotonicMs()
    if (leftMs <= 0) throw tooLate(vmId, progress, 0)
    const vm = vmById(db, vmId)
    const launch = launchOf(db, vmId)
    if (vm === null || launch === null) {
      throw new Fault(
        'attest.unavailable',
        `VM ${vmId} has no record of its launch: an earlier release started it. Delete the instance and create another`,
      )
    }
    const { channel, observe } = this.#linkTo(vmId)
    const isSnp = vm.platform === 'snp'
    const { hello } = observe()
    if (hello !== null && (hello.platform === 'snp') !== isSnp) throw wrongPlatform(vm, hello.platform === 'snp')
    const { measurement, operatorKey } = launch
    progress.step = 'its guest'
    const said = await channel.evidence(nonce, isSnp ? null : { measurement, operatorKey }, leftMs)
    if ((said.report !== null) !== isSnp) throw wrongPlatform(vm, said.report !== null)
    const signed = signedOf(said)
    checkStatement(signed.statement, { vmId, nonce, launch, keys: signed.keys })
    progress.step = isSnp ? 'the certificates of its report' : 'the simulated platform'
    const tpm = said.tpm === undefined ? {} : { tpm: bytesOf(said.tpm, 'tpm') }
    const evidence = await (said.report === null
      ? this.#simulate(signed.statement, launch)
      : this.#complete(bytesOf(said.report, 'report'), signed.statement, { vmId, launch }))
    const platform = isSnp ? 'snp' : 'simulated'
    const receipt = encodeReceipt({ platform, ...signed, evidence: { ...evidence, ...tpm } })
    try {
      // Its bounds are those of every receipt: what breaks them would be of no use to anybody.
      decodeReceipt(receipt)
    } catch (error) {
      throw refused(vmId, messageOf(error))
    }
    return { receipt, launch: launch.document, simulated: !isSnp }
  }

  #linkTo(vmId: string): Pick<VmLink, 'channel' | 'observe'> {
    const link = this.#deps.linkOf(vmId)
    if (link === null) throw new Fault('channel.closed', `VM ${vmId} is not attached`)
    return link
  }

  /** The simulated platform signs this one thing: that a VM of this launch has made this claim statement. */
  async #simulate(statement: Uint8Array, launch: Launch): Promise<ReceiptEvidence> {
    try {
      const host = await this.#deps.sources.simulated()
      return await host.evidence({
        reportData: reportDataOf(statement),
        measurement: hexOf(launch.measurement),
        hostData: hexOf(launch.hostData),
        operatorKey: hexOf(launch.operatorKey),
        policy: BigInt(documentOf(launch).policy),
      })
    } catch (error) {
      throw new Fault('attest.unavailable', `the simulated platform: ${messageOf(error)}`, { cause: error })
    }
  }

  /** Report and certificates. A report of another launch is refused before the key distribution service is asked for anything. */
  async #complete(
    report: Uint8Array,
    statement: Uint8Array,
    of: { vmId: string; launch: Launch },
  ): Promise<ReceiptEvidence> {
    const { vmId } = of
    checkReport(report, statement, of)
    const { collateral } = this.#deps.sources
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
      `the report of VM ${vmId} lacks its certificates: ${found.reason}${retry}. To do: ${collateralRemedy}`,
    )
  }
}

function tooLate(vmId: string, { step }: Progress, timeoutMs: number): Fault {
  const code = step === 'its guest' || step === 'its turn' ? 'channel.timeout' : 'attest.unavailable'
  const remedy = code === 'attest.unavailable' ? `. To do: ${collateralRemedy}` : ''
  return new Fault(code, `evidence of VM ${vmId}: still waiting for ${step} after ${timeoutMs} ms${remedy}`)
}

function refused(vmId: string, what: string): Fault {
  return new Fault('channel.refused', `evidence of VM ${vmId}: ${what}`)
}

function wrongPlatform(vm: Vm, hasDevice: boolean): Fault {
  const found = hasDevice ? 'a report device of its own' : 'no report device'
  const reason = hasDevice
    ? 'this host started it without SEV-SNP'
    : 'its kernel lacks the driver, or it was not started with SEV-SNP'
  return refused(vm.id, `the VM was started on ${vm.platform}, but its guest says that it has ${found}: ${reason}`)
}

type Signed = Omit<Parameters<typeof encodeReceipt>[0], 'platform' | 'evidence'>

/** The schema of the wire has checked the lengths. */
function signedOf({ statement, keys, signatures }: GuestEvidence): Signed {
  return {
    statement: bytesOf(statement, 'statement'),
    keys: {
      ed25519: bytesOf(keys.ed25519, 'keys.ed25519'),
      mldsa65: bytesOf(keys.mldsa65, 'keys.mldsa65'),
      x25519: bytesOf(keys.x25519, 'keys.x25519'),
      mlkem768: bytesOf(keys.mlkem768, 'keys.mlkem768'),
    },
    signatures: {
      ed25519: bytesOf(signatures.ed25519, 'signatures.ed25519'),
      mldsa65: bytesOf(signatures.mldsa65, 'signatures.mldsa65'),
    },
  }
}

function bytesOf(base64url: string, what: string): Uint8Array {
  const bytes = fromBase64Url(base64url)
  if (bytes === null) throw new Fault('channel.refused', `agent evidence: ${what} is not canonical base64url`)
  return bytes
}

type Asked = { readonly vmId: string; readonly nonce: Uint8Array; readonly launch: Launch; readonly keys: PublicKeys }

/** It is a claim, over this nonce and these keys, in a VM of this launch. Who claimed it, the caller checks. Fault channel.refused. */
function checkStatement(bytes: Uint8Array, { vmId, nonce, launch, keys }: Asked): void {
  const statement = claimOf(bytes, vmId)
  const wrong = (
    [
      ['another nonce', equalConstantTime(statement.nonce, nonce)],
      ['other keys', equalConstantTime(statement.keysDigest, keysDigest(keys))],
      ['another image', statement.image.name === documentOf(launch).image.name],
      ['another measurement', equalConstantTime(statement.image.measurement, hexOf(launch.measurement))],
      ['another operator key', equalConstantTime(statement.operatorKey, hexOf(launch.operatorKey))],
    ] as const
  ).find(([, holds]) => !holds)
  if (wrong !== undefined) throw refused(vmId, `the statement of its guest is for ${wrong[0]}`)
}

function claimOf(bytes: Uint8Array, vmId: string): StatementOf<'claim'> {
  let kind: string
  try {
    const statement = decodeStatement(bytes)
    if (statement.kind === 'claim') return statement
    kind = statement.kind
  } catch (error) {
    throw refused(vmId, messageOf(error))
  }
  throw refused(vmId, `its guest states a ${kind}, not a claim`)
}

function checkReport(
  bytes: Uint8Array,
  statement: Uint8Array,
  { vmId, launch }: { vmId: string; launch: Launch },
): void {
  let report: ReturnType<typeof decodeReport>
  try {
    report = decodeReport(bytes)
  } catch (error) {
    throw refused(vmId, messageOf(error))
  }
  const wrong = (
    [
      ['REPORT_DATA', report.reportData, reportDataOf(statement)],
      ['MEASUREMENT', report.measurement, hexOf(launch.measurement)],
      ['HOST_DATA', report.hostData, hexOf(launch.hostData)],
      ['ID_KEY_DIGEST', report.idKeyDigest, hexOf(launch.operatorKey)],
    ] as const
  ).find(([, found, expected]) => !equalConstantTime(found, expected))
  if (wrong !== undefined) throw refused(vmId, `${wrong[0]} of its report is not that of its launch and statement`)
}

function documentOf(launch: Launch): LaunchDocument {
  const what = `launch document of VM ${launch.vmId}`
  return checkedJson(LaunchDocument, utf8(launch.document), { what, code: 'internal' })
}

function hexOf(text: string): Uint8Array {
  return present(fromHex(text), 'the ledger keeps digests in hexadecimal')
}
