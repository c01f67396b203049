// The machine of a gateway VM, without a VM: the enclave as a process with its own root, behind a socket like QEMU's.
// Effects: a directory, a process, a socket.

import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemRandom } from '../../../src/base/ids.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { type Channel, connectChannel } from '../../../src/host/qemu/agent-channel.ts'
import { gatewayVmChannelLimits } from '../../../src/vm/evidence/gateway-vm.driver.ts'
import { phaseOf } from '../../lib/phases.ts'
import { builtEnclaveProcess } from '../built/enclave-process.ts'
import { reservePort } from '../free-port.ts'
import { type BridgeTap, bridgeSocket } from '../guest/agent-bridge.ts'
import type { PortPaths } from '../guest/agent-port.ts'
import { succeed } from '../guest/root.ts'
import { until } from '../until.ts'
import type { EnclaveProcessSettings, ProcessGpus } from './process.ts'
import { enclaveCommand, executableText, modelText, rootHash } from './workload.ts'

export type MachineOptions = {
  readonly usageRowsMax?: number
  readonly tap?: BridgeTap
  readonly gpus?: ProcessGpus
}

/**
 * The command line of the enclave: the executable in phases that have the time to compile it, otherwise the sources.
 * The suite names the executable, because it runs unit tests too. The build runs at import and takes no test's time.
 */
const { STRONGROOM_TEST_ENCLAVE: compiled } = process.env
const isCompiled = compiled !== undefined || ['slow', 'alone'].includes(phaseOf(Bun.main))
const program: readonly string[] = isCompiled
  ? [compiled ?? (await builtEnclaveProcess())]
  : [process.execPath, join(import.meta.dir, 'process.ts')]

/** Started by its making; it knows of no workload yet. */
export class EnclaveMachine {
  readonly port: number
  state: 'booting' | 'running' | 'failed' = 'booting'
  channel: Channel | null = null
  readonly #root: string
  readonly #port: PortPaths
  readonly #child: Bun.Subprocess
  readonly #bridge: Disposable
  /** The enclave listens there once it has its workload, which can be long after. */
  readonly #reservation: ReturnType<typeof reservePort>
  #tap: BridgeTap | null

  constructor({ usageRowsMax = 65_536, tap, gpus }: MachineOptions = {}) {
    const root = fs.mkdtempSync(join(tmpdir(), 'srt-enclave-vm-'))
    const port = makeRoot(root)
    this.#root = root
    this.#port = port
    this.#reservation = reservePort()
    this.port = this.#reservation.port
    this.#tap = tap ?? null
    const settings: EnclaveProcessSettings = {
      root,
      port,
      listenPort: this.port,
      usageRowsMax,
      executable: join(root, 'program'),
      commandLine: join(root, 'cmdline'),
      modelFile: join(root, 'model.gguf'),
      gpus: gpus ?? null,
    }
    const output = fs.openSync(join(root, 'output'), 'w')
    // A test run that is killed takes its machines with it.
    const argv = ['setpriv', '--pdeathsig=KILL', '--', ...program, JSON.stringify(settings)]
    this.#child = Bun.spawn(argv, { stdio: ['ignore', output, output] })
    fs.closeSync(output)
    this.#bridge = bridgeSocket({ path: this.socketPath, port, tap: (...seen) => this.#tap?.(...seen) })
  }

  get pid(): number {
    return this.#child.pid
  }

  /** Socket of its agent port: a new connection replaces the previous one. */
  get socketPath(): string {
    return join(this.#root, 'agent.sock')
  }

  /** Path of messages from the host. */
  get toGuestPath(): string {
    return this.#port.toGuest
  }

  get exited(): Promise<number> {
    return this.#child.exited
  }

  /** Output so far. */
  output(): string {
    return fs.readFileSync(join(this.#root, 'output'), 'utf8')
  }

  /** From now on every byte of its channel is shown to `tap`. */
  watch(tap: BridgeTap): void {
    this.#tap = tap
  }

  /** As a daemon does at its start: a new connection to a VM that runs. */
  async connect(): Promise<void> {
    this.disconnect()
    const channel = await connectChannel(this.socketPath, {
      idPrefix: systemRandom(6).toHex(),
      timeoutMs: 30_000,
      onClose: () => {},
      limits: gatewayVmChannelLimits,
    })
    await until('the enclave says hello', 60_000, async () => {
      const hello = await channel.hello(2_000).catch(() => null)
      return hello !== null
    })
    this.channel = channel
  }

  /** The daemon is gone: nobody reads the channel. */
  disconnect(): void {
    this.channel?.close()
    this.channel = null
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.kill()
    await this.#child.exited
    this.disconnect()
    this.#reservation.stop()
    this.#bridge[Symbol.dispose]()
    fs.rmSync(this.#root, { recursive: true, force: true })
  }
}

/** The files that it finds in a VM, and the FIFOs of its port. */
function makeRoot(root: string): PortPaths {
  const paths = guestPaths(root)
  for (const dir of ['run/strongroom', 'usr/lib/strongroom', 'proc/sys/kernel/random', 'dev']) {
    fs.mkdirSync(join(root, dir), { recursive: true })
  }
  fs.writeFileSync(paths.imageFile, '{"name":"inference"}')
  fs.writeFileSync(paths.bootId, '0f0e0d0c-0b0a-4908-8706-050403020100\n')
  fs.writeFileSync(paths.commandLine, `console=ttyS0 strongroom.root_hash=${rootHash}\n`)
  fs.writeFileSync(join(root, 'model.gguf'), modelText)
  fs.writeFileSync(join(root, 'program'), executableText)
  fs.writeFileSync(join(root, 'cmdline'), `${enclaveCommand.join('\0')}\0`)
  const port = { toGuest: join(root, 'to-guest'), fromGuest: join(root, 'from-guest') }
  succeed(['mkfifo', port.toGuest, port.fromGuest])
  return port
}
