// A host with gateway VMs, without the VMs: enclaves as processes (machine.ts), and the host's whole side: store,
// books, keys, authority, simulated platform. Effects: a directory, processes, sockets; cleans up.

import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import { type ControlSnapshot, controlMessage } from '../../../src/contract/vm/enclave.ts'
import type { UsageRow } from '../../../src/contract/vm/enclave-responses.ts'
import {
  type GatewaySettings,
  type WorkloadDocument,
  type WorkloadUpstream,
  workloadText,
} from '../../../src/contract/vm/workload.ts'
import { Addresses } from '../../../src/enclave-host/addresses.ts'
import { ControlSource } from '../../../src/enclave-host/control.ts'
import { type ControlKey, openControlKey } from '../../../src/enclave-host/control-key.ts'
import { GatewayVmSession, type SessionDeps } from '../../../src/enclave-host/session.ts'
import type { Certify, GatewayVmEngine, GatewayVmRoute } from '../../../src/enclave-host/types.ts'
import { type VerifiedGatewayVm, verifyGatewayVm } from '../../../src/enclave-host/verify.ts'
import type { AgentOperation, AgentSuccess } from '../../../src/host/qemu/agent-channel.ts'
import { openSimulatedHost, type SimulatedHost } from '../../../src/host/simulated-host.ts'
import { createTls } from '../../../src/http/certificate.ts'
import { mintGatewayKey } from '../../../src/inference/keys/authenticate.ts'
import { createHostSums } from '../../../src/inference/metering/host-sums.ts'
import { Metering } from '../../../src/inference/metering/ledger.ts'
import { createCost } from '../../../src/inference/metering/price.ts'
import { usageRecordOf, VmUsageLedger } from '../../../src/inference/metering/vm-usage-ledger.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { insertGatewayKey, type NewGatewayKey } from '../../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../../src/store/directory/organization.query.ts'
import { insertGatewayVm, listGatewayVms, setReceiptKey } from '../../../src/store/ledger/gateway-vm.query.ts'
import { launchOf, recordLaunch } from '../../../src/store/ledger/launch.query.ts'
import { dismissVm, insertVm, moveVm, vmById } from '../../../src/store/ledger/vm.query.ts'
import { GatewayVmRequests } from '../../../src/vm/evidence/gateway-vm.driver.ts'
import { ledgerHex } from '../../../src/vm/evidence/report.driver.ts'
import { hostDataOf } from '../../../src/vm/launch/expected.plan.ts'
import { keepSimulatedPlatform } from '../launch/simulated-keys.ts'
import { until } from '../until.ts'
import { EnclaveMachine, type MachineOptions } from './machine.ts'
import { gatewayVmSize, launchDocument, launchMeasurement, workloadOf } from './workload.ts'

export type EnclaveBenchOptions = {
  readonly upstreams?: readonly Partial<WorkloadUpstream>[]
  readonly gateway?: Partial<GatewaySettings>
  /** By the names of the upstreams. */
  readonly upstreamKeys?: Readonly<Record<string, string>>
  /** Without them each request costs 7 nano-dollars in the books, whatever it is. */
  readonly prices?: ControlSnapshot['prices']
  readonly machine?: MachineOptions
  /** In place of a machine that is started for it. */
  readonly newMachine?: () => Machine
  /** With the authorities' keys in it, where they are not to be made anew. */
  readonly authorityDir?: string
  /** Its hosts share the limits of keys. */
  readonly isShared?: boolean
}

/** The stand-in for a VM; tests may put another in its place. */
export type Machine = Pick<
  EnclaveMachine,
  'state' | 'channel' | 'port' | 'exited' | 'connect' | 'disconnect' | 'kill' | 'output'
> &
  AsyncDisposable

/** One host with its gateway VMs. */
export class EnclaveBench {
  /** State directory of the host's side. */
  readonly dir: string
  readonly store: Store
  readonly host: BenchHost
  readonly metering: Metering
  readonly control: ControlSource
  readonly addresses: Addresses
  readonly books: VmUsageLedger
  readonly engine: GatewayVmEngine
  /** Routes requested of the firewall, in order. */
  readonly routes: GatewayVmRoute[] = []
  /** For each of these routes: the VM that the ledger had as `serving` then, null if there was none. */
  readonly servingAtRoutes: (string | null)[] = []
  readonly log: string[] = []
  /** Rows that the books wrote, in order. */
  readonly rows: UsageRow[] = []
  readonly caPem: string
  /** Changes what a VM is launched for from now on. */
  workload: WorkloadDocument
  readonly #undo: AsyncDisposableStack
  readonly #tls: Awaited<ReturnType<typeof createTls>>
  readonly #machines = new Map<string, Machine>()
  readonly #listeners: ((vmId: string) => void)[] = []
  readonly #options: EnclaveBenchOptions
  readonly #key: ControlKey
  readonly #forged = new Map<string, { text: string; hostData: string }>()

