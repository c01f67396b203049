// A gateway VM without the VM: the enclave as a process, over a socket like QEMU's, with the host's whole side of it: store, books, keys,
// authority, simulated platform. Effects: a directory, processes, sockets; cleans up after itself.

import * as fs from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { recordOf } from '../../src/appliance/gateway-vm.ts'
import { gatewaySettings } from '../../src/appliance/inference.ts'
import { fromHex, toHex, utf8 } from '../../src/base/bytes.ts'
import { systemClock } from '../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { createLogger } from '../../src/base/log.ts'
import { defaultConfig } from '../../src/config/load.ts'
import { ATTESTED_WORKLOADS } from '../../src/contract/attestation.ts'
import { type ControlSnapshot, controlMessage } from '../../src/contract/enclave.ts'
import { type LaunchDocument, launchFormat, launchText } from '../../src/contract/launch.ts'
import {
  type GatewaySettings,
  type WorkloadDocument,
  type WorkloadUpstream,
  type WorkloadWorker,
  workloadFormat,
  workloadText,
} from '../../src/contract/workload.ts'
import { Addresses } from '../../src/enclave-host/addresses.ts'
import { Books } from '../../src/enclave-host/books.ts'
import { ControlSource } from '../../src/enclave-host/control.ts'
import { type ControlKey, openControlKey } from '../../src/enclave-host/control-key.ts'
import { GatewaySession } from '../../src/enclave-host/session.ts'
import type { GatewayEngine, GatewayRoute } from '../../src/enclave-host/types.ts'
import { type VerifiedGateway, verifyGatewayVm } from '../../src/enclave-host/verify.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { type Channel, connectChannel } from '../../src/host/qemu/agent-channel.ts'
import { openSimulatedHost, type SimulatedHost } from '../../src/host/simulated-host.ts'
import { createTls } from '../../src/http/certificate.ts'
import { allowlistOf } from '../../src/inference/attestation/workloads.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { Metering } from '../../src/inference/metering/ledger.ts'
import { workerCommand } from '../../src/inference/worker/command.plan.ts'
import { openStore, type Store } from '../../src/store/db.ts'
import { insertGatewayKey, type NewGatewayKey } from '../../src/store/directory/gateway-key.query.ts'
import { insertOrganization } from '../../src/store/directory/organization.query.ts'
import { insertGateway, setReceiptKey } from '../../src/store/ledger/gateway.query.ts'
import { launchOf, recordLaunch } from '../../src/store/ledger/launch.query.ts'
import { dismissVm, insertVm, moveVm } from '../../src/store/ledger/vm.query.ts'
import { hostDataOf } from '../../src/vm/expected.plan.ts'
import { gatewayChannelLimits, VmGateways } from '../../src/vm/gateway.driver.ts'
import { ledgerHex } from '../../src/vm/report.driver.ts'
import type { PortPaths } from './agent-port.ts'
import { freePort } from './booted-guest.ts'
import type { EnclaveProcessSettings } from './enclave-process.ts'
import { succeed } from './guest-root.ts'
import { until } from './until.ts'

export const launchMeasurement = 'ab'.repeat(48)
const measurement = launchMeasurement
const digest = 'cd'.repeat(32)
const command = ['strongroom-enclave', 'serve']
/** What the enclave takes for its own program. */
const executableText = 'the program of the gateway'

export type EnclaveBenchOptions = {
  readonly upstreams?: readonly Partial<WorkloadUpstream>[]
  readonly gateway?: Partial<GatewaySettings>
  readonly usageRowsMax?: number
}

type Machine = {
  readonly child: Bun.Subprocess
  readonly root: string
  readonly port: number
  readonly bridge: Disposable
  channel: Channel | null
  state: 'booting' | 'running' | 'failed'
}

