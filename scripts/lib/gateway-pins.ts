// Pins of a gateway on a simulated platform, made from the relying party's own executable, configuration, image and
// model. Effects: reads these files, writes the files for `strongroom verify gateway`. The gateway itself is not
// asked.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { encodePolicy } from '../../src/attest/policy/encode.ts'
import { policyWithFloors } from '../../src/attest/policy/floor-policy.ts'
import { outsideEntry } from '../../src/attest/receipt/outside.ts'
import { fromHex } from '../../src/base/bytes.ts'
import { loadConfig } from '../../src/config/load.ts'
import { ATTESTED_WORKLOADS } from '../../src/contract/http/attestation.ts'
import { encodeAllowlist } from '../../src/contract/vm/allowlist.ts'
import { simulatedMeasurement } from '../../src/host/simulated-host.ts'
import { gatewayConfiguration } from '../../src/inference/attestation/configuration.ts'
import { allowlistOf } from '../../src/inference/attestation/workloads.ts'
import { loadUpstream } from '../../src/inference/upstream/load-target.ts'
import { workerCommand } from '../../src/inference/worker/command.plan.ts'
import { readWorkerImage } from '../../src/inference/worker/root.ts'
import { loadGatewayVmImage } from '../../src/vm/launch/image.driver.ts'

export type Expected = {
  /** argv of the daemon; the first is the executable. */
  readonly daemon: readonly [executable: string, ...string[]]
  readonly configFile: string
  /** The files are written into it. */
  readonly directory: string
}

/** The options of `strongroom verify gateway` that pin all of it. */
export async function pinGateway({ daemon, configFile, directory }: Expected): Promise<string[]> {
  const { config } = loadConfig({ path: configFile, env: {} })
  const { worker, upstreams } = config.inference
  const executable = await sha256(daemon[0])
  const rootHash = fromHex(readWorkerImage(worker.image_dir).rootHash) ?? new Uint8Array(0)
  const command = workerCommand(worker, await sha256(worker.model_file))
  const candidates = ATTESTED_WORKLOADS.map(workload =>
    workload === 'inference-worker'
      ? { workload, imageDigest: rootHash, command }
      : { workload, imageDigest: executable, command: daemon },
  )
  const policy = { ...policyWithFloors(), measurements: [simulatedMeasurement(executable)] }
  const configuration = gatewayConfiguration(config, upstreams.map(loadUpstream))
  const file = (name: string, text: string | Uint8Array) => {
    const path = join(directory, name)
    writeFileSync(path, text)
    return path
  }
  return [
    ...['--policy', file('policy.json', JSON.stringify(encodePolicy(policy)))],
    ...['--configuration', file('configuration.json', configuration.bytes)],
    ...['--allowlist', file('allowlist.json', encodeAllowlist(allowlistOf(candidates)))],
  ]
}

export type ExpectedVm = Pick<Expected, 'configFile' | 'directory'> & {
  /** SHA-384 of the ID key, hexadecimal, as `strongroom operator-key` prints it. */
  readonly operatorKey: string
}

/** As `pinGateway`, for a gateway in a VM: measured image, operator key, upstreams outside. */
export async function pinGatewayVm({ configFile, directory, operatorKey }: ExpectedVm): Promise<string[]> {
  const { config } = loadConfig({ path: configFile, env: {} })
  const { vcpus, worker, upstreams } = config.inference
  const { launchDigests } = loadGatewayVmImage(worker.image_dir).manifest
  const measurements = Object.entries(launchDigests).flatMap(([shape, digest]) =>
    shape.startsWith('qemu-kvm/') && shape.endsWith(`/${config.vm.vcpu_type}/${vcpus}`) ? [decodeHex(digest)] : [],
  )
  const policy = { ...policyWithFloors(), measurements, idKeyDigest: decodeHex(operatorKey) }
  const path = join(directory, 'gateway-vm-policy.json')
  writeFileSync(path, JSON.stringify(encodePolicy(policy)))
  return ['--policy', path, ...upstreams.flatMap(({ name, url }) => ['--allow-outside', outsideEntry(name, url)])]
}

function decodeHex(hex: string): Uint8Array {
  const bytes = fromHex(hex)
  if (bytes === null) throw new Error(`not hexadecimal: ${hex}`)
  return bytes
}

async function sha256(path: string): Promise<Uint8Array> {
  const hasher = new Bun.CryptoHasher('sha256')
  for await (const chunk of Bun.file(path).stream()) hasher.update(chunk)
  return new Uint8Array(hasher.digest())
}
