// A gateway VM's response to each request of its host. Effects only through its dependencies.
//
// The host is hostile: a workload counts only if it is the HOST_DATA of this VM's own report, and a control snapshot
// only if it is signed by that workload's control key. No text of the host reaches a prompt, a key or a receipt.

import type { ReceiptKeys } from '../attest/receipt/receipt-keys.ts'
import { equalConstantTime, fromHex, fromUtf8, toBase64Url, toHex } from '../base/bytes.ts'
import type { Clock } from '../base/clock.ts'
import { messageOf } from '../base/fault.ts'
import { parseJson } from '../base/json.ts'
import type { Logger } from '../base/log.ts'
import { type CheckResult, checkValue } from '../contract/check.ts'
import { type AgentRequest, agentProtocol } from '../contract/vm/agent.ts'
import { ENCLAVE_REQUESTS, type EnclaveRequest, metricsPieceCharsMax } from '../contract/vm/enclave.ts'
import type { EnclaveNext, EnclaveReport, EnclaveStatus } from '../contract/vm/enclave-responses.ts'
import { WorkloadDocument, workloadText } from '../contract/vm/workload.ts'
import type { Networking } from '../guest/network.ts'
import type { ReportDevice } from '../guest/report/device.ts'
import { createHandler, type HandleLine, type Outcome } from '../guest/requests.ts'
import { ok, refuse, requestParser } from '../guest/wire.codec.ts'
import type { UsageSpool } from '../inference/metering/spool.ts'
import { Control } from './control.ts'
import { Documents } from './documents.ts'
import { evidenceOrigin, launchOf } from './evidence.ts'
import type { EnclaveGateway, EnclaveGatewayDeps } from './gateway.ts'
import type { HostRequests } from './host-requests.ts'
import type { Hosts } from './hosts.ts'
import type { LogLines } from './log-lines.ts'
import type { SpanSpool } from './span-spool.ts'

export type EnclaveDeps = {
  readonly version: string
  readonly identity: { readonly bootId: string; readonly boxKey: string }
  readonly imageName: string
  readonly networking: Networking
  /** Null on a platform without one. */
  readonly device: Promise<ReportDevice | null>
  readonly keys: ReceiptKeys
  readonly spool: UsageSpool
  readonly hostRequests: HostRequests
  readonly hosts: Hosts
  readonly lines: LogLines
  readonly spans: SpanSpool
  readonly makeGateway: (
    parts: Pick<EnclaveGatewayDeps, 'workload' | 'text' | 'digest' | 'control' | 'origin'>,
  ) => EnclaveGateway
  readonly clock: Clock
  readonly log: Logger
}

type NextRequest = Extract<EnclaveRequest, { op: 'next' }>

/** Bound of the wire (contract/vm/enclave.ts). */
const problemCharsMax = 512

/** The workload in force, and what follows from it. */
type Work = { readonly digest: Uint8Array; readonly control: Control; readonly gateway: EnclaveGateway }

export class Enclave {
  readonly #deps: EnclaveDeps
  readonly handle: HandleLine
  readonly #documents = new Documents()
  #work: Work | null = null
  /** Status last sent to the host. */
  #sentStatus = ''
  /** Text that is being sent in pieces. */
  #metrics = ''

  constructor(deps: EnclaveDeps) {
    this.#deps = deps
    this.handle = createHandler<AgentRequest | EnclaveRequest>({
      parse: requestParser(ENCLAVE_REQUESTS),
      answer: request => this.#answer(request),
      log: deps.log,
    })
  }