/** One host with its gateway VMs. */
export class EnclaveBench {
  readonly dir: string
  readonly store: Store
  readonly host: SimulatedHost
  readonly metering: Metering
  readonly control: ControlSource
  readonly addresses: Addresses
  readonly books: Books
  readonly engine: GatewayEngine
  /** What was asked of the firewall, in order. */
  readonly routes: GatewayRoute[] = []
  readonly log: string[] = []
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
      ...{ stateDir: dir, clock: systemClock, random: systemRandom, log: createLogger(quiet), onEvent: () => {} },
    })
    undo.defer(() => tls.stop())
    const bench = new EnclaveBench({ undo, dir, host, tls, options })
    await bench.addresses.look()
    return bench
  }

  private constructor(parts: {
    undo: AsyncDisposableStack
    dir: string
    host: SimulatedHost
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
    this.metering = new Metering({ store: this.store.directory, clock, log, cost: () => 7n })
    undo.defer(() => this.metering.stop())
    const key = openControlKey(join(dir, 'control.key'))
    this.#key = key
    this.control = new ControlSource({ db: this.store.directory.db, key, upstreamKeys: { far: 'sk-far' }, clock })
    const upstreams = (options.upstreams ?? []).map(upstreamOf)
    this.addresses = new Addresses({
      urls: upstreams.map(one => one.url),
      own: '10.0.0.1',
      resolve: async () => ['127.0.0.1'],
      clock,
      log,
    })
    this.books = new Books({ ledger: this.store.ledger.db, write: rows => this.metering.book(rows.map(recordOf)), log })
    this.workload = {
      format: workloadFormat,
      allowlist: allowlistOf(
        ATTESTED_WORKLOADS.map(workload =>
          workload === 'inference-worker'
            ? { workload, imageDigest: fromHex(digest) ?? new Uint8Array(0), command: workerArgv }
            : { workload, imageDigest: sha256(utf8(executableText)), command },
        ),
      ),
      controlKey: key.publicKey,
      gateway: { ...gatewaySettings(defaultConfig()), publicRequestsPerMinute: 100_000, ...options.gateway },
      upstreams,
      worker: workloadWorker,
    }
    const gateways = new VmGateways({
      db: this.store.ledger.db,
      sources: { collateral: null, simulated: async () => host },
      linkOf: vmId => {
        const channel = this.#machines.get(vmId)?.channel ?? null
        return channel === null ? null : { channel }
      },
    })
    this.engine = {
      define: (vmId, spec) => void this.boot(vmId, spec.workload ?? '').catch(error => this.#fail(vmId, error)),
      dismiss: vmId => {
        dismissVm(this.store.ledger.db, vmId)
        this.kill(vmId)
      },
      view: vmId => this.#view(vmId),
      onChange: listener => void this.#listeners.push(listener),
      open: () => {},
      route: async route => void this.routes.push(route),
      launch: vmId => {
        const launch = launchOf(this.store.ledger.db, vmId)
        if (launch === null) throw new Error(`no launch of ${vmId}`)
        return { document: launch.document, workload: launch.workload, operatorKey: ledgerHex(launch.operatorKey) }
      },
      workload: async (vmId, timeoutMs) => {
        const forged = this.#forged.get(vmId)
        if (forged === undefined) return gateways.workload(vmId, timeoutMs)
        const channel = this.#machine(vmId).channel
        if (channel === null) throw new Error('the VM is not attached')
        const bytes = Buffer.from(forged.text)
        const operatorKey = toHex(this.host.operatorKey)
        await channel.request(
          { op: 'piece', document: 'workload', offset: 0, bytes: bytes.toString('base64') },
          timeoutMs,
        )
        const simulated = { measurement, operatorKey, hostData: forged.hostData }
        await channel.request({ op: 'workload', sha256: toHex(sha256(bytes)), simulated }, timeoutMs)
      },
      control: (...args) => gateways.control(...args),
      addresses: (...args) => gateways.addresses(...args),
      next: (...args) => gateways.next(...args),
      evidenceFor: (...args) => gateways.evidenceFor(...args),
      certificateFor: (...args) => gateways.certificateFor(...args),
      report: (...args) => gateways.report(...args),
      drain: (...args) => gateways.drain(...args),
      completeEvidence: (...args) => gateways.completeEvidence(...args),
    }
  }

  get workloadText(): string {
    return workloadText(this.workload)
  }

  /** Where clients of that VM go. */
  url(vmId: string): string {
    return `https://127.0.0.1:${this.#machine(vmId).port}`
  }

  /** A key of the organization, as its clients send it. */
  addKey(changes: Partial<NewGatewayKey> = {}): string {
    const { key, prefix, secretSha256 } = mintGatewayKey(systemRandom)
    insertGatewayKey(this.store.directory.db, {
      ...{ organizationId: 'o1', instanceId: null, requestsPerMinute: 100_000, tokensPerMinute: null },
      ...{ concurrencyMax: 10_000, expiresAtMs: null, nowMs: systemClock.nowMs(), ...changes, prefix, secretSha256 },
    })
    return key
  }

  /** A VM that this host has launched for a workload, with its launch on record. */
  async boot(vmId: string, text: string): Promise<void> {
    const { db } = this.store.ledger
    insertVm(db, {
      id: vmId,
      hostId: this.store.hostId,
      image: 'inference',
      ...size,
      network: 'gateway',
      workload: text,
      nowMs: 1,
    })
    moveVm(db, { id: vmId, from: 'waiting', to: 'running', nowMs: 2, platform: 'tcg' })
    const hostData = toHex(hostDataOf({ document: launchDocument, workload: text }))
    const operatorKey = toHex(this.host.operatorKey)
    recordLaunch(db, {
      ...{ vmId, document: launchDocument, workload: text, measurement, hostData, operatorKey, launchedAtMs: 3 },
    })
    const root = join(this.dir, vmId)
    const paths = guestPaths(root)
    for (const dir of ['run/strongroom', 'usr/lib/strongroom', 'proc/sys/kernel/random', 'dev']) {
      fs.mkdirSync(join(root, dir), { recursive: true })
    }
    fs.writeFileSync(paths.imageFile, '{"name":"inference"}')
    fs.writeFileSync(paths.bootId, '0f0e0d0c-0b0a-4908-8706-050403020100\n')
    fs.writeFileSync(paths.commandLine, `console=ttyS0 strongroom.root_hash=${digest}\n`)
    fs.writeFileSync(join(root, 'model.gguf'), modelText)
    fs.writeFileSync(join(root, 'program'), executableText)
    fs.writeFileSync(join(root, 'cmdline'), `${command.join('\0')}\0`)
    const fifos: PortPaths = { toGuest: join(root, 'to-guest'), fromGuest: join(root, 'from-guest') }
    succeed(['mkfifo', fifos.toGuest, fifos.fromGuest])
    const port = freePort()
    const settings: EnclaveProcessSettings = {
      ...{ root, port: fifos, listenPort: port, usageRowsMax: this.#options.usageRowsMax ?? 65_536 },
      executable: join(root, 'program'),
      commandLine: join(root, 'cmdline'),
      modelFile: join(root, 'model.gguf'),
    }
    const output = fs.openSync(join(root, 'output'), 'w')
    const program = [process.execPath, join(import.meta.dir, 'enclave-process.ts'), JSON.stringify(settings)]
    const child = Bun.spawn(program, { stdio: ['ignore', output, output] })
    fs.closeSync(output)
    const bridge = bridgeSocket(join(root, 'agent.sock'), fifos)
    const machine: Machine = { child, root, port, bridge, channel: null, state: 'booting' }
    this.#machines.set(vmId, machine)
    void child.exited.then(() => this.#fail(vmId, new Error(`exit code ${child.exitCode}`)))
    this.#undo.defer(() => this.#remove(vmId))
    await this.connect(vmId)
    machine.state = 'running'
    this.#tell(vmId)
  }

  /** As a daemon does at its start: a new connection to a VM that runs. */
  async connect(vmId: string): Promise<void> {
    const machine = this.#machine(vmId)
    machine.channel?.close()
    machine.channel = null
    const idPrefix = systemRandom(6).toHex()
    const channel = await connectChannel(join(machine.root, 'agent.sock'), {
      ...{ idPrefix, timeoutMs: 10_000, onClose: () => {}, limits: gatewayChannelLimits },
    })
    await until('the enclave says hello', 20_000, async () => {
      const hello = await channel.hello(2_000).catch(() => null)
      return hello !== null
    })
    machine.channel = channel
  }

  /** The daemon is gone: nobody reads the channel. */
  disconnect(vmId: string): void {
    const machine = this.#machine(vmId)
    machine.channel?.close()
    machine.channel = null
  }

  kill(vmId: string): void {
    this.#machines.get(vmId)?.child.kill('SIGKILL')
  }

  output(vmId: string): string {
    return fs.readFileSync(join(this.#machine(vmId).root, 'output'), 'utf8')
  }

  /** The host hands over another text than the VM was launched for; the platform goes on to report the one that it was. */
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
    insertGateway(this.store.ledger.db, { vmId, hostId: this.store.hostId, shape: 's', nowMs: systemClock.nowMs() })
  }

  newSession(vmId: string, onChange: () => void = () => {}): GatewaySession {
    const { engine, control, addresses, books } = this
    const log = createLogger({ level: 'info', sink: line => void this.log.push(line), nowMs: systemClock.nowMs })
    const certify = (csr: Uint8Array) => this.#tls.certify(csr)
    return new GatewaySession({ vmId, engine, control, addresses, books, certify, clock: systemClock, log, onChange })
  }

  verify(vmId: string): Promise<VerifiedGateway> {
    const trust = async () => ({ roots: [this.host.root], simulated: true, operatorKeys: [this.host.operatorKey] })
    return verifyGatewayVm(
      { trust, clock: systemClock, random: systemRandom },
      { url: this.url(vmId), launch: this.engine.launch(vmId) },
    )
  }

  /** A VM that serves and whose usage is booked. */
  async serve(): Promise<{ readonly vmId: string; readonly session: GatewaySession }> {
    const vmId = newUuid()
    this.addRow(vmId)
    await this.boot(vmId, this.workloadText)
    const session = this.newSession(vmId)
    this.#undo.defer(() => session.stop())
    session.start()
    await until('the gateway is ready', 20_000, () => session.status?.state === 'ready' && session.status.revision > 0)
    setReceiptKey(this.store.ledger.db, vmId, (await this.verify(vmId)).receiptKey)
    return { vmId, session }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync()
  }

  #machine(vmId: string): Machine {
    const machine = this.#machines.get(vmId)
    if (machine === undefined) throw new Error(`there is no VM ${vmId}`)
    return machine
  }

  #view(vmId: string): ReturnType<GatewayEngine['view']> {
    const machine = this.#machines.get(vmId)
    if (machine === undefined) return null
    const failed = machine.state === 'failed'
    return {
      id: vmId,
      state: machine.state,
      platform: 'tcg',
      address: '127.0.0.1',
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

  async #remove(vmId: string): Promise<void> {
    const machine = this.#machine(vmId)
    machine.child.kill('SIGKILL')
    await machine.child.exited
    machine.channel?.close()
    machine.bridge[Symbol.dispose]()
  }
}

const modelText = 'a model'
const modelDigest = new Bun.CryptoHasher('sha256').update(modelText).digest('hex')
const workloadWorker: WorkloadWorker = {
  model: 'w',
  disk: {
    ...{ name: 'tiny', rootHash: digest, hashOffset: 4096, fileBytes: modelText.length, golden: null },
    fileSha256: modelDigest,
  },
  ...{ contextTokens: 1024, parallel: 2, threads: 1, memoryMibMax: 512, startTimeoutMs: 10_000 },
}
const workerArgv = workerCommand(
  { ...defaultConfig().inference.worker, model: 'w', context_tokens: 1024, parallel: 2, threads: 1 },
  fromHex(modelDigest) ?? new Uint8Array(0),
)

const quiet = { level: 'error', sink: () => {}, nowMs: systemClock.nowMs } as const
const size = { vcpus: 2, memoryMib: 2048 } as const

const launchDocumentObject: LaunchDocument = {
  format: launchFormat,
  image: { name: 'inference', rootHash: digest, inputsSha256: digest },
  vehicle: 'ovmf',
  ...{ firmwareSha256: digest, kernelSha256: digest, initrdSha256: digest, cmdlineSha256: digest },
  ...{ vcpus: 2, vcpuType: 'EPYC-v4', memoryMib: 2048, policy: '0x30000', measurement },
}
const launchDocument = launchText(launchDocumentObject)

let sharedHostOnce: Promise<SimulatedHost> | null = null

/** Its keys take a second to make. */
function sharedHost(): Promise<SimulatedHost> {
  sharedHostOnce ??= (async () => {
    const stateDir = fs.mkdtempSync(join(tmpdir(), 'srt-simulated-'))
    process.on('exit', () => fs.rmSync(stateDir, { recursive: true, force: true }))
    return openSimulatedHost({ stateDir, nowMs: systemClock.nowMs, random: systemRandom, modulusBits: 2048 })
  })()
  return sharedHostOnce
}

export function upstreamOf(changes: Partial<WorkloadUpstream>): WorkloadUpstream {
  return {
    ...{ name: 'far', url: 'http://127.0.0.1:1/v1', engine: 'openai', models: ['m'], weight: 1, concurrencyMax: 1_000 },
    ...{ choicesMax: 4, contextTokens: null, content: [], remoteUrls: false, ca: null, spkiSha256: null, hasKey: true },
    ...changes,
  }
}

function sha256(bytes: Uint8Array): Uint8Array {
  return fromHex(new Bun.CryptoHasher('sha256').update(bytes).digest('hex')) ?? new Uint8Array(0)
}

/** QEMU's socket of the port: while a client is connected, the guest's FIFOs have a host. */
function bridgeSocket(path: string, { toGuest, fromGuest }: PortPaths): Disposable {
  let current: Socket | null = null
  const server = createServer(socket => {
    current?.destroy()
    current = socket
    const { O_WRONLY, O_RDONLY, O_NONBLOCK } = fs.constants
    const open = async () => {
      let writeFd = -1
      await until('the guest reads', 20_000, () => {
        try {
          writeFd = fs.openSync(toGuest, O_WRONLY | O_NONBLOCK)
          return true
        } catch {
          return socket.destroyed
        }
      })
      const readFd = fs.openSync(fromGuest, O_RDONLY | O_NONBLOCK)
      const close = () => {
        clearInterval(timer)
        for (const fd of [writeFd, readFd]) if (fd >= 0) fs.closeSync(fd)
      }
      const buffer = Buffer.alloc(262_144)
      const waiting: Buffer[] = []
      const step = () => {
        try {
          while (waiting[0] !== undefined) {
            const written = fs.writeSync(writeFd, waiting[0])
            waiting[0] = waiting[0].subarray(written)
            if (waiting[0].length === 0) waiting.shift()
          }
        } catch {
          // The FIFO is full, or nobody reads it any more.
        }
        try {
          for (let got = fs.readSync(readFd, buffer); got > 0; got = fs.readSync(readFd, buffer)) {
            socket.write(Buffer.from(buffer.subarray(0, got)))
          }
        } catch {
          // Nothing to read now.
        }
      }
      const timer = setInterval(step, 1)
      socket.on('data', chunk => {
        waiting.push(Buffer.from(chunk))
        step()
      })
      socket.once('close', close)
      if (socket.destroyed) close()
    }
    socket.on('error', () => {})
    void open()
  })
  server.listen(path)
  return {
    [Symbol.dispose]: () => {
      current?.destroy()
      server.close()
    },
  }
}
