// A relying party's policy for GPUs: its fields, their JSON Schema and their checks. Pure; throws Malformed.

import { utf8 } from '../../base/bytes.ts'
import type { GPU_POLICY_CHECKS } from '../check-names.ts'
import { parsedJson } from '../encoding/json.ts'
import { integer, type Kind, listOf, object, oneOf, orAny, text, type Valued } from '../policy/kinds.ts'
import { type Check, check, notChecked } from '../verdict.ts'
import { GPU_MODES } from './opaque.ts'

export const ARCHITECTURES = ['HOPPER', 'BLACKWELL'] as const
export type Architecture = (typeof ARCHITECTURES)[number]

export const format = 'strongroom/gpu-policy/v1'
const driverVersion = text('[0-9]{3}([.][0-9]{1,4}){1,3}', 'a driver version like 580.159.03')
const vbiosVersion = text('[0-9A-F]{2}([.][0-9A-F]{2}){4}', 'a VBIOS version like 96.00.9F.00.01')
const ueid = text('[1-9][0-9]{0,63}', "a GPU's ueid, which is a decimal number, and not NVML's UUID")
const deviceSerial = text(
  '([0-9A-F]{2}){1,20}',
  "the serial number of a GPU's device certificate, like 41E23D711E1C4FBFAC",
)

export const gpuPolicyFields = {
  format: { ...oneOf([format]), schema: { const: format }, remedy: `write "${format}"` },
  architectures: orAny(listOf(oneOf(ARCHITECTURES))),
  driverVersions: orAny(listOf(driverVersion)),
  vbiosVersions: orAny(listOf(vbiosVersion)),
  modes: orAny(listOf(oneOf(GPU_MODES))),
  /** Serial numbers of attestation keys' certificates, as in NVIDIA's tokens. A firmware update changes the ueid. */
  ueids: orAny(listOf(ueid)),
  /** Serial numbers of device certificates, which stay the same for a GPU. */
  deviceSerials: orAny(listOf(deviceSerial)),
  /** Maximum age of an OCSP response, in seconds. */
  ocspMaximumAgeSeconds: orAny(integer(366 * 86_400, 1)),
  /** 'refuse': requires proof that DevTools mode is off. A report cannot prove it, so no report passes on its own. */
  devtools: oneOf(['refuse', 'any']),
}
const policyKind = object(gpuPolicyFields)

export type GpuPolicy = Valued<typeof policyKind>

/** Parses the policy of a VM. */
export const parseGpuPolicy = (json: unknown): GpuPolicy => parsePolicy(policyKind, json)

/** Parses a policy given as text, in which a duplicate name is an error, or as the result of a strict reader. */
export function parsePolicy<T>(kind: Kind<T>, json: unknown): T {
  const bytes = typeof json === 'string' ? utf8(json) : json
  return kind.parse(bytes instanceof Uint8Array ? parsedJson('GPU policy', bytes) : json, 'gpu policy')
}

/** Properties of a GPU according to its evidence. */
export type GpuFacts = {
  readonly architecture: Architecture
  readonly driverVersion: string
  readonly vbiosVersion: string
  readonly mode: (typeof GPU_MODES)[number]
  readonly ueid: string
  readonly deviceSerial: string
}

const CHECKS = {
  'gpu-policy-architecture': ['architectures', 'architecture'],
  'gpu-policy-driver-version': ['driverVersions', 'driverVersion'],
  'gpu-policy-vbios-version': ['vbiosVersions', 'vbiosVersion'],
  'gpu-policy-mode': ['modes', 'mode'],
  'gpu-policy-ueid': ['ueids', 'ueid'],
  'gpu-policy-device-serial': ['deviceSerials', 'deviceSerial'],
} as const satisfies Readonly<Record<(typeof GPU_POLICY_CHECKS)[number], readonly [keyof GpuPolicy, keyof GpuFacts]>>

export function appraiseGpu(policy: GpuPolicy, facts: GpuFacts): readonly Check[] {
  return Object.entries(CHECKS).map(([name, [field, fact]]) => {
    const allowed: readonly string[] | 'any' = policy[field]
    const value = facts[fact]
    if (allowed === 'any') return notChecked(name, `${value}; the policy has 'any'`, false)
    return check(name, allowed.includes(value), `${value} is not in the policy`, value)
  })
}
