// Types and directories that all phases of a build share.

import type { BuildOrder } from '../contract/vm/build-order.ts'
import { sourceDateEpoch } from '../linux/source/tree.plan.ts'
import type { Site } from './confined/program.ts'
import type { Bind } from './confined/root.plan.ts'
import type { Job } from './job.ts'

/** The programs of a build, as the build sees them. */
export type Tools = {
  /** PATH. */
  readonly path: string
  /** Their directories, read-only. */
  readonly binds: readonly Bind[]
  /** Path of a program's file on this machine. */
  readonly fileOf: (name: string) => string
}

/** Users of fetch and build; no other process of this VM has them. */
export const uids = { fetch: 61_001, build: 61_002 } as const

export type Phase = {
  readonly site: Site
  readonly job: Job
  readonly order: BuildOrder
  readonly tools: Tools
  /** Below the site's scratch: ours, and searchable for the users of programs. */
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
  ca: '/build/ca.pem',
  tmp: '/tmp',
} as const

/** The same for every program. */
export const plainEnvironment = {
  HOME: places.home,
  USER: 'build',
  TMPDIR: places.tmp,
  LC_ALL: 'C.UTF-8',
  TZ: 'UTC',
  SOURCE_DATE_EPOCH: String(sourceDateEpoch),
} as const
