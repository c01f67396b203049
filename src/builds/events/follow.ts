// Runs one build in its VM: sends source and order; receives progress, evidence and result. Effects: the VM engine,
// files, the store.
//
// The guest is hostile: its messages are checked against the wire format, the order and its evidence, and a mismatch
// ends the build as `internal`. Every step may be repeated: after a crash the next daemon continues from the row and
// its events.

import { present } from '../../base/assert.ts'
import { fromHex } from '../../base/bytes.ts'
import { type Clock, pause } from '../../base/clock.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import type { Logger } from '../../base/log.ts'
import { type BuildErrorType, isOfService } from '../../contract/http/build.ts'
import type { AttestedStage, BuildProgress } from '../../contract/vm/build-agent.ts'
import type { DirectoryStore } from '../../store/db.ts'
import { type BuildSet, buildById, setBuild } from '../../store/directory/build.query.ts'
import type { Build } from '../../store/directory/build.table.ts'
import type { BuildEngine } from '../../vm/build-engine.ts'
import type { VmEvidence } from '../../vm/engine.ts'
import type { HostTrust } from '../../vm/evidence/launch-policy.plan.ts'
import { type BuildProof, judgeBuild } from '../evidence.verify.ts'
import { readResult, writeSource } from '../exchange.ts'
import type { FetchGate } from '../fetch/proxy.ts'
import type { BuildFiles } from '../files.ts'
import { buildDeadlineMs, type OrderSettings, orderOf } from '../order.plan.ts'
import { proofOf } from '../record.ts'
import type { BuildsSettings } from '../types.ts'
import type { EventLog, NewEvent } from './events.ts'

export type FollowDeps = {
  readonly directory: Pick<DirectoryStore, 'db' | 'transact'>
  readonly engine: BuildEngine
  readonly clock: Clock
  readonly log: Logger
  readonly files: BuildFiles
  readonly trust: () => Promise<HostTrust>
  readonly gate: FetchGate
  readonly settings: OrderSettings & Pick<BuildsSettings, 'exchangeBytes'>
  /** See BuildRetention.makeRoom. */
  readonly makeRoom: (bytes: number) => boolean
  /** Called before a result may be fetched. An exception prevents that. */
  readonly beforeResult: (proof: BuildProof) => void
}

/** Outcome of a build. `unwanted`: it ended elsewhere, or the daemon is stopping. */
export type BuildEnding =
  | {
      readonly kind: 'finished'
      readonly result: Required<Pick<Build, 'resultBytes' | 'resultSha256' | 'provenanceSha256'>>
    }
  | { readonly kind: 'broken'; readonly errorType: BuildErrorType; readonly error: string }
  | { readonly kind: 'unwanted' }

const requestTimeoutMs = 30_000
const vouchTimeoutMs = 60_000
/** Timeout for the guest to accept its order, from the first attempt. */
const orderDeadlineMs = 300_000
/** How long a running guest may be unresponsive. */
const silenceMs = 120_000
/** A certificate of a chip that is new to this host may be delayed for a minute by the rate limit of AMD's service. */
const collateralWaitMs = 180_000
/** Attempts to collect evidence. Waiting for certificates does not count. */
const attemptsMax = 3
const pauseBusyMs = 20
const pauseMinMs = 50
const pauseMaxMs = 300
const retryMs = 1_000
/** How much earlier the guest closes its network than the host does. */
const fetchSlackMs = 30_000
const linesMax = 64

const unwanted = { kind: 'unwanted' } as const

export function broken(errorType: BuildErrorType, error: string): BuildEnding {
  return { kind: 'broken', errorType, error: error.slice(0, errorCharsMax) }
}

const errorCharsMax = 8192

