// The interface of a toolchain: how the builder finds, fetches, builds and describes its projects. Types.

import type { BuildRecord } from '../attest/provenance/record.ts'
import type { Toolchain as ToolchainName, ToolchainOptions } from '../contract/http/build-options.ts'
import type { Candidate } from './collect.ts'
import type { Phase } from './phase.ts'
import type { Source } from './source/extract-source.ts'

export type Project = {
  /** Relative to the source; '' is its root. */
  readonly dir: string
  readonly toolchain: ToolchainName
  /** A plain name, for the archive's top-level directory. */
  readonly name: string
  readonly version: string | null
  /** Why this toolchain and not the other one; null if the source or the request leaves no choice. */
  readonly judgement: string | null
}

export type LockFile = {
  /** Relative to the source. */
  readonly path: string
  readonly text: string
  readonly sha256: string
}

/** The project's part of a request. */
export type ProjectRequest = {
  readonly projectDir: string | null
  readonly toolchain: ToolchainName | null
  readonly options: ToolchainOptions | null
  /** Null if this service fetches nothing. */
  readonly fetch: object | null
  /** Fallback for a project without a plain name. */
  readonly sourceName: string
}

/** Files by which a toolchain recognizes its projects. */
export type ToolchainFiles = {
  readonly manifest: string
  readonly lock: string
  /** The command that writes the lock. */
  readonly makeLock: string
}

/** One toolchain. `toolchains.ts` has the row of each. */
export type Toolchain = ToolchainFiles & {
  /** Returns why a project with this lock cannot be built from the available inputs, or null. */
  readonly problemOf: (lock: string, wish: ProjectRequest) => string | null
  /** Name and version in the text of a manifest; null if it has none. Errors are for the toolchain to report. */
  readonly describe: (manifest: string) => { readonly name: string; readonly version: string | null } | null
  /** `openNetwork` resolves to the proxy once it is reachable, and may be called more than once. */
  readonly start: (
    phase: Phase,
    project: Project,
    source: Source,
    openNetwork: () => Promise<string>,
  ) => Promise<ToolchainRun>
}

export type ToolchainRun = {
  readonly lock: LockFile
  /** Fetches packages of the lock that the source lacks; `openNetwork` resolves to the proxy once it is reachable. */
  readonly fetch: (openNetwork: () => Promise<string>) => Promise<void>
  /** 1; 2 for the second build, made for comparison. Never called while there is a network. */
  readonly build: (round: number) => Promise<readonly Candidate[]>
  /** Data for the provenance of a finished build. */
  readonly facts: () => Promise<
    Pick<BuildRecord, 'tools' | 'command' | 'environment' | 'packages' | 'members' | 'pinned' | 'rust' | 'evaluation'>
  >
}
