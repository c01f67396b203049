// Messages between the daemon and the starter: one line of JSON with the request and its descriptors, then lines of
// JSON with the results. Pure.
//
// Both are the same program, and have the same version except during an upgrade: a starter refuses what it does not
// understand, and the daemon tries again after its restart.

import { type Static, Type } from '@sinclair/typebox'
import { OneOf } from '../../contract/check.ts'
import { workerGpusMax } from '../../contract/vm/workload.ts'

const Words = Type.Array(Type.String({ maxLength: 65_536 }), { maxItems: 1_024 })
const Id = Type.Integer({ minimum: 1, maximum: 0xffff_fffe })

const QemuRole = Type.Object({
  kind: Type.Literal('qemu'),
  confinement: Type.Object({
    uid: Id,
    groups: Type.Array(Id, { maxItems: 8 }),
    platform: OneOf(['tcg', 'kvm', 'snp']),
    vcpus: Type.Integer({ minimum: 1 }),
    memoryMib: Type.Integer({ minimum: 1 }),
    diskGib: Type.Integer({ minimum: 0 }),
    devices: Type.Integer({ minimum: 0, maximum: workerGpusMax }),
  }),
})
const TpmRole = Type.Object({ kind: Type.Literal('tpm'), uid: Id })

const Mount = Type.Union([
  Type.Object({
    kind: Type.Literal('bind'),
    source: Type.String(),
    target: Type.String(),
    writable: Type.Boolean(),
  }),
  Type.Object({ kind: Type.Literal('tmpfs'), target: Type.String(), sizeBytes: Type.Integer({ minimum: 0 }) }),
  Type.Object({ kind: Type.Literal('read-only'), target: Type.String() }),
])

const SandboxedRequest = Type.Object({
  kind: Type.Literal('sandboxed'),
  sandbox: Type.Object({
    root: Type.String(),
    mounts: Type.Array(Mount, { maxItems: 64 }),
    user: Type.Object({ uid: Id, gid: Id }),
    env: Type.Record(Type.String(), Type.String()),
    limits: Type.Object({
      memoryMiBMax: Type.Union([Type.Integer({ minimum: 1 }), Type.Literal('any')]),
      tasksMax: Type.Integer({ minimum: 1 }),
    }),
  }),
  command: Words,
  lineBytesMax: Type.Integer({ minimum: 1 }),
})
export type SandboxedRequest = Static<typeof SandboxedRequest>

export const StarterRequest = Type.Union([
  Type.Object({
    kind: Type.Literal('jailed'),
    start: Type.Object({
      uuid: Type.String({ pattern: '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' }),
      role: Type.Union([QemuRole, TpmRole]),
      files: Words,
      argv: Words,
      logFile: Type.String(),
    }),
  }),
  SandboxedRequest,
  // With one descriptor, its stdin and stdout.
  Type.Object({ kind: Type.Literal('schema-check') }),
])

/** `started` comes first, or `failed`; the others follow where the starter stays as the parent. */
export const StarterEvent = Type.Union([
  Type.Object({ kind: Type.Literal('started'), pid: Type.Integer(), startTicks: Type.Integer() }),
  Type.Object({ kind: Type.Literal('failed'), message: Type.String() }),
  Type.Object({ kind: Type.Literal('line'), text: Type.String() }),
  Type.Object({ kind: Type.Literal('exited'), exitCode: Type.Integer() }),
])
export type StarterEvent = Static<typeof StarterEvent>

/** More than any request: a command line of QEMU, and a hundred paths. */
export const requestBytesMax = 1_048_576