  static async start(options: EnclaveBenchOptions = {}): Promise<EnclaveBench> {
    const undo = new AsyncDisposableStack()
    const dir = fs.mkdtempSync(join(tmpdir(), 'srt-enclave-'))
    undo.defer(() => fs.rmSync(dir, { recursive: true, force: true }))
    const host = await sharedHost()
    const tls = await createTls({
      config: defaultConfig(),
      stateDir: options.authorityDir ?? dir,
      clock: systemClock,
      random: systemRandom,
      log: createLogger(quiet),
      onEvent: () => {},
    })
    undo.defer(() => tls.stop())
    const bench = new EnclaveBench({ undo, dir, host, tls, options })
    await bench.addresses.look()
    return bench
  }

  private constructor(parts: {
    undo: AsyncDisposableStack
    dir: string
    host: BenchHost
    tls: Awaited<ReturnType<typeof createTls>>
    options: EnclaveBenchOptions
  }) {
    const { undo, dir, host, tls, options } = parts
    this.#undo = undo
    this.#tls = tls
    this.#options = options
    this.dir = dir
    this.host = host
    this.caPem = fs.readFileSync(tls.caFile ?? '', 'utf8')
    this.store = openStore(join(dir, 'strongroom.db'))
    undo.defer(() => this.store.close())
    insertOrganization(this.store.directory.db, { id: 'o1', slug: 'acme', nowMs: 1 })
    const clock = systemClock
    const log = createLogger({ level: 'info', sink: line => void this.log.push(line), nowMs: clock.nowMs })
    const { prices } = options
    const cost = prices === undefined ? () => 7n : createCost(prices)
    this.metering = new Metering({ store: this.store.directory, clock, log, cost })
    undo.defer(() => this.metering.stop())
    const key = openControlKey(join(dir, 'control.key'))
    this.#key = key
    const { upstreamKeys = { far: 'sk-far' } } = options
    const { isShared = false } = options
    const settings = { upstreamKeys, prices: prices ?? [], isShared }
    this.control = new ControlSource({ db: this.store.directory.db, key, ...settings, clock })
    const { upstreams = [], gateway = {} } = options
    this.workload = workloadOf({ controlKey: key.publicKey, upstreams, gateway })
    this.addresses = new Addresses({
      urls: this.workload.upstreams.map(upstream => upstream.url),
      own: '10.0.0.1',
      resolve: async () => ['127.0.0.1'],
      clock,
      log,
    })
    const write = (rows: readonly UsageRow[]) => {
      this.metering.book(rows.map(usageRecordOf))
      this.rows.push(...rows)
    }
    this.books = new VmUsageLedger({ ledger: this.store.ledger.db, write, log })
    this.engine = this.#newEngine()
  }

  get workloadText(): string {
    return workloadText(this.workload)
  }

  /** Where clients of that VM go. */
  url(vmId: string): string {
    return `https://127.0.0.1:${this.machine(vmId).port}`
  }

  machine(vmId: string): Machine {
    const machine = this.#machines.get(vmId)
    if (machine === undefined) throw new Error(`there is no VM ${vmId}`)
    return machine
  }

  /** A key of the organization, as its clients send it. */
  addKey(changes: Partial<NewGatewayKey> = {}): string {
    const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
    insertGatewayKey(this.store.directory.db, {
      organizationId: 'o1',
      instanceId: null,
      requestsPerMinute: 100_000,
      tokensPerMinute: null,
      concurrencyMax: 10_000,
      expiresAtMs: null,
      nowMs: systemClock.nowMs(),
      prefix,
      secretSha256,
      ...changes,
    })
    return key
  }

