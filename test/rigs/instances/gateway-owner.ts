// The owner of an instance whose gateway runs in a measured VM: policies that name both images, and verification from
// outside. Effects: files beside the appliance, runs the command line.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pinGatewayVm } from '../../../scripts/lib/gateway-pins.ts'
import { type Appliance, imageDir } from '../../../scripts/rigs/appliance.ts'
import type { ImageManifest } from '../../../src/contract/vm/image.ts'

/** For `strongroom-verify`: both images and the operator's key; `operatorKey` is hexadecimal. */
export async function ownersPolicy(appliance: Appliance, operatorKey: string): Promise<string> {
  const configFile = join(appliance.directory, 'strongroom.toml')
  const [, path = ''] = await pinGatewayVm({ configFile, directory: appliance.directory, operatorKey })
  const { launchDigests }: ImageManifest = JSON.parse(readFileSync(join(await imageDir(), 'manifest.json'), 'utf8'))
  const policy = JSON.parse(readFileSync(path, 'utf8')) as { measurements: string[] }
  return JSON.stringify({
    ...policy,
    measurements: [...policy.measurements, launchDigests['qemu-kvm/bios/EPYC-v4/2']],
  })
}

export type OwnerAsks = {
  readonly hostname: string
  /** A key of service A. */
  readonly key: string
  /** The image that the owner expects of the gateway. */
  readonly gatewayImage: string
  /** Upstreams outside of the gateway's VM that may get prompts. */
  readonly allowOutside: readonly string[]
}

/** `strongroom verify instance`, with a policy for the instance and one for its gateway. */
export async function verifyFromOutside(
  appliance: Appliance,
  { hostname, key, gatewayImage, allowOutside }: OwnerAsks,
): Promise<{ exitCode: number; prompts: string | undefined }> {
  const { directory, stateDir } = appliance
  const file = (path: string, text: string) => {
    writeFileSync(join(directory, path), text)
    return join(directory, path)
  }
  const operatorKey = file('operator-key.pub.pem', (await appliance.cli('operator-key')).stdout)
  const policyOf = async (image: string) =>
    (await appliance.cli('verify', 'policy-example', '--image', image, '--operator-key', operatorKey)).stdout
  const { exitCode, stdout } = await appliance.cli(
    ...['verify', 'instance', hostname, '--no-known-hosts', '--api', appliance.url, '--json'],
    ...['--ca', join(stateDir, 'ca/ca.pem'), '--key-file', file('key.txt', key)],
    ...['--trust-simulated-root', join(stateDir, 'simulator/root.pem'), '--public-key', appliance.publicKey],
    ...['--policy', file('instance.json', await policyOf(await imageDir()))],
    ...['--gateway-policy', file('gateway.json', await policyOf(gatewayImage))],
    ...allowOutside.flatMap(name => ['--allow-outside', name]),
  )
  const { checks } = JSON.parse(stdout) as { checks: { name: string; reason: string }[] }
  return { exitCode, prompts: checks.find(check => check.name === 'prompts')?.reason }
}
