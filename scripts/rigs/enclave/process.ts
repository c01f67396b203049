// The gateway of a VM as its own process: `bun enclave-process.ts SETTINGS`, with SETTINGS as JSON; or compiled, with
// its children as other roles of the same program, as in strongroom-enclave. Effects.

import { relayCommand, schemaChildCommand } from '../../../src/base/work/child-commands.ts'
import { nvidiaPrograms } from '../../../src/enclave/gpus.ts'
import { type EnclaveSettings, serveEnclave } from '../../../src/enclave/serve.ts'
import type { StartSandboxed } from '../../../src/host/sandbox.ts'
import { run } from '../../../src/linux/command.ts'
import { openGuestEnd, type PortPaths } from '../guest/agent-port.ts'
import { createTsmKernel } from '../guest/tsm-kernel.ts'

export type EnclaveProcessSettings = {
  readonly root: string
  readonly port: PortPaths
  readonly listenPort: number
  readonly executable: string
  readonly commandLine: string
  readonly usageRowsMax: number
  readonly modelFile: string
  /** Null for an image without NVIDIA's programs, whose worker does not start if a workload requires GPUs. */
  readonly gpus: ProcessGpus | null
}

export type ProcessGpus = {
  /** Put before the command lines of NVIDIA's programs. */
  readonly command: readonly string[]
  /** DER of each pair of roots that are trusted, base64. */
  readonly roots: readonly { readonly device: string; readonly rim: string }[]
}

function gpusOf({ gpus }: EnclaveProcessSettings): EnclaveSettings['gpus'] {
  if (gpus === null) return { driver: nvidiaPrograms(run), roots: [] }
  return {
    driver: nvidiaPrograms((argv, options) => run([...gpus.command, ...argv], options)),
    roots: gpus.roots.map(({ device, rim }) => ({
      device: Uint8Array.fromBase64(device),
      rim: Uint8Array.fromBase64(rim),
    })),
  }
}

/** An engine that is always well and has one thing to say, on the socket of the sandbox. */
const startScriptedWorker: StartSandboxed = ({ mounts }) => {
  const socketDir = mounts.flatMap(mount => (mount.kind === 'bind' && mount.writable ? [mount.source] : []))[0]
  const answer = {
    id: 'x',
    object: 'chat.completion',
    created: 1,
    model: 'w',
    choices: [{ index: 0, message: { role: 'assistant', content: 'from inside' }, finish_reason: 'stop' }],
    usage: { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 },
  }
  const server = Bun.serve({
    unix: `${socketDir}/worker.sock`,
    fetch: ({ url }) => (url.endsWith('/health') ? new Response('{}') : Response.json(answer)),
  })
  const ended = Promise.withResolvers<number>()
  const kill = async () => {
    await server.stop(true)
    ended.resolve(137)
  }
  return { pid: process.pid, exited: ended.promise, kill }
}

const childRoles: readonly string[] = [schemaChildCommand, relayCommand]

if (import.meta.main) {
  const [, , argument = ''] = process.argv
  if (childRoles.includes(argument)) await import('../../../src/enclave/main.ts')
  else await serve(JSON.parse(argument))
}

async function serve(settings: EnclaveProcessSettings): Promise<void> {
  await serveEnclave('0.0.0-test', {
    ...settings,
    system: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    interfaceWaitMs: 0,
    devicesWaitMs: 0,
    configFiles: createTsmKernel({ provider: null }),
    showStage: stage => process.stdout.write(`${stage}\n`),
    openPort: async () => openGuestEnd(settings.port),
    run,
    // The real one would signal PID 1 of the machine that tests.
    powerOff: async () => process.exit(0),
    listen: { hostname: '127.0.0.1', port: settings.listenPort },
    gpus: gpusOf(settings),
    worker: {
      user: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
      startSandboxed: startScriptedWorker,
      openModel: async () => {},
      modelPath: () => settings.modelFile,
    },
  })
}
