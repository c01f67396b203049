// Attestation of an instance for its owner: stored with the claim, or fresh from the running VM. Effects: reads the
// store; the VM engine.

import type { Clock } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { checkValue } from '../contract/check.ts'
import { InstanceAttestation } from '../contract/http/instance-attestation.ts'
import { LimitedFault, UnavailableFault } from '../http/limited.ts'
import type { DirectoryStore } from '../store/db.ts'
import { attestationOf } from '../store/directory/attestation.query.ts'
import type { Instance, InstanceStatus } from '../store/directory/instance.table.ts'
import type { VmEngine, VmEvidence } from '../vm/engine.ts'
import type { HostTrust } from '../vm/evidence/launch-policy.plan.ts'
import { toAttestation } from './attestation.codec.ts'
import { type AttestationTrustOf, type ClaimedAs, judgeEvidence } from './evidence.verify.ts'
import { normalizedKey } from './public-key.codec.ts'
import { ownInstance, type Principal, type RecordView } from './service.ts'

export type AttestationsDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'read'>
  readonly hostId: string
  readonly engine: Pick<VmEngine, 'evidence' | 'handReceipt'>
  readonly trust: AttestationTrustOf
  /** Counts a fresh attestation against the caller's key. Fault rate_limited. */
  readonly admit: (keyPrefix: string) => void
  readonly clock: Pick<Clock, 'nowMs'>
  readonly log: Logger
}

/** Another host of the fleet runs the virtual machine, and must provide its evidence. */
export type OnOtherHost = { readonly otherHostId: string }

const evidenceTimeoutMs = 15_000
const retryMs = 5_000
const busyRetryMs = 1_000

export class Attestations {
  readonly #deps: AttestationsDeps
  /** VMs that are producing evidence at the moment. */
  readonly #busy = new Set<string>()

  constructor(deps: AttestationsDeps) {
    this.#deps = deps
  }

  /**
   * Returns the evidence stored with the claim if there is no nonce, while the record exists. With a nonce, returns
   * fresh evidence while the instance is ready, from the host with its VM. Faults: not_found, conflict (there is none),
   * rate_limited, attestation_unavailable (retry later).
   */
  async show(
    caller: Principal,
    name: string,
    nonce: Uint8Array | null,
  ): Promise<RecordView<InstanceAttestation> | OnOtherHost> {
    const { directory, hostId, admit } = this.#deps
    const instance = await directory.read(null, db => ownInstance(db, caller, name))
    const platforms = [instance.platform]
    const kept = attestationOf(directory.db, instance.id)
    const isElsewhere = instance.hostId !== hostId
    // Evidence of the claim is copied between hosts; shortly after the claim only the VM's host has it.
    if (isElsewhere && MAY_BE_READY.has(instance.status) && (nonce !== null || kept === null)) {
      return { otherHostId: instance.hostId }
    }
    if (kept === null || (nonce !== null && instance.status !== 'ready')) throw conflict(instance.status)
    const stored = checkValue(InstanceAttestation, JSON.parse(kept.document))
    // This VM's statement has an older form, which does not satisfy owners.
    if (!stored.ok) throw new Fault('conflict', TOO_OLD)
    if (nonce === null) return { data: stored.value, platforms }
    const { vmId, hostname, platform } = instance
    const publicKey = normalizedKey(instance.publicKey)
    if (vmId === null) throw new UnavailableFault(NO_VM, busyRetryMs)
    admit(caller.keyPrefix)
    const organization = caller.organization.slug
    const { claim } = stored.value
    const claimed = { organization, name, hostname, publicKey, sshHostKey: kept.sshHostKey, claim }
    return { data: await this.#fresh(vmId, { nonce, claimed, platform }), platforms }
  }

  /** Produces one at a time per VM, so that frequent requests keep neither the guest nor this host busy. */
  async #fresh(vmId: string, asked: AttestationQuery): Promise<InstanceAttestation> {
    if (this.#busy.has(vmId)) {
      throw new LimitedFault(
        'The instance is making another attestation right now; ask again in a second.',
        busyRetryMs,
      )
    }
    this.#busy.add(vmId)
    try {
      const evidence = await this.#evidence(vmId, asked)
      await this.#handReceipt(vmId, evidence)
      return toAttestation(evidence, asked)
    } finally {
      this.#busy.delete(vmId)
    }
  }

  async #evidence(vmId: string, asked: AttestationQuery): Promise<VmEvidence> {
    const { engine, clock, log } = this.#deps
    let evidence: VmEvidence
    let trust: HostTrust
    try {
      trust = await this.#deps.trust(asked.platform ?? undefined)
      evidence = await engine.evidence(vmId, asked.nonce, evidenceTimeoutMs)
    } catch (error) {
      if (!(error instanceof Fault) || !isPassing(error)) throw error
      log.warn('an instance could not be attested', { vm: vmId, error })
      const what = error.code === 'attest.unavailable' ? NO_COLLATERAL : NO_ANSWER
      throw new UnavailableFault(what, retryMs, { cause: error })
    }
    const judgement = await judgeEvidence(evidence, { ...asked, asOf: clock.nowMs(), trust })
    if (judgement.ok) return evidence
    log.error('the evidence of a ready instance does not verify', { vm: vmId, failed: judgement.failed })
    throw new UnavailableFault(NOT_GOOD, retryMs)
  }

  /** Sends the receipt to the verifier inside the VM, which would otherwise keep using aging certificates. */
  async #handReceipt(vmId: string, { receipt }: VmEvidence): Promise<void> {
    const { engine, log } = this.#deps
    try {
      await engine.handReceipt(vmId, receipt, evidenceTimeoutMs)
    } catch (error) {
      log.warn('a VM did not take its newest receipt; the one before stays', { vm: vmId, error })
    }
  }
}

type AttestationQuery = {
  readonly nonce: Uint8Array
  readonly claimed: ClaimedAs
  readonly platform: Instance['platform']
}

const NO_ANSWER = 'The virtual machine does not answer right now; try again after the time in Retry-After.'
const NO_VM = 'This host does not have the virtual machine at present; try again after the time in Retry-After.'
const NO_COLLATERAL =
  'The certificates that verify the evidence are missing; try again after the time in Retry-After. If it lasts, tell the operator.'
const NOT_GOOD =
  'The answer of the virtual machine does not verify. Do not trust it; tell the operator, whose log has the reason.'

/** The instance's host learns that it is ready before other hosts do. */
const MAY_BE_READY: ReadonlySet<InstanceStatus> = new Set(['provisioning', 'ready'])

function isPassing({ code }: Fault): boolean {
  return code.startsWith('channel.') || code === 'attest.unavailable'
}

function conflict(status: InstanceStatus): Fault {
  return new Fault('conflict', WORDS[status])
}

const TOO_OLD = 'The instance was made before its whole claim was attested; create another one to have it attested.'

const WORDS = {
  provisioning:
    'The instance is not ready yet, so there is no attestation; wait until its status is ready, then ask again.',
  ready: 'The instance was made before instances were attested; create another one to have it attested.',
  failed: 'The instance has failed and cannot be attested; see its failure_code, delete it and create another one.',
  terminating: 'The instance is being deleted and cannot be attested any more; create another one.',
  terminated: 'The instance is deleted and cannot be attested any more; create another one.',
} as const satisfies Record<InstanceStatus, string>
