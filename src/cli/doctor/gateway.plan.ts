// Judges the facts about service B. Pure.

import type { Config, Platform } from '../../config/schema.ts'
import type { AdminStatus } from '../../contract/admin/admin.ts'
import type { AdminGatewayVms } from '../../contract/admin/gateway-vms.ts'
import type { VfioDevice } from '../../host/vfio.ts'
import { gpuProblems, qemuProblem, smallBar } from '../../vm/gpu/gpu.plan.ts'
import { type Check, fail, fromOutcome, type ImageFacts, imageChecks, type Outcome, pass, skip, warn } from './check.ts'

/** Where the gateway is not in a VM: its worker is a process of this host. */
export type HostGatewayFacts = {
  readonly placement: 'host' | 'off'
  /** The worker's user; null when no worker is configured. */
  readonly user: Outcome | null
  /** Image, model and tools of the worker; null when none is configured. */
  readonly worker: Outcome | null
}

export type VmGatewayFacts = ImageFacts & {
  readonly placement: 'vm'
  /** Null when no worker is configured. */
  readonly model: Outcome | null
  /** Size of the model's file; null means not known. */
  readonly modelMib: number | null
  readonly controlKey: ControlKeyFacts
  /** The daemon's answer; null if it does not answer. */
  readonly shown: AdminGatewayVms | null
}

/** `unmade`: the first start makes it. `lost`: an earlier start has made it. */
export type ControlKeyFacts =
  | { readonly kind: 'unmade' | 'lost' | 'unknown'; readonly path: string }
  | { readonly kind: 'there'; readonly path: string; readonly uid: number; readonly mode: number }

export type GatewayFacts = HostGatewayFacts | VmGatewayFacts

type Inference = Config['inference']

export function gatewayChecks(facts: GatewayFacts, config: Pick<Config, 'inference' | 'vm'>): Check[] {
  if (facts.placement !== 'vm') return hostChecks(facts, config.inference)
  const { inference, vm } = config
  return [
    ...imageChecks(facts, 'gateway ', {
      image: `build it (bun scripts/build-image.ts inference) or copy it to inference.worker.image_dir (${inference.worker.image_dir}) again`,
      measurement: `set inference.vcpus (${inference.vcpus}) and vm.vcpu_type (${vm.vcpu_type}) to a shape that the image has a launch digest for`,
    }),
    modelCheck(facts, inference),
    controlKeyCheck(facts.controlKey),
    vmCheck(facts.shown),
  ]
}

/** One check for each upstream whose evidence was verified; the daemon lists the others as problems. */
export function attestedChecks(upstreams: AdminStatus['gateway']['attested_upstreams'] | null): Check[] {
  const good = (upstreams ?? []).filter(({ attested }) => attested)
  return good.map(({ name: upstream, kind, last_good_at: last, age_s: age, failures }) => {
    const counts = failures.map(({ check, count }) => `${check} ${count}`).join(', ')
    const seen = last === null ? 'never verified' : `verified ${last}${age === null ? '' : `, ${age} s ago`}`
    return pass('attested upstream', `${upstream} (${kind}): ${seen}${counts === '' ? '' : `; failures: ${counts}`}`)
  })
}

function hostChecks({ placement, user, worker }: HostGatewayFacts, inference: Inference): Check[] {
  const where =
    placement === 'off' ? 'listen.inference is off' : 'inference.placement is "host": it is a part of the daemon'
  return [
    skip('gateway', where),
    user === null
      ? skip('user', 'no built-in inference worker is configured; VMs need no users')
      : fromOutcome('user', user, `create it: useradd --system ${inference.worker.user}`),
    worker === null
      ? skip('worker', 'no built-in inference worker is configured')
      : fromOutcome('worker', worker, WORKER_REMEDY),
  ]
}

const WORKER_REMEDY =
  'install bubblewrap and erofs-utils; build or copy the inference image again; or correct inference.worker in the configuration'

