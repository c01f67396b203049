// The interface of a toolchain: how the builder finds, fetches, builds and describes its projects. Types only.

import type { BuildRecord } from '../attest/provenance/record.ts'
import type { Toolchain as ToolchainName, ToolchainOptions } from '../contract/http/build-options.ts'
import type { Candidate } from './collect.ts'
import type { Phase } from './phase.ts'
import type { Source } from './source/extract-source.ts'

export type Project = {
  /** Directory relative to the source; '' is its root. */
  readonly dir: string
  readonly toolchain: ToolchainName
  /** A plain name, for the archive's top-level directory. */
  readonly name: string
  readonly version: string | null
  /** Why this toolchain was chosen; null if source or request left no choice. */
  readonly judgement: string | null
}

export type LockFile = {
  /** Relative to the source. */
  readonly path: string
  readonly text: string
  readonly sha256: string
}

/** The part of a request about the project. */
export type ProjectRequest = {
  readonly projectDir: string | null
  readonly toolchain: ToolchainName | null
  readonly options: ToolchainOptions | null
  /** Null if this service allows no fetching. */
  readonly fetch: object | null
  /** Fallback for a project without a plain name. */
  readonly sourceName: string
}

/** Files that identify a toolchain's projects. */
export type ToolchainFiles = {
  readonly manifest: string
  readonly lock: string
  /** The command that writes the lock. */
  readonly makeLock: string
}

/** A toolchain. `toolchains.ts` lists all of them. */
export type Toolchain = ToolchainFiles & {
  /** Returns why a project with this lock cannot be built from the available inputs; null if it can. */
  readonly problemOf: (lock: string, wish: ProjectRequest) => string | null
  /** Returns name and version in a manifest; null if it has none. The toolchain itself reports errors. */
  readonly describe: (manifest: string) => { readonly name: string; readonly version: string | null } | null
  /** Prepares a build. `openNetwork` resolves to the proxy when it is reachable, and may be called several times. */
  readonly start: (
    phase: Phase,
    project: Project,
    source: Source,
    openNetwork: () => Promise<string>,
  ) => Promise<ToolchainRun>
}

export type ToolchainRun = {
  readonly lock: LockFile
  /** Fetches packages of the lock that the source lacks. `openNetwork` resolves to the proxy when it is reachable. */
  readonly fetch: (openNetwork: () => Promise<string>) => Promise<void>
  /** Builds. `round` is 1, or 2 for the second build, which is compared with the first. Never called with a network. */
  readonly build: (round: number) => Promise<readonly Candidate[]>
  /** Returns data of a finished build for the provenance. */
  readonly facts: () => Promise<
    Pick<BuildRecord, 'tools' | 'command' | 'environment' | 'packages' | 'members' | 'pinned' | 'rust' | 'evaluation'>
  >
}
