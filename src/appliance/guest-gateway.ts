// The gateway that claims name: how instances reach it, and what it has to prove to them. Effects: reads the ledger, the gateway's image, and the
// simulated platform where there is one.

import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { outsideEntry } from '../attest/receipt/outside.ts'
import { messageOf } from '../base/fault.ts'
import type { Logger } from '../base/log.ts'
import { hasWorker } from '../config/checks/worker.ts'
import { guestGateway } from '../config/listen.ts'
import type { Config } from '../config/schema.ts'
import { type Claim, guestGatewayName } from '../contract/vm/agent.ts'
import type { AttestedGateway } from '../contract/vm/inference-gateway.ts'
import { type SimulatedHost, simulatedRootPem } from '../host/simulated-host.ts'
import type { Store } from '../store/db.ts'
import { listGateways } from '../store/ledger/gateway.query.ts'
import { launchOf } from '../store/ledger/launch.query.ts'
import { expectedMeasurement } from '../vm/launch/expected.plan.ts'
import { loadGatewayImage } from '../vm/launch/image.driver.ts'
import type { Engine } from './engine.ts'
import { placementOf } from './gateway.ts'

export type GuestGatewayParts = {
  readonly config: Config
  readonly store: Store
  readonly engine: Pick<Engine, 'platform'>
  /** PEM of the authority that signs the gateway's certificate for instances. */
  readonly guestCaPem: string
  /** SHA-384 of the operator's ID key. */
  readonly operatorKey: { readonly digest: Uint8Array }
  readonly simulatedPlatform: () => Promise<Pick<SimulatedHost, 'root'>>
  readonly log: Logger
}

export type GuestGatewayOf = () => Promise<Pick<Claim['inference'], 'baseUrl' | 'address' | 'gateway'>>

/** Asked for at each claim. Fault image.invalid: the gateway is to run in a VM whose image is not there, and none serves. */
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
  return {
    kind: 'attested',
    measurements: measurementsOf(parts),
    operatorKey: operatorKey.digest.toHex(),
    // Names are ASCII: their order is that of their bytes.
    outside: config.inference.upstreams.map(({ name, url }) => outsideEntry(name, url)).toSorted(),
    simulatedRoot: isSnp ? null : simulatedRootPem((await simulatedPlatform()).root),
  }
}

/** Behind the directory of the image in force: the image that is to take its place. */
const nextImageSuffix = '.next'

/** Fault image.invalid. */
function measurementIn(directory: string, { vm, inference }: Config): string {
  const shape = { vehicle: vm.snp_boot, vcpuType: vm.vcpu_type, vcpus: inference.vcpus }
  return expectedMeasurement(loadGatewayImage(directory).manifest, shape)
}

/**
 * Those of the VM that serves, of the image which the next one boots, and of the image that the operator has announced: an instance that is
 * claimed before an update accepts the gateway after it, too.
 */
function measurementsOf({ config, store, log }: GuestGatewayParts): string[] {
  const serving = listGateways(store.ledger.db, store.hostId).find(({ state }) => state === 'serving')
  const launch = serving === undefined ? null : launchOf(store.ledger.db, serving.vmId)
  const known = launch === null ? [] : [launch.measurement]
  const directory = resolve(config.inference.worker.image_dir)
  try {
    known.push(measurementIn(directory, config))
  } catch (error) {
    // An image that is being replaced keeps nobody from the VM that serves.
    if (known.length === 0) throw error
  }
  const next = `${directory}${nextImageSuffix}`
  try {
    if (existsSync(next)) known.push(measurementIn(next, config))
  } catch (error) {
    log.warn('the announced image of the gateway cannot be read: claims do not name it', {
      directory: next,
      reason: messageOf(error),
    })
  }
  return [...new Set(known)].toSorted()
}