  /** A VM that this host has launched for a workload, with its launch on record. */
  async boot(vmId: string, text: string): Promise<void> {
    const { db } = this.store.ledger
    const { hostId } = this.store
    const image = 'inference'
    insertVm(db, { id: vmId, hostId, image, ...gatewayVmSize, network: 'gateway', workload: text, nowMs: 1 })
    moveVm(db, { id: vmId, from: 'waiting', to: 'running', nowMs: 2, platform: 'tcg' })
    const hostData = toHex(hostDataOf({ document: launchDocument, workload: text }))
    const operatorKey = toHex(this.host.operatorKey)
    recordLaunch(db, {
      vmId,
      document: launchDocument,
      workload: text,
      measurement: launchMeasurement,
      hostData,
      operatorKey,
      launchedAtMs: 3,
    })
    const machine = this.#options.newMachine?.() ?? new EnclaveMachine(this.#options.machine)
    this.#machines.set(vmId, machine)
    void machine.exited.then(code => this.#fail(vmId, new Error(`exit code ${code}`)))
    this.#undo.use(machine)
    await this.connect(vmId)
    machine.state = 'running'
    this.#tell(vmId)
  }

  connect(vmId: string): Promise<void> {
    return this.machine(vmId).connect()
  }

  disconnect(vmId: string): void {
    this.machine(vmId).disconnect()
  }

  kill(vmId: string): void {
    this.#machines.get(vmId)?.kill()
  }

  output(vmId: string): string {
    return this.machine(vmId).output()
  }

  /** One message to the VM, whatever it is. */
  request(vmId: string, operation: AgentOperation): Promise<AgentSuccess> {
    const { channel } = this.machine(vmId)
    if (channel === null) throw new Error('the VM is not attached')
    return channel.request(operation, 30_000)
  }

  /**
   * The host hands over another text than the VM was launched with; the platform keeps reporting the launched one.
   */
  forgeWorkload(vmId: string, text: string): void {
    const launch = launchOf(this.store.ledger.db, vmId)
    if (launch === null) throw new Error(`no launch of ${vmId}`)
    this.#forged.set(vmId, { text, hostData: launch.hostData })
  }

  /** By the control key of this host. */
  signedSnapshot(snapshot: ControlSnapshot): { bytes: Uint8Array; signature: Uint8Array } {
    const bytes = utf8(JSON.stringify(snapshot))
    return { bytes, signature: this.#key.sign(controlMessage(bytes)) }
  }

  /** The row of a VM that is to serve. */
  addRow(vmId: string): void {
    insertGatewayVm(this.store.ledger.db, { vmId, hostId: this.store.hostId, shape: 's', nowMs: systemClock.nowMs() })
  }

  certify(csr: Uint8Array, options: Parameters<Certify>[1]): ReturnType<Certify> {
    return this.#tls.certify(csr, options)
  }

  newSession(vmId: string, changes: Partial<SessionDeps> = {}): GatewayVmSession {
    const { engine, control, addresses, books: usageLedger } = this
    const log = createLogger({ level: 'info', sink: line => void this.log.push(line), nowMs: systemClock.nowMs })
    const certify: Certify = (csr, options) => this.certify(csr, options)
    return new GatewayVmSession({
      vmId,
      engine,
      control,
      addresses,
      usageLedger,
      certify,
      certificatesStamp: () => this.#tls.stamp(),
      clock: systemClock,
      log,
      onChange: () => {},
      spans: null,
      usageReporter: createHostSums({ ...this.store, shares: null, statusOf: () => null }),
      shares: null,
      ...changes,
    })
  }

  verify(vmId: string): Promise<VerifiedGatewayVm> {
    const trust = async () => ({ roots: [this.host.root], simulated: true, operatorKeys: [this.host.operatorKey] })
    return verifyGatewayVm(
      { trust, clock: systemClock, random: systemRandom },
      { url: this.url(vmId), launch: this.engine.launch(vmId) },
    )
  }

  /** A VM that is asked for news; what follows is the caller's to wait for. */
  async begin(
    changes: Partial<SessionDeps> = {},
  ): Promise<{ readonly vmId: string; readonly session: GatewayVmSession }> {
    const vmId = newUuid()
    this.addRow(vmId)
    await this.boot(vmId, this.workloadText)
    const session = this.newSession(vmId, changes)
    this.#undo.defer(() => session.stop())
    session.start()
    return { vmId, session }
  }

  /** A VM that serves and whose usage is booked. */
  async serve(
    changes: Partial<SessionDeps> = {},
  ): Promise<{ readonly vmId: string; readonly session: GatewayVmSession }> {
    const { vmId, session } = await this.begin(changes)
    // It listens before its worker was admitted, and attests nothing until then: the status names that as its problem.
    await until('the gateway is ready', 60_000, () => {
      const { state, revision = 0, problem } = session.status ?? {}
      return state === 'ready' && revision > 0 && problem === null
    })
    const { receiptKey } = await this.verify(vmId).catch((error: Error) => {
      // The VM's reason is in its log alone.
      error.message += `\n${JSON.stringify(session.log(0).slice(-10))}`
      throw error
    })
    setReceiptKey(this.store.ledger.db, vmId, receiptKey)
    return { vmId, session }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync()
  }

  /** The VM whose row says `serving`. */
  servingRow(): string | null {
    return listGatewayVms(this.store.ledger.db, this.store.hostId).find(row => row.state === 'serving')?.vmId ?? null
  }

  #newEngine(): GatewayVmEngine {
    const gatewayVms = new GatewayVmRequests({
      db: this.store.ledger.db,
      sources: { collateral: null, simulated: async () => this.host },
      linkOf: vmId => {
        const channel = this.#machines.get(vmId)?.channel ?? null
        return channel === null ? null : { channel }
      },
    })
    return {
      define: (vmId, spec) => void this.boot(vmId, spec.workload ?? '').catch(error => this.#fail(vmId, error)),
      dismiss: vmId => {
        dismissVm(this.store.ledger.db, vmId)
        this.kill(vmId)
      },
      view: vmId => this.#view(vmId),
      onChange: listener => void this.#listeners.push(listener),
      open: () => {},
      route: async route => {
        this.routes.push(route)
        this.servingAtRoutes.push(this.servingRow())
      },
      launch: vmId => {
        const launch = launchOf(this.store.ledger.db, vmId)
        if (launch === null) throw new Error(`no launch of ${vmId}`)
        return { document: launch.document, workload: launch.workload, operatorKey: ledgerHex(launch.operatorKey) }
      },
      workload: (vmId, timeoutMs) =>
        this.#forged.has(vmId) ? this.#forgedWorkload(vmId) : gatewayVms.workload(vmId, timeoutMs),
      control: (...args) => gatewayVms.control(...args),
      tell: (...args) => gatewayVms.tell(...args),
      next: (...args) => gatewayVms.next(...args),
      report: (...args) => gatewayVms.report(...args),
      spans: (...args) => gatewayVms.spans(...args),
      completeEvidence: (...args) => gatewayVms.completeEvidence(...args),
      lower: (...args) => gatewayVms.lower(...args),
    }
  }

  async #forgedWorkload(vmId: string): Promise<void> {
    const forged = this.#forged.get(vmId)
    const bytes = Buffer.from(forged?.text ?? '')
    await this.request(vmId, { op: 'piece', document: 'workload', offset: 0, bytes: bytes.toString('base64') })
    const operatorKey = toHex(this.host.operatorKey)
    const simulated = { measurement: launchMeasurement, operatorKey, hostData: forged?.hostData ?? '' }
    await this.request(vmId, { op: 'workload', sha256: sha256Of(bytes), simulated })
  }

  #view(vmId: string): ReturnType<GatewayVmEngine['view']> {
    const machine = this.#machines.get(vmId)
    if (machine === undefined) return null
    const failed = machine.state === 'failed'
    return {
      id: vmId,
      // An engine lets a failed VM go once it is dismissed.
      state: failed && vmById(this.store.ledger.db, vmId)?.desired === 'gone' ? 'gone' : machine.state,
      platform: 'tcg',
      address: '127.0.0.1',
      addressV6: null,
      failureCode: failed ? 'agent_unreachable' : null,
      failureMessage: failed ? 'The VM is gone.' : null,
      failedAtMs: null,
      guest: null,
      opened: true,
    }
  }

