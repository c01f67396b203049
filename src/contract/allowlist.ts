// What may run: per workload the approved image digests and effective commands. Pure. Its SHA-256 is in every workload statement and in HOST_DATA.

import { type Static, Type } from '@sinclair/typebox'
import { ATTESTED_WORKLOADS } from './attestation.ts'

const closed = { additionalProperties: false } as const

const Sha256Hex = Type.String({ pattern: '^[0-9a-f]{64}$' })
/** A whole argv: admitted is what equals one of them, argument by argument. Bounds are those of a statement. */
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

/** A workload that is not in it is not admitted. */
export const Allowlist = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    workloads: Type.Array(AllowedWorkload, { maxItems: ATTESTED_WORKLOADS.length }),
  },
  closed,
)
export type Allowlist = Static<typeof Allowlist>

/** As a file: its digest is that of these bytes, as sha256sum(1) gives it. */
export function encodeAllowlist(allowlist: Allowlist): string {
  const workloads = allowlist.workloads.map(({ workload, imageDigests, commands }) => ({
    workload,
    imageDigests,
    commands,
  }))
  return `${JSON.stringify({ schemaVersion: allowlist.schemaVersion, workloads }, null, 2)}\n`
}
