// A real swtpm behind a unix socket, without a VM, for raw commands and responses. Effects: one process, ended with its
// owner.

import { mkdtemp, rm } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'
import { present } from '../../../src/base/assert.ts'
import { responseCode, startup } from '../../../src/guest/tpm/command.codec.ts'
import type { TpmDevice, Transmit } from '../../../src/guest/tpm/device.ts'

export type TestTpm = AsyncDisposable & {
  readonly device: TpmDevice
  readonly transmit: Transmit
  readonly kill: () => Promise<void>
}

/** A primary key of RSA takes as long as its primes are looked for. */
const answerMs = 60_000

export async function startSwtpm(): Promise<TestTpm> {
  const dir = await mkdtemp('/tmp/swtpm-test-')
  const [path, control] = [join(dir, 'tpm'), join(dir, 'ctrl')]
  const child = Bun.spawn(
    [
      // Ends with this process, however that ends.
      ...['setpriv', '--pdeathsig', 'KILL', '--'],
      ...['swtpm', 'socket', '--tpm2', '--tpmstate', `dir=${dir}`, '--server', `type=unixio,path=${path}`],
      ...['--ctrl', `type=unixio,path=${control}`, '--flags', 'not-need-init'],
    ],
    { stdout: 'inherit', stderr: 'inherit' },
  )
  const dispose = async () => {
    child.kill('SIGKILL')
    await child.exited
    await rm(dir, { recursive: true, force: true })
  }
  try {
    const socket = await connected(path)
    const waiting: PromiseWithResolvers<Uint8Array>[] = []
    socket.on('data', chunk => waiting.shift()?.resolve(Uint8Array.from(chunk)))
    socket.on('close', () => {
      for (const { reject } of waiting.splice(0)) reject(new Error('swtpm has closed'))
    })
    socket.on('error', () => {})
    const transmit: Transmit = command => {
      const answer = Promise.withResolvers<Uint8Array>()
      if (socket.destroyed) return Promise.reject(new Error('swtpm has closed'))
      waiting.push(answer)
      socket.write(command)
      const late = setTimeout(() => answer.reject(new Error(`no answer within ${answerMs} ms`)), answerMs)
      return answer.promise.finally(() => clearTimeout(late))
    }
    const code = responseCode(await transmit(startup()))
    if (code !== 0) throw new Error(`TPM2_Startup: 0x${code.toString(16)}`)
    return {
      transmit,
      device: { session: use => use(transmit) },
      kill: async () => {
        child.kill('SIGKILL')
        await child.exited
      },
      [Symbol.asyncDispose]: async () => {
        socket.destroy()
        await dispose()
      },
    }
  } catch (error) {
    await dispose()
    throw error
  }
}

/** Its socket has a name some time before it listens there. */
async function connected(path: string): Promise<Socket> {
  const found: Socket[] = []
  await until('swtpm listens', answerMs, async () => {
    const socket = await connectOnce(path)
    if (socket !== null) found.push(socket)
    return socket !== null
  })
  return present(found[0], 'there is one once it has listened')
}

function connectOnce(path: string): Promise<Socket | null> {
  const { promise, resolve } = Promise.withResolvers<Socket | null>()
  const socket = connect(path)
  socket.on('connect', () => resolve(socket))
  socket.on('close', () => resolve(null))
  socket.on('error', () => resolve(null))
  return promise
}
