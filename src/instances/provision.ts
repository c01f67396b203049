// Turns a running VM into an instance that its owner can use: claim, evidence, network, SSH. Effects: through the VM
// engine and the SSH probe.
//
// The network opens only after the evidence has passed: until then a VM with a false claim cannot reach anything. The
// probe works on a closed network (the firewall lets this host reach port 22) and proves the host key independently of
// the evidence. Afterwards the firewall is checked to be open. Every step may be repeated: after a crash the next
// daemon starts again with the claim.

import type { Receipt } from '../attest/receipt/receipt.ts'
import { pause } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import type { Runtime } from '../base/runtime.ts'
import type { InstanceFailureCode } from '../contract/http/instance.ts'
import type { InstanceAttestation } from '../contract/http/instance-attestation.ts'
import type { Claim, DrawnKey } from '../contract/vm/claim.ts'
import type { SshProbe } from '../host/network/ssh-probe.ts'
import type { Instance } from '../store/directory/instance.table.ts'
import type { VmEngine, VmView } from '../vm/engine.ts'
import { nonceBytes, toAttestation } from './attestation.codec.ts'
import { type ClaimInputs, claimOf, sealClaim, statedClaim } from './claim.plan.ts'
import { type AttestationTrustOf, type ClaimedAs, judgeEvidence } from './evidence.verify.ts'
import { normalizedKey } from './public-key.codec.ts'

export type ProvisionDeps = Runtime & {
  readonly engine: Pick<VmEngine, 'view' | 'claim' | 'evidence' | 'handReceipt' | 'open'>
  readonly trust: AttestationTrustOf
  readonly probe: (probe: SshProbe) => Promise<void>
  /**
   * Returns the gateway's address for instances, and the requirements that it must prove to them. Faults: why it is
   * unknown.
   */
  readonly gateway: () => Promise<Pick<ClaimInputs['inference'], 'baseUrl' | 'address' | 'gateway'>>
  /** Destinations that the firewall opens to an instance. */
  readonly egress: ClaimInputs['egress']
  /** Whether guests generate a gateway key if their claim names a gateway. */
  readonly drawsKeys: boolean
  /** Registers the key that an instance's guest generated. Idempotent. Faults: conflict, not_found. */
  readonly registerKey: (instanceId: string, key: DrawnKey) => void
  /** Returns a model's context size if known. Default: unknown for all. */
  readonly contextTokens?: (model: string) => number | null
  readonly claimTimeoutMs: number
  readonly sshTimeoutMs: number
  /**
   * Returns why an opened instance is unreachable from outside; null if no obstacle is known. Never rejects. Default:
   * not checked.
   */
  readonly cutOff?: () => Promise<string | null>
}

/** One provisioning of one instance. */
export type Provision = {
  readonly instance: Instance
  /** The organization's slug. */
  readonly organization: string
  readonly vmId: string
  /** Address of the VM. */
  readonly address: string
  /** Returns false when the instance is no longer wanted. */
  readonly isStillWanted: () => boolean
  /** Aborted when this daemon stops. */
  readonly signal: AbortSignal
}

type Broken = {
  readonly kind: 'broken'
  readonly code: InstanceFailureCode
  /** For the owner; null for the usual one of the code. */
  readonly message: string | null
  readonly detail: Readonly<Record<string, unknown>>
}

export type Provisioned =
  | { readonly kind: 'usable'; readonly sshHostKey: string; readonly attestation: InstanceAttestation }
  /** `detail` is for the operator. */
  | Broken
  | { readonly kind: 'unwanted' }

/** Attempts to claim, and to collect evidence. */
const attemptsMax = 3
const sshPort = 22
const probeTimeoutMs = 10_000
const probePauseMs = 50
/** A certificate of a chip that is new to this host may be delayed for a minute by the rate limit of AMD's service. */
const collateralWaitMs = 180_000
const collateralPauseMs = 5_000

const unwanted = { kind: 'unwanted' } as const

export class Provisioner {
  readonly #deps: ProvisionDeps

  constructor(deps: ProvisionDeps) {
    this.#deps = deps
  }

