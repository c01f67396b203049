// Builds in VMs: orders, progress and evidence. Effects: calls guests, reads the ledger.
//
// The guest is hostile: its statements are compared with its launch before any other work. Nothing here is verified.

import { reportDataOf, type StatementKind } from '../../attest/receipt/statement.ts'
import { present } from '../../base/assert.ts'
import { concat, fromHex, toBase64Url } from '../../base/bytes.ts'
import type { AttestedStage, BuildAgentRequest, BuildEvidence, BuildProgress } from '../../contract/vm/build-agent.ts'
import type { BuildOrder } from '../../contract/vm/build-order.ts'
import { ask } from '../../host/qemu/agent-channel.ts'
import type { LedgerDb } from '../../store/db.ts'
import type { AcceptEvidence, VouchWanted } from '../build-engine.ts'
import type { VmLink } from '../link.driver.ts'
import { checkStatement, signedOf } from './evidence.driver.ts'
import {
  attached,
  completeReport,
  type EvidenceSources,
  type Launched,
  launchedVm,
  refusedEvidence,
  simulatedLaunch,
  vmEvidence,
} from './report.driver.ts'

export type VmBuildsDeps = {
  readonly db: LedgerDb
  readonly sources: EvidenceSources
  readonly linkOf: (vmId: string) => Pick<VmLink, 'channel'> | null
}

type Vouched = Extract<BuildAgentRequest, { op: 'vouched' }>

const kinds = { dispatch: 'build-dispatch', completion: 'build' } as const satisfies Record<
  AttestedStage,
  StatementKind
>
/** Length of REPORT_DATA. */
const reportDataBytes = 64
/** Length in bytes of a nonce that the report over the provenance contains. Shorter ones are only in the receipts. */
const wholeNonceBytes = 16

export class VmBuilds {
  readonly #deps: VmBuildsDeps

  constructor(deps: VmBuildsDeps) {
    this.#deps = deps
  }

  /** See BuildEngine.order. */
  async order(vmId: string, order: BuildOrder, timeoutMs: number): Promise<void> {
    await this.#channelOf(vmId).request({ op: 'build', order }, timeoutMs)
  }

  /** See BuildEngine.progress. */
  async progress(vmId: string, from: number, timeoutMs: number): Promise<BuildProgress> {
    return await ask(this.#channelOf(vmId), { op: 'progress', from }, 'progress', timeoutMs)
  }

  async cancel(vmId: string, timeoutMs: number): Promise<void> {
    await this.#channelOf(vmId).request({ op: 'cancel' }, timeoutMs)
  }

  /** See BuildEngine.vouch. `nonce` is the build's. */
  async vouch(vmId: string, { stage, nonce }: VouchWanted, accept: AcceptEvidence, timeoutMs: number): Promise<void> {
    const launched = launchedVm(this.#deps.db, vmId)
    const channel = this.#channelOf(vmId)
    const answer = await ask(channel, { op: 'vouch', simulated: simulatedLaunch(launched) }, 'vouched', timeoutMs)
    if (answer.stage !== stage) throw refusedEvidence(vmId, `its guest is at ${answer.stage}, not at ${stage}`)
    const signed = signedOf(answer)
    checkStatement(signed.statement, { kind: kinds[stage], vmId, nonce, launch: launched.launch, keys: signed.keys })
    checkProvenanceWanted(vmId, answer, nonce)
    const reportData = reportDataOf(signed.statement)
    const evidence = await completeReport(this.#deps.sources, launched, { guestReport: answer.report, reportData })
    const vouched = vmEvidence(launched, signed, evidence)
    const receipt = JSON.stringify(vouched.receipt)
    const provenance = await this.#provenanceEvidence(launched, answer, nonce)
    if (!(await accept(vouched))) return
    await channel.request({ op: 'vouched', stage, receipt, provenance }, timeoutMs)
  }

  /**
   * Returns the second report of a completion, over the digest of provenance.json and the nonce. Null if none is
   * requested.
   */
  async #provenanceEvidence(
    launched: Launched,
    { provenance }: BuildEvidence,
    nonce: Uint8Array,
  ): Promise<Vouched['provenance']> {
    if (provenance === null) return null
    const digest = present(fromHex(provenance.sha256), 'the schema lets only hexadecimal through')
    const reportData = concat(digest, nonce, new Uint8Array(reportDataBytes - digest.length - nonce.length))
    const { report, vek, chain } = await completeReport(this.#deps.sources, launched, {
      guestReport: provenance.report,
      reportData,
    })
    const [ask, ark] = chain
    return { report: toBase64Url(report), vek: toBase64Url(vek), ask: toBase64Url(ask), ark: toBase64Url(ark) }
  }

  #channelOf(vmId: string): VmLink['channel'] {
    return attached(vmId, this.#deps.linkOf(vmId)).channel
  }
}

/**
 * Checks whether the guest requests a report over the provenance exactly if one is due. Throws Fault channel.refused.
 */
function checkProvenanceWanted(vmId: string, { stage, provenance }: BuildEvidence, nonce: Uint8Array): void {
  const isWanted = stage === 'completion' && nonce.length === wholeNonceBytes
  if ((provenance !== null) === isWanted) return
  throw refusedEvidence(vmId, `a report over the provenance is ${isWanted ? 'missing' : 'not wanted here'}`)
}
