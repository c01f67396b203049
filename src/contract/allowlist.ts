// What may run: for each workload the approved image digests and effective commands. Pure.
// The file's SHA-256 is in every workload statement and in HOST_DATA. Gateway and relying party decide by the same rule, `admits`.

import { type Static, Type } from '@sinclair/typebox'
import { toHex } from '../base/bytes.ts'
import { Fault } from '../base/fault.ts'
import { ATTESTED_WORKLOADS, type AttestedWorkload } from './attestation.ts'

const closed = { additionalProperties: false } as const

const Sha256Hex = Type.String({ pattern: '^[0-9a-f]{64}$' })
/** A whole argv, compared argument by argument. The limits are those of a statement. */
const Argv = Type.Array(Type.String({ maxLength: 4096 }), { minItems: 1, maxItems: 256 })

export const AllowedWorkload = Type.Object(
  {
    workload: Type.Union(ATTESTED_WORKLOADS.map(name => Type.Literal(name))),
    imageDigests: Type.Array(Sha256Hex, {
      minItems: 1,
      maxItems: 64,
      description:
        'SHA-256: of the executable for what runs within the appliance, the dm-verity root hash for the worker.',
    }),
    commands: Type.Array(Argv, { minItems: 1, maxItems: 64, description: 'Effective commands.' }),
  },
  closed,
)
export type AllowedWorkload = Static<typeof AllowedWorkload>

/** A workload that is not in the list is not admitted. */
export const Allowlist = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    workloads: Type.Array(AllowedWorkload, { maxItems: ATTESTED_WORKLOADS.length }),
  },
  closed,
)
export type Allowlist = Static<typeof Allowlist>

/** A workload as it is about to run, or runs. */
export type WorkloadCandidate = {
  readonly workload: AttestedWorkload
  /** SHA-256. */
  readonly imageDigest: Uint8Array
  /** The effective argv. */
  readonly command: readonly string[]
}

export type Admission = { readonly ok: true } | { readonly ok: false; readonly fault: Fault }

/** Refused (image.invalid) unless the allowlist has exactly one entry for the workload, with this image digest and this command. */
export function admits(allowlist: Allowlist, { workload, imageDigest, command }: WorkloadCandidate): Admission {
  const [allowed, ...more] = allowlist.workloads.filter(row => row.workload === workload)
  if (allowed === undefined || more.length > 0) {
    return refused(`${workload}: the allowlist has ${allowed === undefined ? 'no' : more.length + 1} entries for it`)
  }
  const digest = toHex(imageDigest)
  if (!allowed.imageDigests.includes(digest)) return refused(`${workload}: image ${digest} is not on the allowlist`)
  if (!allowed.commands.some(argv => isSameArgv(argv, command))) {
    return refused(`${workload}: this command is not on the allowlist: ${JSON.stringify(command)}`)
  }
  return { ok: true }
}

function refused(message: string): Admission {
  return { ok: false, fault: new Fault('image.invalid', message) }
}

function isSameArgv(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((argument, at) => argument === b[at])
}

/** The text of the file: its digest is that of these bytes, as sha256sum(1) prints it. */
export function encodeAllowlist(allowlist: Allowlist): string {
  const workloads = allowlist.workloads.map(({ workload, imageDigests, commands }) => ({
    workload,
    imageDigests,
    commands,
  }))
  return `${JSON.stringify({ schemaVersion: allowlist.schemaVersion, workloads }, null, 2)}\n`
}
