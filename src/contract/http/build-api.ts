// Responses of service C: accepted builds, their records, reserved VMs, errors (contract 2.5, 4.3, 7.3). Pure.

import { WIRE_CODES, type WireCode } from '../../base/fault.ts'
import { OneOf } from '../check.ts'
import { Closed, OrNull, Sha256 } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { BUILD_STATES, BuildErrorType } from './build.ts'
import { Toolchain, ToolchainFields } from './build-options.ts'

const Uuid = Type.String({ pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' })
const Time = Type.String({ description: 'ISO 8601, UTC.' })
const Bytes = Type.Integer({ minimum: 0 })

export const BuildAccepted = Closed({
  job_id: Uuid,
  build_url: Type.String({ description: 'The record of the build; `/events` and `/result` are below it.' }),
})
export type BuildAccepted = Static<typeof BuildAccepted>

export const BuildVmReserved = Closed({
  vm_id: Uuid,
  vm_url: Type.String({ description: 'Base address of this VM: /health, /build and what is below it.' }),
  expires_at: Time,
})
export type BuildVmReserved = Static<typeof BuildVmReserved>

/** Exactly one of the two. */
const Source = Type.Union([
  Closed({
    kind: Type.Literal('archive'),
    name: OrNull(Type.String()),
    size_bytes: Bytes,
    sha256: Sha256,
  }),
  Closed({ kind: Type.Literal('git'), url: Type.String(), ref: OrNull(Type.String()) }),
])

export const BuildRecord = Closed({
  job_id: Uuid,
  state: OneOf(BUILD_STATES),
  nonce: Type.String(),
  source: Source,
  project_dir: OrNull(Type.String()),
  toolchain: OrNull(Toolchain),
  /** Fields of the request that belong to one toolchain; none without any. */
  options: Closed(ToolchainFields),
  reproduce: Type.Boolean(),
  /** Null while the build waits for a VM. */
  vm_id: OrNull(Uuid),
  /** From the verified evidence of the build's VM; null before there is any. */
  attested: OrNull(
    Closed({
      measurement: Type.String({ pattern: '^[0-9a-f]{96}$', description: 'Launch digest of the VM, SHA-384.' }),
      source_tree: Type.String({ pattern: '^[0-9a-f]{64}$', description: "Git's SHA-256 tree id of the source." }),
      simulated: Type.Boolean({ description: 'True: no hardware attests it.' }),
    }),
  ),
  result: OrNull(
    Closed({
      size_bytes: Bytes,
      sha256: Sha256,
      provenance_sha256: Sha256,
      /** Null after the result was removed to make room. */
      url: OrNull(Type.String()),
    }),
  ),
  /** How to fetch and verify the result. */
  commands: Type.Array(Type.String()),
  error_type: OrNull(BuildErrorType),
  error: OrNull(Type.String()),
  created_at: Time,
  started_at: OrNull(Time),
  finished_at: OrNull(Time),
})
export type BuildRecord = Static<typeof BuildRecord>

/** Every error of service C. There is no envelope; X-Request-ID has the id of the request. */
export const BuildProblem = Closed({
  error: Closed({
    code: Type.Unsafe<WireCode>(Type.Union(Object.keys(WIRE_CODES).map(code => Type.Literal(code)))),
    message: Type.String({ description: 'For people. Its wording may change.' }),
    param: Type.Optional(Type.String({ description: 'The one request field at fault.' })),
  }),
})
export type BuildProblem = Static<typeof BuildProblem>
