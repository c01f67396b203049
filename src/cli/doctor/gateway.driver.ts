// Collects the facts about service B for `strongroom doctor`. Effects: reads files, runs a command that changes
// nothing, calls the daemon.

import { existsSync, statSync } from 'node:fs'
import { systemErrorCode } from '../../base/fault.ts'
import { hasWorker } from '../../config/checks/worker.ts'
import type { Config } from '../../config/schema.ts'
import { AdminGatewayVms } from '../../contract/admin/gateway-vms.ts'
import { controlKeyFile } from '../../enclave-host/control-key.ts'
import { loadModel } from '../../host/models/models.ts'
import { plainEnv, run } from '../../linux/command.ts'
import { loadGatewayVmImage } from '../../vm/launch/image.driver.ts'
import type { AdminClient } from '../daemon-client.ts'
import { type Outcome, outcomeOf } from './check.ts'
import type { ControlKeyFacts, GatewayFacts, VmGatewayFacts } from './gateway.plan.ts'
import { checkImage, checkWorkerImage, measurementOf } from './image-check.driver.ts'

type Worker = Config['inference']['worker']

const commandTimeoutMs = 10_000
const outputBytesMax = 65_536
const mib = 1024 * 1024

/** Never throws. */
export async function collectGatewayFacts(
  config: Config,
  { stateDir, client }: { readonly stateDir: string; readonly client: AdminClient },
): Promise<GatewayFacts> {
  const { listen, vm, inference } = config
  const { worker } = inference
  if (listen.inference === '') return { placement: 'off', user: null, worker: null }
  if (inference.placement === 'host') {
    const isThere = hasWorker(worker)
    return {
      placement: 'host',
      user: isThere ? await userOutcome(worker.user) : null,
      worker: isThere ? await workerOutcome(worker, stateDir) : null,
    }
  }
  const image = await outcomeOf(() => checkImage(worker.image_dir, loadGatewayVmImage))
  return {
    placement: 'vm',
    image,
    measurement: image.ok
      ? await outcomeOf(() => measurementOf(loadGatewayVmImage(worker.image_dir), vm, inference.vcpus))
      : null,
    ...(await modelFacts(worker, stateDir)),
    controlKey: controlKeyFacts(stateDir),
    shown: await client.request({ path: '/inference', response: AdminGatewayVms }).catch(() => null),
  }
}

async function modelFacts(worker: Worker, stateDir: string): Promise<Pick<VmGatewayFacts, 'model' | 'modelMib'>> {
  if (!hasWorker(worker)) return { model: null, modelMib: null }
  let bytes: number | null = null
  const model = await outcomeOf(() => {
    if (worker.model_disk === '') {
      bytes = statSync(worker.model_file).size
      return `${worker.model}, of ${worker.model_file}; the daemon makes its disk`
    }
    const { fileBytes, name, golden } = loadModel(stateDir, worker.model_disk).model
    bytes = fileBytes
    return `${worker.model} from disk ${name}, ${golden === null ? 'no' : 'with a'} golden answer`
  })
  return { model, modelMib: bytes === null ? null : Math.ceil(bytes / mib) }
}

function controlKeyFacts(stateDir: string): ControlKeyFacts {
  const path = controlKeyFile(stateDir)
  try {
    const { uid, mode } = statSync(path)
    return { kind: 'there', path, uid, mode: mode & 0o7777 }
  } catch (error) {
    if (systemErrorCode(error) !== 'ENOENT') return { kind: 'unknown', path }
    return { kind: existsSync(`${stateDir}/strongroom.db`) ? 'lost' : 'unmade', path }
  }
}

/** getent(1) fails without a message when there is no such user. */
async function userOutcome(user: string): Promise<Outcome> {
  const argv = ['getent', 'passwd', user]
  const found = await outcomeOf(async () => (await run(argv, { timeoutMs: commandTimeoutMs, outputBytesMax })).stdout)
  if (!found.ok) return { ok: false, text: `there is no user ${user}` }
  const [, , uid = '?', gid = '?'] = found.text.split(':')
  if (uid === '0') return { ok: false, text: `${user} is root; the worker must not run as root` }
  return { ok: true, text: `${user}, uid ${uid}, gid ${gid.trim()}` }
}

const workerTools = ['bwrap', 'setpriv', 'fsck.erofs'] as const

async function workerOutcome(worker: Worker, stateDir: string): Promise<Outcome> {
  const missing = workerTools.filter(tool => Bun.which(tool, { PATH: plainEnv.PATH }) === null)
  if (missing.length > 0) return { ok: false, text: `not installed: ${missing.join(', ')}` }
  if (worker.model_file !== '' && !existsSync(worker.model_file)) {
    return { ok: false, text: `${worker.model_file} does not exist` }
  }
  return await outcomeOf(async () => {
    const disk = worker.model_disk === '' ? null : loadModel(stateDir, worker.model_disk).model
    const ofDisk =
      disk === null ? '' : ` from disk ${disk.name}, ${disk.golden === null ? 'no' : 'with a'} golden answer,`
    return `${worker.model}${ofDisk} by ${await checkWorkerImage(worker.image_dir)}`
  })
}