export class BuildFollower {
  readonly #deps: FollowDeps
  readonly #id: string
  readonly #vmId: string
  readonly #events: EventLog
  readonly #signal: AbortSignal
  #networkOpenedMs: number | null = null
  /** Stages whose evidence this daemon has sent to the guest. */
  readonly #handed = new Set<AttestedStage>()
  /** Failed attempts at each stage's evidence. */
  readonly #failures: Record<AttestedStage, number> = { dispatch: 0, completion: 0 }

  /** `signal`: aborted when this daemon stops. */
  constructor(deps: FollowDeps, of: { build: Build; vmId: string; events: EventLog; signal: AbortSignal }) {
    this.#deps = deps
    this.#id = of.build.id
    this.#vmId = of.vmId
    this.#events = of.events
    this.#signal = of.signal
  }

  /** Copies the source and sends the order. Null if the guest has received them. */
  async order(build: Build): Promise<BuildEnding | null> {
    const { engine, clock, files, settings } = this.#deps
    if (build.orderedAtMs === null) {
      try {
        const { sourceBytes: sizeBytes, sourceSha256: sha256 } = build
        if (sizeBytes !== null && sha256 !== null) {
          await writeSource(files.path(build.id, 'source'), engine.exchange(this.#vmId), { sizeBytes, sha256 })
        }
      } catch (error) {
        return this.#internal('the source could not be handed over', error)
      }
      // From here on the disk may hold the guest's result, so the source is never written again.
      if (!this.#set('starting', { orderedAtMs: clock.nowMs() })) return unwanted
    }
    const deadlineMs = clock.monotonicMs() + orderDeadlineMs
    for (;;) {
      if (!this.#isStill('starting')) return unwanted
      try {
        const imageSummary = engine.imageSummary(this.#vmId)
        await engine.order(this.#vmId, orderOf(build, { ...settings, imageSummary }), requestTimeoutMs)
        return null
      } catch (error) {
        if (this.#signal.aborted) return unwanted
        if (isRefusal(error)) return this.#internal('the build VM refused its order', error)
        if (clock.monotonicMs() >= deadlineMs) return this.#internal('the build VM did not accept its order', error)
      }
      await pause(clock, retryMs, this.#signal)
    }
  }

  /** Follows a build from the order to its end. */
  async follow(build: Build): Promise<BuildEnding> {
    const { clock, settings } = this.#deps
    // Use the wall clock only once, so that changing it neither ends a build nor extends it.
    const agedMs = Math.max(0, clock.nowMs() - (build.orderedAtMs ?? build.createdAtMs))
    const deadlineMs = clock.monotonicMs() - agedMs + buildDeadlineMs(build, settings.limits)
    let heardMs = clock.monotonicMs()
    let waitMs = pauseMinMs
    while (this.#isStill('running')) {
      if (clock.monotonicMs() >= deadlineMs)
        return broken('limit_exceeded', 'The build took longer than all its limits together.')
      let progress: BuildProgress
      try {
        progress = await this.#deps.engine.progress(this.#vmId, this.#events.nextSeq, requestTimeoutMs)
        heardMs = clock.monotonicMs()
      } catch (error) {
        if (this.#signal.aborted) return unwanted
        if (isRefusal(error)) return this.#internal('the build VM refused to report the progress of its build', error)
        if (!this.#runs()) return unwanted
        if (clock.monotonicMs() - heardMs >= silenceMs) return this.#internal('the build VM does not answer', error)
        await pause(clock, retryMs, this.#signal)
        continue
      }
      const end = await this.#step(progress)
      if (end !== null) return end
      const hasLines = progress.lines.length > 0
      if (progress.lines.length >= linesMax) waitMs = pauseBusyMs
      else waitMs = hasLines ? pauseMinMs : Math.min(pauseMaxMs, waitMs * 2)
      await pause(clock, waitMs, this.#signal)
    }
    return unwanted
  }

  /** Processes one response. Null if the build continues. */
  async #step(progress: BuildProgress): Promise<BuildEnding | null> {
    const { lines, network, waitsFor, result } = progress
    const events = this.#eventsOf(lines)
    if (events === null) return this.#internal('the build VM sent lines out of turn', null)
    this.#events.append(events)
    this.#network(network)
    if (waitsFor !== null) return this.#vouch(waitsFor)
    // Process all lines first.
    if (result === null || lines.length > 0) return null
    this.#closeNetwork()
    if (result.status === 'failed') return broken(result.errorType, result.error)
    return this.#takeResult(result)
  }

  /** Converts lines to events. Null if they are out of order, or a guest may not send them. */
  #eventsOf(lines: BuildProgress['lines']): NewEvent[] | null {
    const events: NewEvent[] = []
    for (const [at, { seq, type, msg }] of lines.entries()) {
      if (seq !== this.#events.nextSeq + at || isOfService(type)) return null
      events.push({ data: { type, msg }, seq })
    }
    return events
  }

  /** Opens the network once on `wanted`. `done` or its time limit closes it permanently. */
  #network(wanted: BuildProgress['network']): void {
    const { engine, clock, gate, settings, log } = this.#deps
    const { network } = this.#row()
    if (network === 'closed' || settings.fetch === null) {
      if (wanted === 'wanted' && settings.fetch === null)
        log.warn('a build requested a network that its order lacks', { build: this.#id })
      return
    }
    if (wanted === 'done') {
      this.#closeNetwork()
      return
    }
    const fetchMs = settings.limits.fetchSeconds * 1000 + fetchSlackMs
    if (wanted === 'wanted' && this.#networkOpenedMs === null) {
      const address = engine.view(this.#vmId)?.address ?? null
      if (address === null) return
      this.#networkOpenedMs = clock.monotonicMs()
      if (network === 'unused' && !this.#set('running', { network: 'open' })) return
      gate.open({ buildId: this.#id, address, bytesMax: settings.limits.fetchBytes })
      engine.open(this.#vmId)
    }
    if (this.#networkOpenedMs !== null && clock.monotonicMs() - this.#networkOpenedMs >= fetchMs) this.#closeNetwork()
  }

  #closeNetwork(): void {
    const { engine, gate } = this.#deps
    gate.close(this.#id)
    if (this.#row().network === 'closed') return
    engine.close(this.#vmId)
    this.#set('running', { network: 'closed' })
  }

  /**
   * Completes, judges and records a stage's evidence, and sends it to the guest. Unavailable evidence is requested
   * again; wrong evidence ends the build. If a daemon dies after the record, the guest still waits, and the next daemon
   * repeats the stage.
   */
  async #vouch(stage: AttestedStage): Promise<BuildEnding | null> {
    const { engine, clock, trust, settings, log } = this.#deps
    const row = this.#row()
    const recorded = proofOf(row)
    const isOver = this.#handed.has(stage)
    const isNext =
      stage === 'dispatch'
        ? recorded === null || (recorded.provenance === null && !isOver)
        : recorded !== null && (recorded.provenance === null || !isOver)
    if (!isNext) return this.#internal(`the build VM requested the evidence of its ${stage} out of turn`, null)
    const earlier = stage === 'dispatch' ? null : recorded
    let refused: BuildEnding | null = null
    let isAccepted = false
    const accept = async (evidence: VmEvidence): Promise<boolean> => {
      const judgement = await judgeBuild(evidence, {
        stage,
        jobId: row.id,
        nonce: row.nonce,
        mayFetch: settings.fetch !== null,
        asOf: clock.nowMs(),
        trust: await trust(),
        earlier,
      })
      if (!judgement.ok) {
        log.error('the evidence of a build failed verification', { build: row.id, stage, failed: judgement.failed })
        refused = broken(
          'internal',
          `The evidence of the build VM at ${stage} failed verification: ${judgement.failed.join('; ')}`,
        )
        return false
      }
      const { proof } = judgement
      const { simulated, measurement } = proof
      const isSet = this.#set('running', { evidence: JSON.stringify(proof), simulated, measurement })
      if (!isSet) refused = unwanted
      isAccepted = isSet
      return isSet
    }
    const deadlineMs = clock.monotonicMs() + collateralWaitMs
    for (;;) {
      if (!this.#isStill('running')) return unwanted
      try {
        const nonce = present(fromHex(row.nonce), 'a nonce is stored in hexadecimal')
        await engine.vouch(this.#vmId, { stage, nonce }, accept, vouchTimeoutMs)
        if (isAccepted) this.#handed.add(stage)
        return refused
      } catch (error) {
        if (this.#signal.aborted) return unwanted
        if (isRefusal(error)) return this.#internal(`the build VM gave no evidence of its ${stage}`, error)
        if (clock.monotonicMs() >= deadlineMs) return this.#internal(`no evidence is available of the ${stage}`, error)
        log.warn('the evidence of a build could not be taken', { build: row.id, stage, error })
        if (!(error instanceof Fault && error.code === 'attest.unavailable')) this.#failures[stage] += 1
        if (this.#failures[stage] >= attemptsMax)
          return this.#internal(`the evidence of the ${stage} could not be taken`, error)
      }
      await pause(clock, retryMs, this.#signal)
      // The guest may have received it although its response was lost. Its current request shows that.
      if (isAccepted) return null
    }
  }

  async #takeResult(said: Extract<BuildProgress['result'], { status: 'ok' }>): Promise<BuildEnding> {
    const { engine, files, settings, makeRoom, beforeResult } = this.#deps
    const { sizeBytes, sha256, provenanceSha256 } = said
    const proof = proofOf(this.#row())
    if (proof === null || proof.provenance === null) {
      return broken('internal', 'The evidence of the build was not complete when its result came; submit it again.')
    }
    if (proof.provenance !== provenanceSha256) {
      return this.#internal('the result differs from the one that the build VM attested', null)
    }
    if (sizeBytes > settings.exchangeBytes)
      return this.#internal('the build VM reports a result larger than its disk', null)
    if (!makeRoom(sizeBytes))
      return broken('limit_exceeded', 'There is not enough room for the result next to those of other builds.')
    try {
      await readResult(engine.exchange(this.#vmId), files.path(this.#id, 'resultPart'), { sizeBytes, sha256 })
      if (!this.#isStill('running')) return unwanted
      await files.finishResult(this.#id)
    } catch (error) {
      return this.#internal('the result could not be stored', error)
    }
    try {
      beforeResult(proof)
    } catch (error) {
      return this.#internal('its receipt could not be put into the transparency log', error)
    }
    return { kind: 'finished', result: { resultBytes: sizeBytes, resultSha256: sha256, provenanceSha256 } }
  }

  /** Fails the build. `error` is one sentence for the client; the cause is for the operator. */
  #internal(what: string, error: unknown): BuildEnding {
    const { log } = this.#deps
    log.error('a build failed on this host', {
      build: this.#id,
      vm: this.#vmId,
      what,
      ...(error === null ? {} : { error }),
    })
    const isSaid = error instanceof Fault && error.code === 'channel.refused'
    return broken('internal', `This service failed: ${what}${isSaid ? `: ${messageOf(error)}` : ''}.`)
  }

  #row(): Build {
    const row = buildById(this.#deps.directory.db, this.#id)
    if (row === null) throw new Fault('internal', `build ${this.#id} has no record`)
    return row
  }

  #isStill(state: Build['state']): boolean {
    return !this.#signal.aborted && this.#row().state === state
  }

  #runs(): boolean {
    return this.#deps.engine.view(this.#vmId)?.state === 'running'
  }

  #set(state: Build['state'], set: BuildSet): boolean {
    return setBuild(this.#deps.directory.db, { id: this.#id, state, ...set })
  }
}

function isRefusal(error: unknown): boolean {
  return error instanceof Fault && error.code === 'channel.refused'
}
