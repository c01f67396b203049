// Role `serve`: composes a gateway VM and serves the channel until the device fails. Effects: those of the parts.

import * as fs from 'node:fs'
import { NVIDIA_ROOTS } from '../attest/nvidia/roots.ts'
import { present } from '../base/assert.ts'
import { fromHex, utf8 } from '../base/bytes.ts'
import { systemClock } from '../base/clock.ts'
import { systemRandom } from '../base/ids.ts'
import { checkedJson } from '../contract/check.ts'
import { Closed } from '../contract/forms.ts'
import { Type } from '../contract/type.ts'
import { gatewayVmPort } from '../contract/vm/enclave.ts'
import { bootIdIn } from '../guest/boot-id.ts'
import { createBoxKey } from '../guest/keys/box-key.ts'
import { imageNameIn, type ProgramSettings, programSettings, rootHashIn, startProgram } from '../guest/program.ts'
import { startSandboxed } from '../host/sandbox.ts'
import { drawReceiptKeys } from '../inference/attestation/receipt-keys.ts'
import { sha256File } from '../inference/attestation/workloads.ts'
import { SpendCache } from '../inference/metering/spend-cache.ts'
import { UsageSpool } from '../inference/metering/spool.ts'
import { readTextOrNull } from '../linux/files.ts'
import { mountReadOnly } from '../linux/mount.ts'
import { createNonceMemory } from '../store/ledger/nonce-memory.ts'
import { Enclave } from './enclave.ts'
import { EnclaveGateway } from './gateway.ts'
import { EnclaveGpus, type GpusDeps, nvidiaPrograms } from './gpus.ts'
import { HostRequests } from './host-requests.ts'
import { Hosts } from './hosts.ts'
import { LogLines } from './log-lines.ts'
import { modelPath, openModel } from './models.ts'
import { enclavePaths } from './paths.ts'
import { SpanSpool } from './span-spool.ts'
import { showStage } from './stage.ts'
import { createStartWorker, type EnclaveWorkerDeps } from './worker.ts'

/** Paths and devices of the gateway VM; tests pass their own. */
export type EnclaveSettings = ProgramSettings & {
  readonly listen: { readonly hostname: string; readonly port: number }
  readonly executable: string
  readonly commandLine: string
  readonly worker: Pick<EnclaveWorkerDeps, 'user' | 'startSandboxed' | 'openModel' | 'modelPath'>
  readonly gpus: Pick<GpusDeps, 'driver' | 'roots'>
  readonly usageRowsMax: number
}

/** Inside the VM: guest-image/common/initrd/enclave has the other half of these. */
export const enclaveSettings: EnclaveSettings = {
  ...programSettings,
  showStage,
  listen: { hostname: '0.0.0.0', port: gatewayVmPort },
  executable: '/proc/self/exe',
  commandLine: '/proc/self/cmdline',
  worker: {
    user: { uid: 999, gid: 999 },
    startSandboxed,
    modelPath: model => modelPath('', model),
    openModel: model =>
      openModel(model, { root: '', run: programSettings.run, mountReadOnly, clock: systemClock, diskWaitMs: 10_000 }),
  },
  gpus: { driver: nvidiaPrograms(programSettings.run), roots: [NVIDIA_ROOTS] },
  /** No share: fills only while the host accepts no row; then every request is refused. */
  usageRowsMax: 65_536,
}

/** Rejects if the program must be restarted: no port, or a failing device. Its keys exist only in this process. */
export async function serveEnclave(version: string, settings: EnclaveSettings): Promise<never> {
  const paths = enclavePaths(settings.root)
  const lines = new LogLines()
  const spans = new SpanSpool()
  const program = startProgram(settings, { name: 'gateway', version, paths, unit: 'enclave', sink: lines.add })
  const { clock, log, device, networking } = program
  const keys = drawReceiptKeys(systemRandom)
  const executableDigest = digestOfProgram(paths.programFile, settings.executable)
  executableDigest.catch(() => {}) // reported where it is awaited
  const hostRequests = new HostRequests(clock)
  let spent: SpendCache | null = null
  const spool = new UsageSpool({
    rowsMax: settings.usageRowsMax,
    sign: message => keys.signClassically(message),
    onRow: row => {
      spent?.add(row)
      hostRequests.wake()
    },
    clock,
  })
  const nonces = createNonceMemory()
  const rootHash = rootHashIn(paths)
  const startWorker = createStartWorker({
    ...settings.worker,
    runDir: paths.runDir,
    root: { path: paths.workerRoot, rootHash: rootHash === null ? null : fromHex(rootHash) },
    clock,
    log: log.unit('worker'),
  })
  const enclave = new Enclave({
    version,
    keys,
    device,
    networking,
    spool,
    spans,
    hostRequests,
    lines,
    clock,
    log,
    imageName: imageNameIn(paths),
    identity: { bootId: bootIdIn(paths), boxKey: createBoxKey().boxKey },
    hosts: new Hosts(paths.hosts, settings.system),
    makeGateway: parts => {
      spent = new SpendCache({ hostRequests: hostRequests, spool, control: parts.control, clock })
      return new EnclaveGateway({
        ...parts,
        keys,
        spool,
        spans,
        spent,
        hostRequests,
        startWorker,
        openGpus: required => new EnclaveGpus(required, { ...settings.gpus, clock, random: systemRandom }),
        clock,
        nonces,
        listen: settings.listen,
        executableDigest,
        // Read from the kernel, because the runtime's own argv names paths inside the executable.
        command: fs.readFileSync(settings.commandLine, 'utf8').split('\0').slice(0, -1),
        log: log.unit('inference'),
        onChange: () => hostRequests.wake(),
      })
    },
  })
  const channel = await program.channel
  program.ready()
  return await program.serve(channel, { needed: device, handle: enclave.handle })
}

const ProgramFile = Closed({ sha256: Type.String({ pattern: '^[0-9a-f]{64}$' }) })

/** From the measured root, which is as trustworthy as the file and available at once; otherwise from the file. */
async function digestOfProgram(programFile: string, executable: string): Promise<Uint8Array> {
  const text = readTextOrNull(programFile)
  if (text === null) return sha256File(executable)
  const { sha256 } = checkedJson(ProgramFile, utf8(text), { what: programFile, code: 'image.invalid' })
  return present(fromHex(sha256), 'the schema lets only hexadecimal through')
}
