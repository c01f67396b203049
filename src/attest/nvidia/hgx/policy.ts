// A policy for the GPUs and switches of a whole machine: how many of each, and which switches. Apart from the policy of
// a VM, whose own evidence has no switches. Pure; throws Malformed.

import { integer, listOf, object, orAny, type Valued } from '../../policy/kinds.ts'
import { deviceSerial, format, type GpuPolicy, gpuPolicyFields, parsePolicy, vbiosVersion } from '../policy.ts'

const devicesMax = 32

const topology = object({
  /** Every GPU of the machine, and every switch; a machine without switches has 0. */
  gpus: integer(devicesMax, 1),
  switches: integer(devicesMax),
  switchBiosVersions: orAny(listOf(vbiosVersion)),
  switchSerials: orAny(listOf(deviceSerial)),
})

export type Topology = Valued<typeof topology>
export type HgxPolicy = GpuPolicy & { readonly topology?: Topology | 'any' }

const hgxPolicyKind = object({ ...gpuPolicyFields, topology: { ...orAny(topology), whenMissing: 'any' } })

export const gpuPolicySchema: { readonly [keyword: string]: unknown } = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  title: 'Policy for attestation reports of NVIDIA GPUs and switches',
  ...hgxPolicyKind.schema,
}

export function parseHgxPolicy(json: unknown): HgxPolicy {
  return parsePolicy(hgxPolicyKind, json)
}

/**
 * Returns the policy for a relying party that has none: GPUs must be genuine and the evidence fresh, regardless of
 * model and version.
 */
export function defaultGpuPolicy(): HgxPolicy {
  const any = ['architectures', 'driverVersions', 'vbiosVersions', 'modes', 'ueids', 'deviceSerials']
  const open = Object.fromEntries(any.map(name => [name, 'any']))
  return parseHgxPolicy({ format, ...open, ocspMaximumAgeSeconds: 86_400, devtools: 'refuse' })
}