  /** Provisions once. Faults: internal, for failures that another attempt cannot fix. */
  async run(provision: Provision): Promise<Provisioned> {
    const { vmId, isStillWanted } = provision
    const { clock, log } = this.#deps
    const sinceMs = clock.monotonicMs()
    const claimed = await this.#claim(provision)
    if ('kind' in claimed) return claimed
    const claimedMs = clock.monotonicMs()
    const deadlineMs = claimedMs + this.#deps.sshTimeoutMs
    // Run this concurrently with collecting evidence: both take long, and neither needs the other.
    const ended = new AbortController()
    // Run this concurrently too: it takes as long as listing the firewall's rules.
    const cutOff = this.#cutOff()
    const answers = this.#answers(provision, { hostKey: claimed.sshHostKey, deadlineMs, ended: ended.signal })
    const attested = await this.#attest(provision, claimed)
    // Register only now, because the evidence attests the digest.
    const judged = 'kind' in attested ? attested : (this.#register(provision, claimed.key) ?? attested)
    if ('kind' in judged) {
      ended.abort()
      await answers
      return judged
    }
    const attestedMs = clock.monotonicMs()
    if (isStillWanted()) this.#deps.engine.open(vmId)
    const handed = this.#hand(provision, judged.receipt)
    const failures = await Promise.all([answers, handed, this.#opens(provision, { deadlineMs, cutOff })])
    const failure = failures.find(failure => failure !== null)
    const took = {
      claim: claimedMs - sinceMs,
      evidence: attestedMs - claimedMs,
      probe: clock.monotonicMs() - attestedMs,
    }
    log.info('an instance was provisioned', { instance: provision.instance.id, tookMs: took })
    return failure ?? { kind: 'usable', sshHostKey: claimed.sshHostKey, attestation: judged.attestation }
  }

  async #claim({ instance, organization, vmId, ...provision }: Provision): Promise<ClaimedGuest | Provisioned> {
    const { engine, random, log, egress } = this.#deps
    let claim: Claim | null = null
    for (let attempt = 1; provision.isStillWanted(); attempt += 1) {
      try {
        const guest = await this.#guestOf(vmId, provision.signal)
        // Keep it for every attempt: the guest may have accepted the previous one, and rejects another.
        const publicKey = normalizedKey(instance.publicKey)
        const keyed = { ...instance, publicKey }
        claim ??= claimOf({ instance: keyed, organization, inference: await this.#inferenceOf(instance), egress })
        const sealed = sealClaim(claim, guest.boxKey, random)
        const { sshHostKey, network, key } = await engine.claim(vmId, sealed, this.#deps.claimTimeoutMs)
        if (claim.inference.drawsKey !== (key !== null)) {
          throw new Fault('channel.refused', `the guest drew ${key === null ? 'no' : 'a'} gateway key`)
        }
        const { name, hostname } = instance
        const stated = statedClaim(claim, network, key)
        return { organization, name, hostname, publicKey, sshHostKey, claim: stated, key }
      } catch (error) {
        if (provision.signal.aborted) return unwanted
        log.warn('a claim failed', { instance: instance.id, vm: vmId, attempt, error })
        if (attempt >= attemptsMax) return broken('claim_failed', { reason: messageOf(error) })
      }
    }
    return unwanted
  }

  /** Registers a key. Null if it is registered, or there is none. */
  #register({ instance }: Provision, key: DrawnKey | null): Provisioned | null {
    if (key === null) return null
    try {
      this.#deps.registerKey(instance.id, key)
      return null
    } catch (error) {
      if (!(error instanceof Fault) || error.code !== 'conflict') throw error
      return broken('claim_failed', { reason: error.message })
    }
  }

  async #inferenceOf({ inferenceModel }: Instance): Promise<ClaimInputs['inference']> {
    const gateway = await this.#deps.gateway()
    const contextTokens = this.#deps.contextTokens?.(inferenceModel) ?? null
    return {
      ...gateway,
      // Without a gateway, a key has no use.
      drawsKey: gateway.baseUrl !== '' && this.#deps.drawsKeys,
      ...(contextTokens === null ? {} : { contextTokens }),
    }
  }

  /** Returns the guest's current state, requested again after a failed claim. Fault channel.timeout. */
  async #guestOf(vmId: string, signal: AbortSignal): Promise<NonNullable<VmView['guest']>> {
    const { clock, engine, claimTimeoutMs } = this.#deps
    const deadlineMs = clock.monotonicMs() + claimTimeoutMs
    for (;;) {
      const guest = engine.view(vmId)?.guest
      if (guest) return guest
      if (clock.monotonicMs() >= deadlineMs) throw new Fault('channel.timeout', 'the agent did not say hello again')
      await clock.sleep(probePauseMs, signal)
    }
  }

  /** Collects evidence. Requests unavailable evidence again; invalid evidence is final. */
  async #attest(provision: Provision, claimed: ClaimedAs): Promise<Attested | Provisioned> {
    const { clock, log } = this.#deps
    const { vmId, isStillWanted, signal } = provision
    const instance = provision.instance.id
    const collateralDeadlineMs = clock.monotonicMs() + collateralWaitMs
    let failures = 0
    while (isStillWanted()) {
      try {
        return await this.#evidence(vmId, claimed)
      } catch (error) {
        if (signal.aborted) return unwanted
        const lacksCollateral = error instanceof Fault && error.code === 'attest.unavailable'
        if (!lacksCollateral) failures += 1
        log.warn('the evidence of a VM could not be taken', { instance, vm: vmId, failures, error })
        const isOver = lacksCollateral ? clock.monotonicMs() >= collateralDeadlineMs : failures >= attemptsMax
        if (isOver) return broken('attestation_failed', { reason: messageOf(error) })
        await pause(clock, lacksCollateral ? collateralPauseMs : probePauseMs, signal)
      }
    }
    return unwanted
  }

  /** Requests and judges evidence. Faults: channel.*, attest.unavailable. */
  async #evidence(vmId: string, claimed: ClaimedAs): Promise<Attested | Provisioned> {
    const { engine, clock, random, claimTimeoutMs } = this.#deps
    const trust = await this.#deps.trust()
    const nonce = random(nonceBytes)
    const evidence = await engine.evidence(vmId, nonce, claimTimeoutMs)
    const judgement = await judgeEvidence(evidence, { nonce, asOf: clock.nowMs(), trust, claimed })
    if (!judgement.ok) return broken('attestation_failed', { failed: judgement.failed })
    return { attestation: toAttestation(evidence, { nonce, claimed }), receipt: evidence.receipt }
  }

