// The allowlist: approved images for each workload, and the effective commands of each image. Pure. The file's SHA-256
// is in every workload statement and in HOST_DATA. Gateway and relying party decide by the same rule, `admits`.

import { toHex } from '../../base/bytes.ts'
import { Fault, messageOf } from '../../base/fault.ts'
import { parseJson } from '../../base/json.ts'
import { type CheckResult, checkValue } from '../check.ts'
import { Closed } from '../forms.ts'
import { ATTESTED_WORKLOADS, type AttestedWorkload } from '../http/attestation.ts'
import { type Static, Type } from '../type.ts'

const Sha256Hex = Type.String({ pattern: '^[0-9a-f]{64}$' })
/** A whole argv, compared argument by argument. The limits are those of a statement. */
const Argv = Type.Array(Type.String({ maxLength: 4096 }), { minItems: 1, maxItems: 256 })

const AllowedImage = Closed({
  digest: Sha256Hex,
  commands: Type.Array(Argv, { minItems: 1, maxItems: 64, description: 'Effective commands of this image alone.' }),
})

export const AllowedWorkload = Closed({
  workload: Type.Union(ATTESTED_WORKLOADS.map(name => Type.Literal(name))),
  images: Type.Array(AllowedImage, {
    minItems: 1,
    maxItems: 64,
    description:
      'SHA-256: of the executable for what runs within the appliance, the dm-verity root hash for the worker.',
  }),
})
export type AllowedWorkload = Static<typeof AllowedWorkload>

/** A workload that is not in the list is not admitted. */
export const Allowlist = Closed({
  schemaVersion: Type.Literal(2),
  workloads: Type.Array(AllowedWorkload, { maxItems: ATTESTED_WORKLOADS.length }),
})
export type Allowlist = Static<typeof Allowlist>

/** Arrays and objects within each other, in the deepest allowlist that the schema accepts, and one to spare. */
const depthMax = 8

/** Takes the exact bytes of a file, parsed strictly (base/json.ts). */
export function parseAllowlist(bytes: Uint8Array): CheckResult<Allowlist> {
  let value: unknown
  try {
    value = parseJson(bytes, { depthMax })
  } catch (error) {
    return { ok: false, problem: messageOf(error) }
  }
  const isOld = typeof value === 'object' && value !== null && 'schemaVersion' in value && value.schemaVersion === 1
  return isOld ? { ok: false, problem: oldVersion } : checkValue(Allowlist, value)
}

/** Version 1 is not read as pairs: its approvers, who are bound to its digest, approved every combination. */
const oldVersion =
  '/schemaVersion: 1 let every image run with every command; write 2, and for each workload instead of imageDigests and commands: ' +
  '"images": [{ "digest": "…", "commands": [["…"]] }], each image with its own commands'

/** A workload as it is about to run, or runs. */
export type WorkloadCandidate = {
  readonly workload: AttestedWorkload
  /** SHA-256. */
  readonly imageDigest: Uint8Array
  /** The effective argv. */
  readonly command: readonly string[]
}

export type Admission = { readonly ok: true } | { readonly ok: false; readonly fault: Fault }

/** Refused (image.invalid) unless the workload has exactly one entry, with this image digest and this command. */
export function admits(allowlist: Allowlist, { workload, imageDigest, command }: WorkloadCandidate): Admission {
  const [allowed, ...more] = allowlist.workloads.filter(row => row.workload === workload)
  if (allowed === undefined || more.length > 0) {
    return refused(`${workload}: the allowlist has ${allowed === undefined ? 'no' : more.length + 1} entries for it`)
  }
  const digest = toHex(imageDigest)
  const images = allowed.images.filter(image => image.digest === digest)
  if (images.length === 0) return refused(`${workload}: image ${digest} is not on the allowlist`)
  if (!images.some(image => image.commands.some(argv => isSameArgv(argv, command)))) {
    const found = JSON.stringify(command)
    return refused(`${workload}: this command is not on the allowlist for image ${digest}: ${found}`)
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
  const workloads = allowlist.workloads.map(({ workload, images }) => ({
    workload,
    images: images.map(({ digest, commands }) => ({ digest, commands })),
  }))
  return `${JSON.stringify({ schemaVersion: allowlist.schemaVersion, workloads }, null, 2)}\n`
}
