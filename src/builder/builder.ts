// The build VM's handler for each request of the host. Effects: through its deps.

import type { Tool } from '../attest/provenance/record.ts'
import type { ReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { type AgentRequest, agentProtocol } from '../contract/vm/agent.ts'
import { BUILD_REQUESTS, type BuildAgentRequest } from '../contract/vm/build-agent.ts'
import type { BuildOrder } from '../contract/vm/build-order.ts'
import type { Networking } from '../guest/network.ts'
import { createHandler, type HandleLine, type Outcome } from '../guest/requests.ts'
import { ok, refuse, requestParser } from '../guest/wire.codec.ts'
import type { Attester, Stage } from './attester.ts'
import { BuildFailure, failureOf } from './failure.ts'
import { Job } from './job.ts'
import { orderProblem } from './order.plan.ts'
import type { Phase } from './phase.ts'
import { runBuild } from './run-build.ts'

type BuilderDeps = {
  readonly version: string
  readonly identity: { readonly bootId: string; readonly boxKey: string }
  readonly networking: Networking
  readonly attester: Attester
  readonly keys: ReceiptKeys
  readonly guest: Promise<Tool>
  readonly image: { readonly name: string; readonly rootHash: string | null }
  readonly takeNetworkDown: () => Promise<void>
  /** Returns the path of the exchange disk, or null if there is none. */
  readonly device: () => Promise<string | null>
  /** The empty work directory of this build. */
  readonly phaseOf: (order: BuildOrder, job: Job) => Phase
  /** Stores the id of this VM's build while the VM runs, so that a restarted builder accepts no other build. */
  readonly record: { readonly read: () => string | null; readonly write: (jobId: string) => void }
  readonly log: Logger
}

export class Builder {
  readonly #deps: BuilderDeps
  readonly handle: HandleLine
  /** This VM's build; null before its order. */
  #build: { readonly jobId: string; readonly job: Job } | null
  /** The stage for whose evidence the host is waiting. */
  #stage: Stage | null = null

  constructor(deps: BuilderDeps) {
    this.#deps = deps
    const jobId = deps.record.read()
    this.#build = jobId === null ? null : { jobId, job: lostJob() }
    this.handle = createHandler<AgentRequest | BuildAgentRequest>({
      parse: requestParser(BUILD_REQUESTS),
      answer: request => this.#answer(request),
      log: deps.log,
    })
  }

  async #answer(request: AgentRequest | BuildAgentRequest): Promise<Outcome> {
    switch (request.op) {
      case 'hello':
        return this.#hello()
      case 'network':
        return this.#deps.networking.apply(request.network, { claimed: this.#build !== null })
      case 'build':
        return this.#take(request.order)
      case 'progress':
        if (this.#build === null) return refuse('unclaimed', 'progress: no build has started')
        return { ok: true, progress: this.#build.job.progress(request.from) }
      case 'vouch':
        if (this.#stage === null) return refuse('unclaimed', 'vouch: no evidence is pending')
        return this.#deps.attester.make(this.#stage, request.simulated)
      case 'vouched': {
        const kept = this.#deps.attester.keep(request.stage, request.receipt, request.provenance)
        if (kept.ok) this.#build?.job.evidenceIsComplete()
        return kept
      }
      case 'cancel':
        this.#build?.job.cancel()
        return ok
      case 'shutdown':
        return ok
      case 'claim':
      case 'evidence':
      case 'receipt':
      case 'egress':
      case 'idle':
      case 'snapshot':
      case 'restore':
      case 'certificate':
        return refuse('bad_request', `${request.op}: a build VM cannot be claimed`)
    }
  }

  async #hello(): Promise<Outcome> {
    const { version, identity, attester } = this.#deps
    const platform = await attester.platform()
    return {
      ok: true,
      hello: { protocol: agentProtocol, version, ...identity, sshHostKey: null, claimId: null, platform },
    }
  }

  #take(order: BuildOrder): Outcome {
    if (this.#build !== null) {
      if (this.#build.jobId === order.jobId) return ok
      return refuse('claimed', 'build: this VM already has a build')
    }
    const problem = orderProblem(order)
    if (problem !== null) return refuse('bad_request', problem)
    this.#deps.record.write(order.jobId)
    const job = new Job()
    this.#build = { jobId: order.jobId, job }
    void this.#run(order, job)
    return ok
  }

  /** Runs the build. Never rejects. */
  async #run(order: BuildOrder, job: Job): Promise<void> {
    const { log } = this.#deps
    log.info('build begins', { job: order.jobId })
    try {
      const device = await this.#deps.device()
      if (device === null) throw new Error('exchange disk not found')
      job.succeed(
        await runBuild({
          ...this.#deps,
          phase: this.#deps.phaseOf(order, job),
          device,
          attest: stage => this.#attest(stage, job),
        }),
      )
      log.info('build done', { job: order.jobId })
    } catch (error) {
      const failure = failureOf(job.signal.aborted ? job.signal.reason : error)
      // The message may quote output of the source's programs: it is for the client, not for this VM's log.
      log.warn('build failed', { job: order.jobId, type: failure.errorType })
      await this.#deps.takeNetworkDown().catch(cause => log.error('network', { reason: messageOf(cause) }))
      job.endNetwork()
      job.fail(failure)
    }
  }

  async #attest(stage: Stage, job: Job): Promise<void> {
    this.#stage = stage
    try {
      await job.waitFor(stage.stage)
    } finally {
      this.#stage = null
    }
  }
}

/** Returns the job of a restarted builder: keys, log and phase were lost with the previous process. */
function lostJob(): Job {
  const job = new Job()
  job.endNetwork()
  job.fail(new BuildFailure('internal', 'the builder program ended during the build; submit the build again'))
  return job
}
