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
type GatewayVm = AdminGatewayVms['gateways'][number]

/** Usage that waits for so long is in trouble: it is booked within a second where nothing is wrong. */
const usageWaitMsMax = 60_000

export function gatewayChecks(facts: GatewayFacts, config: Pick<Config, 'inference' | 'vm'>, nowMs: number): Check[] {
  if (facts.placement !== 'vm') return hostChecks(facts, config.inference)
  const { inference, vm } = config
  return [
    ...imageChecks(facts, 'gateway ', {
      image: `build it (bun scripts/build-image.ts inference) or copy it to inference.worker.image_dir (${inference.worker.image_dir}) again`,
      measurement: `set inference.vcpus (${inference.vcpus}) and vm.vcpu_type (${vm.vcpu_type}) to a shape that the image has a launch digest for`,
    }),
    modelCheck(facts, inference),
    controlKeyCheck(facts.controlKey),
    ...vmChecks(facts.shown, nowMs),
  ]
}

/** A line for each upstream that has to show evidence; null if the daemon does not answer. */
export function attestedChecks(upstreams: AdminStatus['gateway']['attested_upstreams'] | null): Check[] {
  return (upstreams ?? []).map(({ name: upstream, kind, attested, last_good_at: last, age_s: age, failures }) => {
    const name = 'attested upstream'
    const counts = failures.map(({ check, count }) => `${check} ${count}`).join(', ')
    const seen = last === null ? 'never verified' : `verified ${last}${age === null ? '' : `, ${age} s ago`}`
    const detail = `${upstream} (${kind}): ${seen}${counts === '' ? '' : `; failures: ${counts}`}`
    return attested ? pass(name, detail) : fail(name, `${detail}; it gets no prompts`, ATTESTED_REMEDY)
  })
}

const ATTESTED_REMEDY =
  'the log of the gateway has the reason (strongroom inference logs, or that of the daemon): connection, tls- and evidence- mean that no evidence arrived, collateral needs a newer attestation_collateral, and attestation_policy refuses the rest; change the policy only if the upstream was changed on purpose'

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

/** Name of the check whether a VM of the gateway serves. */
export const gatewayVmCheck = 'gateway VM'

function vmChecks(shown: AdminGatewayVms | null, nowMs: number): Check[] {
  const name = gatewayVmCheck
  if (shown === null) return [skip(name, 'the daemon does not answer')]
  if (shown.placement !== 'vm') {
    return [
      warn(
        name,
        `the daemon has placement "${shown.placement}"`,
        'restart the daemon: it has read another configuration',
      ),
    ]
  }
  const { gateways, problem } = shown
  return [servingCheck(name, gateways, problem), ...gateways.flatMap(gateway => usageCheck(gateway, nowMs))]
}

function servingCheck(name: string, gateways: readonly GatewayVm[], problem: string | null): Check {
  const serving = gateways.find(gateway => gateway.state === 'serving')
  if (serving !== undefined) {
    const detail = `${serving.vm} serves at ${serving.address}, since ${serving.since}`
    if (serving.problem !== null) return warn(name, `${detail}: ${serving.problem}`, LOGS_REMEDY)
    return problem === null ? pass(name, detail) : warn(name, `${detail}; no newer one: ${problem}`, LOGS_REMEDY)
  }
  const starting = gateways.findLast(gateway => gateway.state === 'starting')
  const why = starting?.problem ?? problem
  if (why === null && starting !== undefined) return skip(name, `${starting.vm} starts, since ${starting.since}`)
  return fail(name, `none serves: ${why ?? 'none has been started'}`, LOGS_REMEDY)
}

const LOGS_REMEDY = 'see strongroom inference show and strongroom inference logs, and the log of the daemon'

const USAGE_REMEDY =
  'keep the VM running, because these rows end with it, and correct what the log of the daemon names; with too many of them the gateway answers 503'

/** Nothing where all is well. */
function usageCheck({ vm, usage_waiting, usage_waiting_since: since, problem }: GatewayVm, nowMs: number): Check[] {
  if (since === null || nowMs - Date.parse(since) < usageWaitMsMax) return []
  const detail = `${usage_waiting} rows of ${vm} wait since ${since}, and none is booked${problem === null ? '' : `: ${problem}`}`
  return [fail('gateway usage', detail, USAGE_REMEDY)]
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
