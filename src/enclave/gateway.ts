// The gateway of this VM, composed from its workload.json. Effects: those of its parts: a listening socket, the
// worker's process.

import { utf8 } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { Fault, messageOf } from '../base/fault.ts'
import { systemRandom } from '../base/ids.ts'
import type { Logger } from '../base/log.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import { encodeAllowlist } from '../contract/vm/allowlist.ts'
import type { WorkloadDocument, WorkloadGpus } from '../contract/vm/workload.ts'
import type { EvidenceOrigin } from '../inference/attestation/attester.ts'
import type { NonceStore } from '../inference/attestation/nonces.ts'
import type { SharedReceiptKeys } from '../inference/attestation/receipt-keys.ts'
import { createWorkloads } from '../inference/attestation/workloads.ts'
import { createKeyAuthenticate, keyDefaults } from '../inference/keys/authenticate.ts'
import { hasBudget, type Reserved } from '../inference/metering/budgets.ts'
import { tokensOfRow } from '../inference/metering/row.ts'
import { amountsIn } from '../inference/metering/shares/amounts.ts'
import type { SpendCache } from '../inference/metering/spend-cache.ts'
import type { UsageSpool } from '../inference/metering/spool.ts'
import type { GatewayServer } from '../inference/relay/serve.ts'
import { createInferenceService, type InferenceService, workerTarget } from '../inference/service.ts'
import type { Authenticate } from '../inference/types.ts'
import type { BuiltInWorker } from '../inference/worker/worker.ts'
import { spkiDigestOf } from '../linux/keys/spki.ts'
import type { MonthScope } from '../store/directory/usage/usage-month.query.ts'
import type { Control } from './control.ts'
import type { EnclaveGpus } from './gpus.ts'
import type { HostRequests } from './host-requests.ts'
import { sharesOver } from './shares.ts'
import type { SpanSpool } from './span-spool.ts'
import { EnclaveTls } from './tls.ts'
import { upstreamTarget } from './upstreams.ts'
import type { StartWorker } from './worker.ts'

export type EnclaveGatewayDeps = {
  readonly workload: WorkloadDocument
  /** Canonical text of workload.json, and its SHA-256. */
  readonly text: string
  readonly digest: Uint8Array
  readonly control: Control
  readonly keys: SharedReceiptKeys
  readonly spool: UsageSpool
  readonly spans: SpanSpool
  readonly spent: SpendCache
  readonly hostRequests: HostRequests
  readonly origin: EvidenceOrigin
  readonly nonces: NonceStore
  readonly startWorker: StartWorker
  readonly openGpus: (required: WorkloadGpus) => EnclaveGpus
  readonly listen: { readonly hostname: string; readonly port: number }
  /** This program: SHA-256 of its file, and its own argv. */
  readonly executableDigest: Promise<Uint8Array>
  readonly command: readonly string[]
  readonly clock: Clock
  readonly log: Logger
  /** State or problem may have changed. */
  readonly onChange: () => void
}

/** Bound of the wire (contract/vm/enclave.ts). No share: limits one report to the host. */
const reservedMax = 256

export class EnclaveGateway {
  readonly #deps: EnclaveGatewayDeps
  readonly #stopping = new AbortController()
  #service: InferenceService | null = null
  #server: GatewayServer | null = null
  #tls: EnclaveTls | null = null
  /** Stamp of the host's newest certificates; null if it has named none. */
  #certificatesStamp: string | null = null
  #worker: BuiltInWorker | null = null
  #isDraining = false
  #problem: string | null = 'it is starting'

  constructor(deps: EnclaveGatewayDeps) {
    this.#deps = deps
  }

