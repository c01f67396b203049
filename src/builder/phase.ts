// Types and directories shared by all phases of a build.

import type { BuildOrder } from '../contract/vm/build-order.ts'
import { sourceDateEpoch } from '../linux/source/tree.plan.ts'
import type { Bounds, Site } from './confined/program.ts'
import type { Bind } from './confined/root.plan.ts'
import type { Job } from './job.ts'

/** The programs of a build, in the build's view. */
export type Tools = {
  /** PATH. */
  readonly path: string
  /** Directories of the programs, read-only. */
  readonly binds: readonly Bind[]
  /** Path of a program's file on this machine. */
  readonly fileOf: (name: string) => string
  /** Go's compiled standard library, on this machine and in the build. Null if the tools have none. */
  readonly goLibrary: Pick<Bind, 'from' | 'to'> | null
  /** Directory of the image's record of these programs (recorded-tools.ts). Null to run each for its version. */
  readonly records: string | null
}

/** User ids for fetch, build and `--version`, which no other process of this VM has. */
export const uids = { fetch: 61_001, build: 61_002, version: 61_003 } as const

export type Phase = {
  readonly site: Site
  readonly job: Job
  readonly order: BuildOrder
  readonly tools: Tools
  /** Directory below the site's scratch. Owned by the builder, and searchable for the users of programs. */
  readonly workDir: string
  /** The system's CA certificates, for git and cargo. */
  readonly caBundle: string
}

/** Path of the source in every build, on every machine. */
export const places = {
  source: '/build/source',
  target: '/build/target',
  home: '/build/home',
  cargo: '/build/cargo',
  /** A fetched archive while it is unpacked. */
  archive: '/build/archive',
  /** Programs that a build runs without being able to read them. */
  programs: '/build/programs',
  /** The Rust toolchain that the source pins, if it was fetched. */
  rust: '/build/rust',
  ca: '/build/ca.pem',
  resolveConfig: '/build/resolve.toml',
  tmp: '/tmp',
} as const

/** Constant for every program. */
export const plainEnvironment = {
  HOME: places.home,
  USER: 'build',
  TMPDIR: places.tmp,
  LC_ALL: 'C.UTF-8',
  TZ: 'UTC',
  SOURCE_DATE_EPOCH: String(sourceDateEpoch),
} as const

/** Returns the limits of one program, with this timeout. */
export function boundsOf({ order: { limits } }: Phase, seconds: number): Bounds {
  return {
    timeoutMs: seconds * 1000,
    memoryBytes: limits.memoryBytes,
    pids: limits.pids,
    diskBytes: limits.diskBytes,
    outputBytes: limits.logBytes,
  }
}
