// Recorded programs for a gateway that is a process of its own. Effects: a server on loopback.

import { join } from 'node:path'
import type { ProcessGpus } from '../../../../scripts/rigs/enclave/process.ts'
import { toBase64 } from '../../../../src/base/bytes.ts'
import { messageOf } from '../../../../src/base/fault.ts'
import type { Recorded } from './driver.ts'

export type ServedGpus = Disposable & { readonly process: ProcessGpus }

/** The process trusts the roots of these GPUs. */
export function serveRecorded(recorded: Recorded): ServedGpus {
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: async request => {
      const command = (await request.json()) as string[]
      try {
        const { stdout } = await recorded.run(command, { timeoutMs: 5_000, outputBytesMax: 1_048_576 })
        return new Response(stdout)
      } catch (error) {
        return new Response(messageOf(error), { status: 500 })
      }
    },
  })
  const roots = recorded.gpus.map(({ authorities: { device, rim } }) => ({
    device: toBase64(device.root.der),
    rim: toBase64(rim.root.der),
  }))
  const command = [process.execPath, join(import.meta.dir, 'program.ts'), `http://127.0.0.1:${server.port}`]
  return { process: { command, roots }, [Symbol.dispose]: () => void server.stop(true) }
}