  async #answer(request: AgentRequest | EnclaveRequest): Promise<Outcome> {
    const { networking, hostRequests, hosts } = this.#deps
    switch (request.op) {
      case 'hello':
        return this.#hello()
      case 'network':
        return networking.apply(request.network, { claimed: this.#work !== null })
      case 'piece':
        return this.#documents.add(request)
      case 'workload':
        return this.#takeWorkload(request)
      case 'control':
        return this.#takeControl(request)
      case 'addresses':
        hosts.write(request.hosts)
        return ok
      case 'next':
        return { ok: true, next: await this.#next(request) }
      case 'evidence_for': {
        const { want, evidence, problem } = request
        if (evidence === null) hostRequests.refuse(want, 'evidence', problem ?? 'it has received no evidence')
        else hostRequests.answer(want, 'evidence', evidence)
        return ok
      }
      case 'certificate_for':
        hostRequests.answer(request.want, 'certificate', {
          clients: request.clients,
          guests: request.guests,
          named: request.named ?? [],
          requests: request.requests ?? [],
          stamp: request.stamp ?? null,
        })
        return ok
      case 'certificates':
        this.#work?.gateway.followCertificates(request.stamp)
        return ok
      case 'spent_for':
        hostRequests.answer(request.want, 'spent', request.sums)
        return ok
      case 'days_for':
        hostRequests.answer(request.want, 'days', request.sums)
        return ok
      case 'lower':
        return { ok: true, kept: this.#work?.gateway.lower(request) ?? null }
      case 'shares_for': {
        const { want, goodMs, grants } = request
        if (goodMs === null) hostRequests.refuse(want, 'shares', 'the fleet does not answer')
        else hostRequests.answer(want, 'shares', { goodMs, grants })
        return ok
      }
      case 'report':
        return { ok: true, report: this.#report(request) }
      case 'spans':
        return { ok: true, traced: this.#deps.spans.from(request.from) }
      case 'drain':
        this.#work?.gateway.drain()
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
        return refuse('bad_request', `${request.op}: a gateway VM cannot be claimed`)
    }
  }

  async #hello(): Promise<Outcome> {
    const { version, identity, device } = this.#deps
    const platform = (await device) === null ? 'none' : 'snp'
    return {
      ok: true,
      hello: { protocol: agentProtocol, version, ...identity, sshHostKey: null, claimId: null, platform },
    }
  }

  async #takeWorkload({ sha256, simulated }: Extract<EnclaveRequest, { op: 'workload' }>): Promise<Outcome> {
    if (this.#work !== null) {
      if (toHex(this.#work.digest) === sha256) return ok
      return refuse('claimed', 'workload: a different workload is in force')
    }
    const bytes = this.#documents.take('workload', sha256)
    if (bytes === null) return refuse('bad_request', 'workload: its pieces do not have this digest')
    const device = await this.#deps.device
    const launched = await launchOf({ device, simulated })
    if (!launched.ok) return launched
    const digest = fromHex(sha256) ?? new Uint8Array(0)
    if (!equalConstantTime(launched.launch.hostData, digest)) {
      return refuse(
        'bad_request',
        `workload: HOST_DATA of this VM is ${toHex(launched.launch.hostData)}, not ${sha256}`,
      )
    }
    const read = readWorkload(bytes)
    if (!read.ok) return refuse('bad_request', `workload: ${read.problem}`)
    // Another request may have finished while the device was working.
    if (this.#work !== null) return refuse('claimed', 'workload: a different one was accepted meanwhile')
    const { imageName, hostRequests, makeGateway, log } = this.#deps
    const control = new Control(read.value.controlKey)
    const origin = evidenceOrigin({ device, launch: launched.launch, imageName, hostRequests })
    const gateway = makeGateway({ workload: read.value, text: fromUtf8(bytes), digest, control, origin })
    this.#work = { digest, control, gateway }
    log.info('workload in force', { sha256 })
    gateway.start()
    return ok
  }

  #takeControl({ sha256, signature }: Extract<EnclaveRequest, { op: 'control' }>): Outcome {
    if (this.#work === null) return refuse('unclaimed', 'control: no workload has been received')
    const bytes = this.#documents.take('control', sha256)
    if (bytes === null) return refuse('bad_request', 'control: its pieces do not have this digest')
    const applied = this.#work.control.apply(bytes, signature)
    if (applied.ok) this.#deps.log.info('control snapshot in force', { revision: applied.revision })
    return applied
  }

  async #next({ known, booked, waitMs }: NextRequest): Promise<EnclaveNext> {
    const { spool, hostRequests, clock, log } = this.#deps
    if (!spool.book(booked)) log.error('the host has a different ledger', { booked, ...spool.counts() })
    const untilMs = clock.monotonicMs() + waitMs
    for (;;) {
      const reply = { status: this.#status(), wants: hostRequests.unknownTo(known), usage: spool.next() }
      const leftMs = untilMs - clock.monotonicMs()
      const status = JSON.stringify(reply.status)
      if (reply.wants.length > 0 || reply.usage !== null || status !== this.#sentStatus || leftMs <= 0) {
        this.#sentStatus = status
        return reply
      }
      await hostRequests.waitForChange(leftMs)
    }
  }

  #status(): EnclaveStatus {
    const { spool, keys } = this.#deps
    const gateway = this.#work?.gateway
    return {
      state: gateway?.state ?? 'waiting',
      workload: this.#work === null ? null : toHex(this.#work.digest),
      revision: this.#work?.control.revision ?? 0,
      running: gateway?.running() ?? 0,
      usageWaiting: spool.waiting(),
      ...(gateway?.state === 'draining' ? { reserved: gateway.reserved() } : {}),
      receiptKey: toBase64Url(keys.publicKeys.ed25519),
      problem: gateway?.problem?.slice(0, problemCharsMax) ?? null,
    }
  }

  #report({ logFrom, metricsFrom }: Extract<EnclaveRequest, { op: 'report' }>): EnclaveReport {
    if (metricsFrom === 0) this.#metrics = this.#work?.gateway.metrics() ?? ''
    const metrics = this.#metrics.slice(metricsFrom, metricsFrom + metricsPieceCharsMax)
    return { metrics, metricsChars: this.#metrics.length, log: this.#deps.lines.from(logFrom) }
  }
}

/** Arrays and objects within each other, in the deepest workload, and one to spare. */
const depthMax = 10

/** Exactly the canonical text: HOST_DATA is its digest. */
function readWorkload(bytes: Uint8Array): CheckResult<WorkloadDocument> {
  try {
    const result = checkValue(WorkloadDocument, parseJson(bytes, { depthMax }))
    if (result.ok && workloadText(result.value) !== fromUtf8(bytes)) {
      return { ok: false, problem: 'it is not in its canonical form' }
    }
    return result
  } catch (error) {
    return { ok: false, problem: messageOf(error) }
  }
}
