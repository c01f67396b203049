// A policy for the GPUs and switches of a whole machine: how many of each, and which switches. Apart from the policy of
// a VM, whose own evidence has no switches. Pure; throws Malformed.

import { wellFormed } from '../../malformed.ts'
import { integer, listOf, object, orAny, text, type Valued } from '../../policy/kinds.ts'
import { format, type GpuPolicy, gpuPolicyFields, parsePolicy } from '../policy.ts'

const devicesMax = 32

const biosVersion = text('[0-9A-F]{2}([.][0-9A-F]{2}){4}', 'the BIOS version of a switch like 96.10.55.00.01')
const switchSerial = text(
  '([0-9A-F]{2}){1,20}',
  "the serial number of a switch's device certificate, like 50203EB31AD9ED0008",
)

const topologyFields = object({
  /** Every GPU of the machine, and every switch; 0 for GPUs whose links lead to none. */
  gpus: integer(devicesMax, 1),
  switches: integer(devicesMax),
  switchBiosVersions: orAny(listOf(biosVersion)),
  switchSerials: orAny(listOf(switchSerial)),
})

/** Refuses lists that no number of switches could satisfy. */
const topology: typeof topologyFields = {
  ...topologyFields,
  parse: (value, path) => {
    const read = topologyFields.parse(value, path)
    const { switches, switchSerials: serials } = read
    const isFew = serials !== 'any' && serials.length < switches
    wellFormed(!isFew, `${path}.switchSerials: ${serials.length} for ${switches} switches; write all, or "any"`)
    for (const name of ['switchBiosVersions', 'switchSerials'] as const)
      wellFormed(switches > 0 || read[name] === 'any', `${path}.${name}: a list for 0 switches; write "any"`)
    return read
  },
}

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
