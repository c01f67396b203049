// The images that an instance was verified with. A VM from before an upgrade still runs them, and stays accepted with
// them as long as it has the host key of that time; a new VM has another key, and is refused. Effects: files beside
// client.toml. Fault invalid_request.

import type { Run } from '../../terminal/command.ts'
import { imageCheck } from '../../verifier/launch.ts'
import { clientDirectory } from '../client-config.ts'
import { isGatewayOf, storedManifest, storeManifest } from '../known-images.ts'
import { readManifest } from '../verify/image-option.ts'
import {
  type EarlierExpectation,
  hostKeyOf,
  type InstanceExpectation,
  type InstanceOptions,
  type JudgedInstance,
  readExpectation,
} from '../verify/instance.ts'
import type { LocalInstance, LocalNames } from './names.ts'

/**
 * Reads the expectation with the images of the instance's last PASS instead of client.toml's. Null if there are no
 * others, or if options name the images.
 */
export async function readEarlierExpectation(
  run: Run,
  { image, gatewayImage, hostKey }: LocalInstance,
  options: InstanceOptions,
  identities: readonly string[],
): Promise<EarlierExpectation | null> {
  const { env } = run.io
  const paths = {
    image: options.image === undefined ? storedManifest(env, 'instance', image) : null,
    gateway_image: options.gatewayPolicy === undefined ? storedManifest(env, 'inference', gatewayImage) : null,
  }
  const images = {
    ...(paths.image === null ? {} : { image: paths.image }),
    ...(paths.gateway_image === null ? {} : { gateway_image: paths.gateway_image }),
  }
  if (Object.keys(images).length === 0) return null
  return { expectation: await readExpectation(run, options, identities, images), hostKey: hostKey ?? null }
}

/** Words for a person who logs in to it. */
export function earlierWords(name: string): string {
  return `${name} runs an image from before an upgrade, with which it was verified earlier; a new instance has the new one`
}

export type Verified = {
  readonly names: LocalNames
  readonly name: string
  readonly local: LocalInstance
  readonly judged: JudgedInstance
  readonly options: InstanceOptions
  readonly expectation: Pick<InstanceExpectation, 'defaults'>
}

/**
 * After PASS with images of options or client.toml, stores their manifests and returns the record with their names and
 * the VM's host key. Images of a VM with another host key are dropped.
 */
export async function withVerifiedImages(run: Run, verified: Omit<Verified, 'names' | 'name'>): Promise<LocalInstance> {
  const { local, judged, options, expectation } = verified
  const directory = clientDirectory(run.io.env)
  const { launch, claim, knownHost } = judged.found
  if (directory === null || knownHost === null || !judged.shown.ok || judged.isEarlier) return local
  const hostKey = hostKeyOf(knownHost)
  const { image: _, gatewayImage: __, ...other } = local
  const path = options.image ?? expectation.defaults.image
  const manifest = path === undefined ? null : await readManifest(path)
  const isRun = manifest !== null && launch !== null && imageCheck(manifest.image, launch).outcome === 'pass'
  const gatewayPath = options.gatewayPolicy === undefined ? expectation.defaults.gateway_image : undefined
  const gateway = gatewayPath === undefined || claim === null ? null : await readManifest(gatewayPath)
  const isAsked = gateway !== null && claim !== null && isGatewayOf(gateway.image, claim)
  return {
    ...(local.hostKey === hostKey ? local : { ...other, hostKey }),
    ...(isRun ? { image: storeManifest(directory, 'instance', manifest.bytes) } : {}),
    ...(isAsked ? { gatewayImage: storeManifest(directory, 'inference', gateway.bytes) } : {}),
  }
}

/** Writes the record with the images, if they changed. */
export async function keepVerifiedImages(run: Run, verified: Verified): Promise<void> {
  const { names, name, local } = verified
  const next = await withVerifiedImages(run, verified)
  const isSame = next.image === local.image && next.gatewayImage === local.gatewayImage
  if (isSame && next.hostKey === local.hostKey) return
  await names.replace(name, local, next)
}
