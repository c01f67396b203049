// The built-in worker's command, sandbox and restart delays. Pure.

import { toHex } from '../../base/bytes.ts'
import { backOffMs } from '../../base/work/back-off.ts'
import type { WorkerConfig } from '../../config/inference.ts'
import type { Static } from '../../contract/type.ts'
import type { Sandbox } from '../../host/sandbox.ts'
import type { Owner } from '../../linux/files.ts'

/** Without GPUs, which belong to the worker's VM. */
export type WorkerSettings = Omit<Static<typeof WorkerConfig>, 'gpu' | 'gpu_policy'>

/** Path in the sandbox. It contains the digest, so that the admitted and attested command also pins the model. */
const modelPath = (digest: Uint8Array) => `/model/sha256-${toHex(digest)}.gguf`
const socketDir = '/run/worker'
export const workerSocketName = 'worker.sock'

/** Slot for health checks: each stream holds a server thread, and one must always be free. */
const spareThreads = 4

/** Returns the command that is admitted and attested. Log level 1: errors. No prompt cache, against timing leaks. */
export function workerCommand(settings: WorkerSettings, modelDigest: Uint8Array): string[] {
  return [
    '/usr/bin/llama-server',
    ...['--model', modelPath(modelDigest)],
    ...['--alias', settings.model],
    ...['--host', `${socketDir}/${workerSocketName}`],
    ...['--ctx-size', String(settings.context_tokens * settings.parallel)],
    ...['--parallel', String(settings.parallel)],
    ...['--threads', String(settings.threads)],
    ...['--threads-http', String(settings.parallel + spareThreads)],
    ...['--cache-ram', '0'],
    ...['--log-verbosity', '1'],
    '--no-cache-prompt',
    '--no-kv-unified',
    '--no-slots',
    '--no-ui',
    '--offline',
  ]
}

const tmpBytesMax = 64 * 1024 * 1024
const mountPointBytesMax = 64 * 1024
const tasksMin = 256

export type WorkerPlaces = {
  /** The unpacked root of the image. */
  readonly root: string
  /** A directory of the host, in which the worker creates its socket. */
  readonly socketDir: string
  readonly user: Owner
  /** SHA-256 of the model file. */
  readonly modelDigest: Uint8Array
}

/** Returns the sandbox, in which the model and the socket's directory are all that the worker sees of this host. */
export function workerSandbox(settings: WorkerSettings, places: WorkerPlaces): Sandbox {
  return {
    root: places.root,
    user: places.user,
    limits: {
      memoryMiBMax: settings.memory_mib_max === 0 ? 'any' : settings.memory_mib_max,
      // Threads that compute, for each batch size, and threads that serve HTTP, with as many to spare.
      tasksMax: tasksMin + 4 * (settings.threads + settings.parallel),
    },
    env: { PATH: '/usr/bin', LC_ALL: 'C.UTF-8', HOME: '/tmp' },
    mounts: [
      { kind: 'tmpfs', target: '/tmp', sizeBytes: tmpBytesMax },
      { kind: 'tmpfs', target: '/run', sizeBytes: mountPointBytesMax },
      { kind: 'bind', source: places.socketDir, target: socketDir, writable: true },
      { kind: 'read-only', target: '/run' },
      { kind: 'tmpfs', target: '/model', sizeBytes: mountPointBytesMax },
      { kind: 'bind', source: settings.model_file, target: modelPath(places.modelDigest), writable: false },
      { kind: 'read-only', target: '/model' },
    ],
  }
}

const restartRange = { minMs: 500, maxMs: 30_000 }

/** Returns the pause before the next start after `failures` in a row, in milliseconds. */
export function restartDelayMs(failures: number): number {
  return backOffMs(restartRange, failures)
}
