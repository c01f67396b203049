// What a build is to those who conduct it, whichever toolchain it has. Types.

import type { BuildRecord } from '../attest/provenance/record.ts'
import type { Candidate } from './collect.ts'

export type ToolchainRun = {
  /** Whatever the lock names and the source has not; `openNetwork` gives the proxy when the way to it is open. */
  readonly fetch: (openNetwork: () => Promise<string>) => Promise<void>
  /** 1, and 2 for the build that is made to be compared. Never called while there is a network. */
  readonly build: (round: number) => Promise<Candidate[]>
  /** For the provenance, when a build is done. */
  readonly facts: () => Promise<Pick<BuildRecord, 'tools' | 'command' | 'environment' | 'packages' | 'evaluation'>>
}