  /**
   * Sends the receipt to the verifier inside the VM. Null if it has received the receipt, or no longer needs it. Never
   * rejects.
   */
  async #hand({ instance, vmId, isStillWanted, signal }: Provision, receipt: Receipt): Promise<Provisioned | null> {
    const { engine, clock, log, claimTimeoutMs } = this.#deps
    for (let attempt = 1; isStillWanted(); attempt += 1) {
      try {
        await engine.handReceipt(vmId, receipt, claimTimeoutMs)
        return null
      } catch (error) {
        if (signal.aborted) return unwanted
        log.warn('a VM did not take its receipt', { instance: instance.id, vm: vmId, attempt, error })
        if (attempt >= attemptsMax) return broken('attestation_failed', { reason: messageOf(error) })
      }
      await pause(clock, probePauseMs, signal)
    }
    return unwanted
  }

  /** Probes the SSH server. Null if it responds with this host key, or the result no longer matters. Never rejects. */
  async #answers(provision: Provision, { hostKey, deadlineMs, ended }: Answers): Promise<Provisioned | null> {
    const { clock, probe } = this.#deps
    const { address, isStillWanted, signal } = provision
    for (let attempt = 1; isStillWanted(); attempt += 1) {
      if (ended.aborted) return null
      const leftMs = deadlineMs - clock.monotonicMs()
      try {
        if (leftMs <= 0) throw this.#late()
        await probe({ address, port: sshPort, hostKey, timeoutMs: Math.min(leftMs, probeTimeoutMs) })
        return null
      } catch (error) {
        if (signal.aborted || ended.aborted) return unwanted
        const isOtherKey = error instanceof Fault && error.code === 'ssh.wrong_host_key'
        if (leftMs <= 0 || isOtherKey) {
          const message = isOtherKey ? otherKeyMessage : null
          return this.#unreachable(provision, { attempt, reason: messageOf(error), message })
        }
      }
      await pause(clock, probePauseMs, signal)
    }
    return unwanted
  }

  /**
   * Checks that this host's firewalls admit others to it. Null if they do. The probe cannot show this, because it does
   * not come from outside.
   */
  async #opens(provision: Provision, { deadlineMs, cutOff: first }: Opens): Promise<Provisioned | null> {
    const { clock, engine } = this.#deps
    const { vmId, isStillWanted, signal } = provision
    let cutOff = first
    while (isStillWanted() && !signal.aborted) {
      const isOpened = engine.view(vmId)?.opened === true
      const reason = isOpened ? await cutOff : 'the firewall was not opened in time'
      if (reason === null) return null
      if (clock.monotonicMs() >= deadlineMs) return this.#unreachable(provision, { attempt: 1, reason, message: null })
      await pause(clock, isOpened ? cutOffPauseMs : openPauseMs, signal)
      if (isOpened) cutOff = this.#cutOff()
    }
    return unwanted
  }

  #cutOff(): Promise<string | null> {
    return this.#deps.cutOff?.() ?? Promise.resolve(null)
  }

  #late(): Fault {
    return new Fault('ssh.unreachable', `not reachable within ${this.#deps.sshTimeoutMs} ms`)
  }

  #unreachable({ instance }: Provision, { attempt, reason, message }: Unreachable): Provisioned {
    this.#deps.log.error('an instance cannot be reached by SSH', { instance: instance.id, attempt, reason })
    return { ...broken('ssh_unreachable', { reason }), message }
  }
}

/** `message`: for the owner; null for the usual one of the code. */
type Unreachable = { readonly attempt: number; readonly reason: string; readonly message: string | null }

const otherKeyMessage =
  'A machine at the address of this instance presented another SSH host key than the instance attested. Ask the operator for the cause, and treat it as an attack until it is known.'

type ClaimedGuest = ClaimedAs & { readonly key: DrawnKey | null }

type Attested = { readonly attestation: InstanceAttestation; readonly receipt: Receipt }

type Answers = {
  readonly hostKey: string
  readonly deadlineMs: number
  /** Aborted when the instance is no longer wanted. */
  readonly ended: AbortSignal
}

type Opens = {
  readonly deadlineMs: number
  /** Result of a check that is in progress. */
  readonly cutOff: Promise<string | null>
}

/** Applying the firewall takes milliseconds. */
const openPauseMs = 10
/** The operator may fix it in the meantime. */
const cutOffPauseMs = 1_000

function broken(code: InstanceFailureCode, detail: Readonly<Record<string, unknown>>): Broken {
  return { kind: 'broken', code, message: null, detail }
}