function modelCheck({ model, modelMib }: VmGatewayFacts, inference: Inference): Check {
  const name = 'gateway model'
  if (model === null) return skip(name, 'no built-in inference worker is configured')
  if (!model.ok) {
    const remedy = 'make its disk: strongroom model add FILE.gguf; or correct inference.worker in the configuration'
    return fail(name, model.text, remedy)
  }
  const { memory_mib: memoryMib } = inference
  if (modelMib === null || modelMib < memoryMib) return pass(name, model.text)
  const detail = `${model.text}: its file has ${modelMib} MiB, the VM of the gateway ${memoryMib} MiB of memory`
  return warn(name, detail, 'raise inference.memory_mib above the size of the model and of its context')
}

function controlKeyCheck(key: ControlKeyFacts): Check {
  const name = 'control key'
  const { path } = key
  if (key.kind === 'unknown') return skip(name, 'needs root')
  if (key.kind === 'unmade') return skip(name, `the first start makes ${path}`)
  if (key.kind !== 'there') {
    const detail = `${path} is missing: the next start makes another, HOST_DATA of the gateway changes, and who pinned it sees a stranger`
    return fail(name, detail, `restore ${path} from the backup, for root alone (chmod 600)`)
  }
  const { uid, mode } = key
  if (uid === 0 && (mode & 0o077) === 0) return pass(name, path)
  const detail = `${path} has owner ${uid} and mode ${mode.toString(8)}: who reads it decides which keys the gateway takes`
  return fail(name, detail, `run chown root ${path} and chmod 600 ${path}; replace the key if others could read it`)
}

/** The daemon lists a gateway that does not serve, or not as configured, as a problem. */
function vmCheck(shown: AdminGatewayVms | null): Check {
  const name = 'gateway VM'
  if (shown === null) return skip(name, 'the daemon does not answer')
  if (shown.placement !== 'vm') {
    const detail = `the daemon has placement "${shown.placement}"`
    return warn(name, detail, 'restart the daemon: it has read another configuration')
  }
  const serving = shown.gateways.find(gateway => gateway.state === 'serving')
  if (serving === undefined) return skip(name, 'none serves')
  return pass(name, `${serving.vm} serves at ${serving.address}, since ${serving.since}`)
}

/** Checks the GPUs. Empty if none is configured. */
export function gpuChecks(gpus: readonly VfioDevice[], platform: Platform, qemu: Outcome): Check[] {
  if (gpus.length === 0) return []
  return [gpuLaunchCheck(platform, qemu), ...gpus.map(gpuCheck)]
}

function gpuLaunchCheck(platform: Platform, qemu: Outcome): Check {
  const name = 'gpu launch'
  if (platform !== 'snp') {
    const remedy = 'set inference.worker.gpu = [], or run this host with SEV-SNP'
    return fail(
      name,
      `inference.worker.gpu needs platform snp, not ${platform}: no report would vouch for a GPU`,
      remedy,
    )
  }
  if (!qemu.ok) return fail(name, qemu.text, 'install QEMU, or correct vm.qemu')
  const problem = qemuProblem(qemu.text)
  return problem === null
    ? pass(name, 'this QEMU gives devices to VMs of SEV-SNP')
    : fail(name, problem.text, problem.remedy)
}

/** Only evidence of a GPU shows whether it is in confidential mode, and only the guest can request that. */
function gpuCheck(device: VfioDevice): Check {
  const name = `gpu ${device.address}`
  const [problem] = gpuProblems(device)
  if (problem !== undefined) return fail(name, problem.text, problem.remedy)
  const small = smallBar(device)
  if (small !== null) return warn(name, small.text, small.remedy)
  const detail = `alone in its IOMMU group, bound to vfio-pci, ${device.powerState || 'power state unknown'}; the guest checks its confidential mode`
  return pass(name, detail)
}
