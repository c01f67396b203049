// Fresh evidence of claimed VMs: the guest's statement and the report over it. Effects: calls guests, reads the
// ledger.
//
// The guest is hostile: its statements are compared with the launch before any work is done for it, and each VM gets
// one piece of work at a time. Results are complete, not verified: the caller checks the content of the statement.

import { keysDigest, type PublicKeys } from '../../attest/receipt/public-keys.ts'
import type { Receipt } from '../../attest/receipt/receipt.ts'
import { decodeStatement, reportDataOf, type Statement, type StatementKind } from '../../attest/receipt/statement.ts'
import { equalConstantTime } from '../../base/bytes.ts'
import type { Clock } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { createSerial, type Serial } from '../../base/work/serial.ts'
import type { GuestEvidence } from '../../contract/vm/agent-responses.ts'
import { collateralRemedy } from '../../host/kds/collateral.ts'
import type { LedgerDb } from '../../store/db.ts'
import type { Launch } from '../../store/ledger/vm.table.ts'
import type { VmEvidence } from '../engine.ts'
import type { VmLink } from '../link.driver.ts'
import {
  attached,
  completeReport,
  type EvidenceSources,
  evidenceBytes,
  launchDocumentOf,
  launchedVm,
  ledgerHex,
  refusedEvidence,
  type Signed,
  simulatedLaunch,
  vmEvidence,
  wrongPlatform,
} from './report.driver.ts'

export type EvidenceTakerDeps = {
  readonly db: LedgerDb
  readonly clock: Clock
  readonly sources: EvidenceSources
  readonly linkOf: (vmId: string) => Pick<VmLink, 'channel' | 'observe'> | null
}

/** Maximum per VM: one in progress, and those that wait. No share: limits each VM. */
const countMax = 4
/** Bound of the wire (contract/vm/agent.ts). */
const receiptCharsMax = 98_304

/** The step in progress, as text. */
type Progress = { step: string; readonly deadlineMs: number }

export class EvidenceTaker {
  readonly #deps: EvidenceTakerDeps
  readonly #turns = new Map<string, Serial>()

  constructor(deps: EvidenceTakerDeps) {
    this.#deps = deps
  }

  /** See VmEngine.evidence. */
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

  /** See VmEngine.handReceipt. */
  async hand(vmId: string, receipt: Receipt, timeoutMs: number): Promise<void> {
    const text = JSON.stringify(receipt)
    if (text.length > receiptCharsMax) throw new Fault('channel.refused', `a receipt of ${text.length} characters`)
    await this.#linkTo(vmId).channel.receipt(text, timeoutMs)
  }

  async #take(vmId: string, nonce: Uint8Array, progress: Progress): Promise<VmEvidence> {
    const { db, clock } = this.#deps
    const leftMs = progress.deadlineMs - clock.monotonicMs()
    if (leftMs <= 0) throw tooLate(vmId, progress, 0)
    const launched = launchedVm(db, vmId)
    const { vm, launch } = launched
    const { channel, observe } = this.#linkTo(vmId)
    const isSnp = vm.platform === 'snp'
    const { hello } = observe()
    if (hello !== null && (hello.platform === 'snp') !== isSnp) throw wrongPlatform(vm, hello.platform === 'snp')
    progress.step = 'its guest'
    const answer = await channel.evidence(nonce, simulatedLaunch(launched), leftMs)
    if ((answer.report !== null) !== isSnp) throw wrongPlatform(vm, answer.report !== null)
    const signed = signedOf(answer)
    checkStatement(signed.statement, { kind: 'claim', vmId, nonce, launch, keys: signed.keys })
    progress.step = isSnp ? 'the certificates of its report' : 'the simulated platform'
    const tpm = answer.tpm === undefined ? {} : { tpm: evidenceBytes(answer.tpm, 'tpm') }
    const reportData = reportDataOf(signed.statement)
    const evidence = await completeReport(this.#deps.sources, launched, { guestReport: answer.report, reportData })
    return vmEvidence(launched, signed, { ...evidence, ...tpm })
  }

  #linkTo(vmId: string): Pick<VmLink, 'channel' | 'observe'> {
    return attached(vmId, this.#deps.linkOf(vmId))
  }
}

function tooLate(vmId: string, { step }: Progress, timeoutMs: number): Fault {
  const code = step === 'its guest' || step === 'its turn' ? 'channel.timeout' : 'attest.unavailable'
  const remedy = code === 'attest.unavailable' ? `. To do: ${collateralRemedy}` : ''
  return new Fault(code, `evidence of VM ${vmId}: still waiting for ${step} after ${timeoutMs} ms${remedy}`)
}

/** Decodes a guest's signed statement, whose lengths the wire's schema has checked. Throws Fault channel.refused. */
export function signedOf({
  statement,
  keys,
  signatures,
}: Pick<GuestEvidence, 'statement' | 'keys' | 'signatures'>): Signed {
  return {
    statement: evidenceBytes(statement, 'statement'),
    keys: {
      ed25519: evidenceBytes(keys.ed25519, 'keys.ed25519'),
      mldsa65: evidenceBytes(keys.mldsa65, 'keys.mldsa65'),
      x25519: evidenceBytes(keys.x25519, 'keys.x25519'),
      mlkem768: evidenceBytes(keys.mlkem768, 'keys.mlkem768'),
    },
    signatures: {
      ed25519: evidenceBytes(signatures.ed25519, 'signatures.ed25519'),
      mldsa65: evidenceBytes(signatures.mldsa65, 'signatures.mldsa65'),
    },
  }
}

type StatementQuery = {
  readonly kind: StatementKind
  readonly vmId: string
  readonly nonce: Uint8Array
  readonly launch: Launch
  readonly keys: PublicKeys
}

/** Checks kind, nonce, keys and launch of a statement; the caller checks the rest. Throws Fault channel.refused. */
export function checkStatement(bytes: Uint8Array, { kind, vmId, nonce, launch, keys }: StatementQuery): void {
  const statement = statementOf(bytes, { kind, vmId })
  const wrong = (
    [
      ['another nonce', equalConstantTime(statement.nonce, nonce)],
      ['other keys', equalConstantTime(statement.keysDigest, keysDigest(keys))],
      ['another image', statement.image.name === launchDocumentOf(launch).image.name],
      ['another measurement', equalConstantTime(statement.image.measurement, ledgerHex(launch.measurement))],
      ['another operator key', equalConstantTime(statement.operatorKey, ledgerHex(launch.operatorKey))],
    ] as const
  ).find(([, holds]) => !holds)
  if (wrong !== undefined) throw refusedEvidence(vmId, `the statement of its guest is for ${wrong[0]}`)
}

function statementOf(bytes: Uint8Array, { kind, vmId }: Pick<StatementQuery, 'kind' | 'vmId'>): Statement {
  let stated: string
  try {
    const statement = decodeStatement(bytes)
    if (statement.kind === kind) return statement
    stated = statement.kind
  } catch (error) {
    throw refusedEvidence(vmId, messageOf(error))
  }
  throw refusedEvidence(vmId, `its guest states a ${stated}, not a ${kind}`)
}
