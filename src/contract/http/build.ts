// Service C on the wire: build requests and build events. Pure. Field and event names are those that public client
// scripts of attested-build services send and read.

import { OneOf } from '../check.ts'
import { Closed } from '../forms.ts'
import { type Static, Type } from '../type.ts'
import { Toolchain, ToolchainFields } from './build-options.ts'

/** Why a build failed; stable names. */
export const BUILD_ERROR_TYPES = [
  'source_invalid',
  'source_unreachable',
  'lock_missing',
  'toolchain_undetected',
  'checksum_mismatch',
  'build_failed',
  'no_artifacts',
  'limit_exceeded',
  'cancelled',
  'internal',
] as const
export const BuildErrorType = OneOf(BUILD_ERROR_TYPES)
export type BuildErrorType = Static<typeof BuildErrorType>

/** Findings in a source that fail a build unless its request has the field of this name. */
export const WAIVERS = ['allow_lfs_pointers', 'any_toolchain'] as const
export const Waiver = OneOf(WAIVERS)
export type Waiver = Static<typeof Waiver>

/** 1 to 16 bytes. The receipts bind its length, too. */
export const BuildNonce = Type.String({
  pattern: '^([0-9a-fA-F]{2}){1,16}$',
  description: 'Hexadecimal, 1 to 16 bytes, new for each build.',
})

/** Body of `POST /build`: exactly one of `repo_url` and `source_data`. */
export const BuildRequest = Closed({
  nonce: BuildNonce,
  repo_url: Type.Optional(Type.String({ minLength: 1, maxLength: 2048, description: 'A git repository, https only.' })),
  repo_ref: Type.Optional(
    Type.String({ minLength: 1, maxLength: 256, description: 'Branch, tag or commit of repo_url.' }),
  ),
  source_data: Type.Optional(
    Type.String({ minLength: 1, description: 'tar.gz, tar.xz, tar.zst, tar or zip in standard base64.' }),
  ),
  source_name: Type.Optional(Type.String({ minLength: 1, maxLength: 128, description: 'File name of source_data.' })),
  project_dir: Type.Optional(
    Type.String({ minLength: 1, maxLength: 1024, description: 'Directory in the source; its root unless given.' }),
  ),
  toolchain: Type.Optional(Toolchain),
  ...ToolchainFields,
  reproduce: Type.Optional(Type.Boolean({ description: 'Build twice and compare each artifact.' })),
  allow_lfs_pointers: Type.Optional(
    Type.Boolean({
      description: 'Build a source with Git LFS pointers, whose content is not in it; such a build fails without it.',
    }),
  ),
  any_toolchain: Type.Optional(
    Type.Boolean({
      description:
        'Build with another compiler than the one that rust-toolchain.toml or go.mod pins; such a build fails without it.',
    }),
  ),
  fetch_ca_sha256: Type.Optional(
    Type.String({
      pattern: '^[0-9a-f]{64}$',
      description:
        "SHA-256 of the service's own certificate authorities (PEM file) that fetches may trust beside the public ones; none without it.",
    }),
  ),
  crates_mirror: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 512,
      description: "The service's own mirror that may replace the crates registry; none by default.",
    }),
  ),
})
export type BuildRequest = Static<typeof BuildRequest>

/** `project_dir` in canonical form: without `.` and trailing slash. Null for the source's root. */
export function plainDirectory(directory: string): string | null {
  const parts = directory.replace(/\/$/, '').split('/')
  const plain = parts.filter(part => part !== '.').join('/')
  return plain === '' ? null : plain
}

/** Steps of a build, in order. */
export const BUILD_STEPS = ['vm', 'init', 'detect', 'fetch', 'build', 'provenance', 'attest', 'host'] as const
export const BuildStep = OneOf(BUILD_STEPS)
export type BuildStep = Static<typeof BuildStep>

/** Steps whose lines come from the service; the VM writes those of the others. */
export function isOfService(step: BuildStep): boolean {
  return step === 'vm' || step === 'host'
}

/** The `data` of one server-sent event. `complete` is the last event of a build. */
export const BuildEvent = Type.Union([
  Closed({ type: Type.Literal('queued'), position: Type.Integer({ minimum: 0 }) }),
  Closed({ type: BuildStep, msg: Type.String({ maxLength: 4096 }) }),
  Closed({
    type: Type.Literal('complete'),
    result: Type.Union([
      Closed({ status: Type.Literal('ok') }),
      Closed({ status: Type.Literal('failed'), error: Type.String({ maxLength: 8192 }), error_type: BuildErrorType }),
    ]),
  }),
])
export type BuildEvent = Static<typeof BuildEvent>

export const BUILD_STATES = ['queued', 'starting', 'running', 'ok', 'failed', 'cancelled'] as const
export type BuildState = (typeof BUILD_STATES)[number]
