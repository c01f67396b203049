// Options for the most common fields of a policy: they replace a --policy, or extend one. Pure.

import { InvalidArgumentError } from 'commander'
import type { Policy } from '../../attest/policy/policy.ts'
import { FIELDS, type FieldName } from '../../attest/report/report.ts'
import type { Command } from '../../terminal/command.ts'
import { InputFault } from '../../terminal/exit.ts'
import { countOption, hexOption } from '../../terminal/options.ts'

export type PolicyFlags = {
  measurement?: readonly Uint8Array[]
  hostData?: Uint8Array
  idKeyDigest?: readonly Uint8Array[]
  authorKeyDigest?: readonly Uint8Array[]
  chipId?: readonly Uint8Array[]
  vmpl?: number
  minimumGuestSvn?: number
}

const manyMax = 64

export function addPolicyFlags(command: Command): Command {
  return command
    .option('--measurement <hex>', 'expected launch digest; repeatable', many('measurement'))
    .option('--host-data <hex>', 'expected HOST_DATA', hexOption(FIELDS.hostData[1]))
    .option('--id-key-digest <hex>', "expected digest of the operator's ID key; repeatable", many('idKeyDigest'))
    .option('--author-key-digest <hex>', 'expected digest of the author key; repeatable', many('authorKeyDigest'))
    .option('--chip-id <hex>', 'expected chip; repeatable', many('chipId'))
    .option('--vmpl <number>', 'expected VMPL; default 0', countOption(0, 3))
    .option('--minimum-guest-svn <number>', 'least SVN of the guest that passes', countOption(0, 0xffff_ffff))
}

function many(field: FieldName) {
  const read = hexOption(FIELDS[field][1])
  return (text: string, before: readonly Uint8Array[] = []): Uint8Array[] => {
    if (before.length < manyMax) return [...before, read(text)]
    throw new InvalidArgumentError(`It may be repeated ${manyMax} times.`)
  }
}

/**
 * Adds the options' fields to the policy. Throws Fault invalid_request for a field that a --policy already restricts.
 */
export function withPolicyFlags(policy: Policy, flags: PolicyFlags, file: string | undefined): Policy {
  const fields = fieldsOf(flags)
  for (const [field, option] of Object.entries(OPTION_OF)) {
    const name = field as keyof Policy
    if (file === undefined || !(name in fields) || policy[name] === 'any') continue
    throw new InputFault(`--${option}: ${file} names ${field}, too`, {
      param: option,
      remedy: `name every ${field} in the file, or leave it out there ("any")`,
    })
  }
  return { ...policy, ...fields }
}

/** Option of each field of the policy. */
const OPTION_OF = {
  measurements: 'measurement',
  hostData: 'host-data',
  idKeyDigest: 'id-key-digest',
  authorKeyDigest: 'author-key-digest',
  chipIds: 'chip-id',
  vmpls: 'vmpl',
  minimumGuestSvn: 'minimum-guest-svn',
} as const satisfies Partial<Record<keyof Policy, string>>

/** Returns the option or file that names the expected measurements; empty if neither does. */
export function measurementSources(policy: Policy, flags: PolicyFlags, file: string | undefined): string[] {
  if (policy.measurements === 'any') return []
  return flags.measurement !== undefined ? ['--measurement'] : [file ?? 'the policy']
}

function fieldsOf(flags: PolicyFlags): Partial<Policy> {
  const { measurement, hostData, idKeyDigest, authorKeyDigest, chipId, vmpl, minimumGuestSvn } = flags
  return {
    ...(measurement === undefined ? {} : { measurements: measurement }),
    ...(hostData === undefined ? {} : { hostData }),
    ...(idKeyDigest === undefined ? {} : { idKeyDigest }),
    ...(authorKeyDigest === undefined ? {} : { authorKeyDigest }),
    ...(chipId === undefined ? {} : { chipIds: chipId }),
    ...(vmpl === undefined ? {} : { vmpls: [vmpl] }),
    ...(minimumGuestSvn === undefined ? {} : { minimumGuestSvn }),
  }
}