  /** Begins; the outcome is in `state` and `problem`. */
  start(): void {
    this.#start().catch(error => {
      this.#deps.log.error('the gateway does not start', { error })
      this.#become(messageOf(error))
    })
  }

  get state(): 'starting' | 'ready' | 'draining' {
    if (this.#isDraining) return 'draining'
    return this.#server === null ? 'starting' : 'ready'
  }

  /** Why it does not do all that it should, in words; null while it does. */
  get problem(): string | null {
    if (this.#problem !== null) return this.#problem
    const state = this.#worker?.state
    if (state === undefined || state.kind === 'ready') return null
    return 'message' in state ? `the worker: ${state.message}` : `the worker is ${state.kind}`
  }

  running(): number {
    return this.#service?.running() ?? 0
  }

  /** Reservations and unrecorded cost by key while it drains; null for too many keys. */
  reserved(): Reserved[] | null {
    const byKey = new Map<string, Reserved>()
    const add = ({ organizationId, keyPrefix, tokens, nanoUsd }: Reserved) => {
      const name = `${organizationId}\n${keyPrefix}`
      const before = byKey.get(name) ?? { tokens: 0, nanoUsd: 0 }
      const sum = { tokens: before.tokens + tokens, nanoUsd: before.nanoUsd + nanoUsd }
      byKey.set(name, { organizationId, keyPrefix, ...sum })
    }
    for (const item of this.#service?.reserved() ?? []) add(item)
    for (const row of this.#deps.spool.unbooked()) {
      const tokens = tokensOfRow(row)
      const nanoUsd = Number(this.#deps.control.cost(row.model, tokens))
      add({ ...row, tokens: tokens.prompt + tokens.completion, nanoUsd })
    }
    return byKey.size > reservedMax ? null : [...byKey.values()]
  }

  /** Keeps the reserved and unrecorded part of a budget, and drops the rest. Null if nothing changed. */
  lower({
    organizationId,
    keyPrefix,
    month,
  }: MonthScope): { readonly nanoUsd: number; readonly tokens: number } | null {
    const reserved = this.#service === null ? null : this.reserved()
    if (reserved === null || !this.#deps.spent.lower({ organizationId, keyPrefix, month })) return null
    return amountsIn({ organizationId, keyPrefix }, reserved)
  }

  metrics(): string {
    return this.#service?.metrics.render() ?? ''
  }

  /** Makes clients reconnect, and so reach the next gateway; running requests may finish. */
  drain(): void {
    this.#isDraining = true
    this.#server?.drain()
    this.#deps.onChange()
  }

  /** The host has certificates of this stamp. */
  followCertificates(stamp: string): void {
    this.#certificatesStamp = stamp
    this.#tls?.follow(stamp)
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    this.#service?.close()
    await this.#worker?.stop()
    await this.#server?.stop(false)
  }

  async #start(): Promise<void> {
    const { workload, control, keys, spool, hostRequests, origin, clock, log } = this.#deps
    const { signal } = this.#stopping
    const workloads = createWorkloads({
      executableDigest: await this.#deps.executableDigest,
      command: this.#deps.command,
      hasWorker: workload.worker !== null,
      allowlist: { bytes: utf8(encodeAllowlist(workload.allowlist)), source: 'workload.json' },
      log,
    })
    const tlsOpen = EnclaveTls.open({ hostRequests, clock, log }, signal)
    tlsOpen.catch(() => {}) // reported where it is awaited
    const required = workload.worker?.gpus
    const gpus = required === undefined ? null : this.#deps.openGpus(required)
    const worker =
      workload.worker === null
        ? null
        : await this.#deps.startWorker(workload.worker, {
            admit: workloads.admit,
            gpus,
            onReady: name => {
              workloads.bind()
              this.#service?.probeNow(name)
              this.#deps.onChange()
            },
          })
    this.#worker = worker
    const tls = await tlsOpen
    this.#tls = tls
    if (this.#certificatesStamp !== null) tls.follow(this.#certificatesStamp)
    const { settings, upstreams } = { settings: workload.gateway, upstreams: workload.upstreams }
    const own = worker === null || workload.worker === null ? [] : [workerTarget(worker.upstream, workload.worker)]
    const service = createInferenceService({
      settings,
      upstreams: [...upstreams.map(upstream => upstreamTarget(upstream, name => control.upstreamKey(name))), ...own],
      inside: new Set(own.map(target => target.name)),
      authenticate: this.#metered(
        createKeyAuthenticate({
          find: prefix => control.findKey(prefix),
          onUse: () => {},
          clock,
          defaults: keyDefaults(settings),
        }),
      ),
      offerSpan: this.#deps.spans.add,
      metering: { record: record => spool.record(record), counts: () => spool.counts() },
      spent: this.#deps.spent,
      cost: () => control.cost,
      shares: sharesOver(hostRequests, control),
      nonces: this.#deps.nonces,
      mayDelete: null,
      workloads,
      keys,
      tlsSpkiDigest: () => spkiDigestOf(tls.current().cert),
      configurationDigest: this.#deps.digest,
      workload: this.#deps.text,
      openEvidence: () => Promise.resolve(origin),
      ...(gpus === null ? {} : { gpus: nonce => gpus.evidence(nonce) }),
      clock,
      random: systemRandom,
      log,
    })
    this.#service = service
    signal.throwIfAborted()
    this.#server = await service.listen({ listen: this.#deps.listen, tls, guestName: guestGatewayName })
    if (signal.aborted) await this.#server.stop(false)
    signal.throwIfAborted()
    if (this.#isDraining) this.#server.drain()
    service.start()
    void tls.keepFresh(signal)
    log.info('the gateway listens', { port: this.#server.port })
    this.#become(null)
  }

  /** Requests whose usage could not be stored are refused. */
  #metered(authenticate: Authenticate): Authenticate {
    return headers => {
      const caller = authenticate(headers)
      // The VM after it holds the budgets now.
      if (this.#isDraining && hasBudget(caller)) {
        throw new Fault('rate_limited', 'This gateway is being replaced; connect again.')
      }
      this.#deps.spool.checkRoom(this.running())
      return caller
    }
  }

  #become(problem: string | null): void {
    this.#problem = problem
    this.#deps.onChange()
  }
}