  #fail(vmId: string, error: unknown): void {
    this.log.push(`VM ${vmId} failed: ${error}`)
    const machine = this.#machines.get(vmId)
    if (machine !== undefined) machine.state = 'failed'
    this.#tell(vmId)
  }

  #tell(vmId: string): void {
    for (const listener of this.#listeners) listener(vmId)
  }
}

const quiet = { level: 'error', sink: () => {}, nowMs: systemClock.nowMs } as const

/** `rootPem`: what its file held. */
type BenchHost = Omit<SimulatedHost, 'rootFile'> & { readonly rootPem: string }

let sharedHostOnce: Promise<BenchHost> | null = null

function sharedHost(): Promise<BenchHost> {
  sharedHostOnce ??= (async () => {
    const stateDir = fs.mkdtempSync(join(tmpdir(), 'srt-simulated-'))
    try {
      await keepSimulatedPlatform(stateDir)
      const deps = { stateDir, nowMs: systemClock.nowMs, random: systemRandom }
      const { rootFile, ...host } = await openSimulatedHost(deps)
      return { ...host, rootPem: fs.readFileSync(rootFile, 'utf8') }
    } finally {
      // It serves the next start, and there is none. The test runner reports no end to us.
      fs.rmSync(stateDir, { recursive: true })
    }
  })()
  return sharedHostOnce
}

function sha256Of(bytes: Uint8Array): string {
  return new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
}
