// The gateway as claims name it: its address, and what it has to prove to instances. Effects: reads the ledger, the
// gateway's image and the simulated platform.

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { sha256 } from '../attest/hash.ts'
import { outsideEntry } from '../attest/receipt/outside.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { hasWorker } from '../config/checks/worker.ts'
import { guestGateway } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { guestGatewayName } from '../contract/vm/agent.ts'
import type { Claim } from '../contract/vm/claim.ts'
import { exposuresIn } from '../contract/vm/exposure.ts'
import type { AttestedGateway } from '../contract/vm/inference-gateway.ts'
import { type SimulatedHost, simulatedRootPem } from '../host/simulated-host.ts'
import type { Store } from '../store/db.ts'
import { listGatewayVms } from '../store/ledger/gateway-vm.query.ts'
import { launchOf } from '../store/ledger/launch.query.ts'
import { expectedMeasurement } from '../vm/launch/expected.plan.ts'
import { loadGatewayVmImage } from '../vm/launch/image.driver.ts'
import type { Engine } from './engine.ts'
import { placementOf } from './gateway.ts'
import type { GatewayVmWorkloads } from './gateway-vm/workloads.ts'
import { gatewaySettings } from './inference.ts'

export type GuestGatewayParts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Pick<Engine, 'platform'>
  /** PEM of the authority that signs the gateway's certificate for instances. */
  readonly guestCaPem: string
  /** SHA-384 of the operator's ID key. */
  readonly operatorKey: { readonly digest: Uint8Array }
  /** Null if the gateway has no VM. */
  readonly workloads: Pick<GatewayVmWorkloads, 'textFor'> | null
  readonly simulatedPlatform: () => Promise<Pick<SimulatedHost, 'root'>>
  readonly log: Logger
}

export type GuestGatewayOf = () => Promise<Pick<Claim['inference'], 'baseUrl' | 'address' | 'gateway'>>

/** Called at each claim. Fault image.invalid: the gateway runs in a VM, its image is missing, and no VM serves. */
export function composeGuestGateway(parts: GuestGatewayParts): GuestGatewayOf {
  const { config, guestCaPem } = parts
  const { baseUrl, address } = guestGateway(config, guestGatewayName)
  const unattested = (why: 'host' | 'no-worker' | 'elsewhere', ca: string | null) => async () => ({
    baseUrl,
    address,
    gateway: { kind: 'unattested', why, ca } as const,
  })
  if (config.instances.inference_base_url !== '') return unattested('elsewhere', null)
  const placement = placementOf(config)
  if (placement === 'off') return async () => ({ baseUrl: '', address: null, gateway: { kind: 'none' } })
  if (placement === 'host') return unattested('host', guestCaPem)
  if (!hasWorker(config.inference.worker)) return unattested('no-worker', guestCaPem)
  return async () => ({ baseUrl, address, gateway: await attestedGateway(parts) })
}

async function attestedGateway(parts: GuestGatewayParts): Promise<AttestedGateway> {
  const { config, engine, operatorKey, simulatedPlatform } = parts
  const isSnp = engine.platform === 'snp'
  const { measurements, workloads } = launchesOf(parts)
  const allow = exposuresIn(gatewaySettings(config))
  return {
    kind: 'attested',
    measurements,
    operatorKey: operatorKey.digest.toHex(),
    // Before the first VM serves, the disk of its model may be missing, and with it the text.
    ...(workloads.length === 0 ? {} : { workloads }),
    ...(allow.length === 0 ? {} : { allow }),
    // Names are ASCII: their order is that of their bytes.
    outside: config.inference.upstreams.map(({ name, url }) => outsideEntry(name, url)).toSorted(),
    simulatedRoot: isSnp ? null : simulatedRootPem((await simulatedPlatform()).root),
  }
}

/** Behind the directory of the image in force: the image that is to take its place. */
const nextImageSuffix = '.next'

/** Two digests of a launch. `workload`: SHA-256 of workload.json; null if it cannot be derived now. */
type KnownLaunch = { readonly measurement: string; readonly workload: string | null }

/** Returns the launch of the image in a directory. Throws Fault image.invalid. */
function launchIn(directory: string, { config, workloads, log }: GuestGatewayParts): KnownLaunch {
  const { vm, inference } = config
  const { manifest } = loadGatewayVmImage(directory)
  const shape = { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus: inference.vcpus }
  const measurement = expectedMeasurement(manifest, shape)
  try {
    const text = workloads?.textFor(manifest) ?? null
    return { measurement, workload: text === null ? null : toHex(sha256(utf8(text))) }
  } catch (error) {
    log.warn('claims do not name the workload.json of an image', { directory, reason: messageOf(error) })
    return { measurement, workload: null }
  }
}

/**
 * Launches of the VM that serves, of the image its successor boots, and of the image the operator announced: an
 * instance claimed before an update of the image accepts the gateway after it.
 */
function launchesOf(parts: GuestGatewayParts): { readonly measurements: string[]; readonly workloads: string[] } {
  const { config, store, log } = parts
  const serving = listGatewayVms(store.ledger.db, store.hostId).find(({ state }) => state === 'serving')
  const launch = serving === undefined ? null : launchOf(store.ledger.db, serving.vmId)
  const known: KnownLaunch[] = launch === null ? [] : [{ measurement: launch.measurement, workload: launch.hostData }]
  const directory = resolve(config.inference.worker.image_dir)
  try {
    known.push(launchIn(directory, parts))
  } catch (error) {
    // An image that is being replaced does not affect the serving VM.
    if (known.length === 0) throw error
  }
  const next = `${directory}${nextImageSuffix}`
  try {
    if (existsSync(next)) known.push(launchIn(next, parts))
  } catch (error) {
    log.warn('the announced image of the gateway cannot be read: claims do not name it', {
      directory: next,
      reason: messageOf(error),
    })
  }
  const sorted = (texts: readonly (string | null)[]) => [...new Set(texts.filter(text => text !== null))].toSorted()
  return {
    measurements: sorted(known.map(({ measurement }) => measurement)),
    workloads: sorted(known.map(({ workload }) => workload)),
  }
}
