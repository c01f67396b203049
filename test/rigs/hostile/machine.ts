// A machine whose VM is hostile-vm-program.ts. Effects: a directory, a process.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Machine } from '../../../scripts/rigs/enclave/enclave.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { type Channel, connectChannel } from '../../../src/host/qemu/agent-channel.ts'
import { gatewayVmChannelLimits } from '../../../src/vm/evidence/gateway-vm.driver.ts'

const program = join(import.meta.dir, 'vm-program.ts')

export class HostileMachine implements Machine {
  state: 'booting' | 'running' | 'failed' = 'booting'
  channel: Channel | null = null
  /** It serves nobody. */
  readonly port = 0
  readonly #dir = mkdtempSync(join(tmpdir(), 'srt-hostile-vm-'))
  readonly #child: Bun.Subprocess

  /** As hostile-vm-program.ts names it. */
  constructor(kind: string) {
    const argv = ['setpriv', '--pdeathsig=KILL', '--', process.execPath, program, join(this.#dir, 'agent.sock'), kind]
    this.#child = Bun.spawn(argv, { stdio: ['ignore', 'ignore', 'inherit'] })
  }

  get exited(): Promise<number> {
    return this.#child.exited
  }

  output(): string {
    return ''
  }

  async connect(): Promise<void> {
    this.disconnect()
    this.channel = await connectChannel(join(this.#dir, 'agent.sock'), {
      idPrefix: systemRandom(6).toHex(),
      timeoutMs: 20_000,
      onClose: () => {},
      limits: gatewayVmChannelLimits,
    })
  }

  disconnect(): void {
    this.channel?.close()
    this.channel = null
  }

  kill(): void {
    this.#child.kill('SIGKILL')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.disconnect()
    this.kill()
    await this.#child.exited
    rmSync(this.#dir, { recursive: true, force: true })
  }
}
