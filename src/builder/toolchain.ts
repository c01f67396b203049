// The interface of a toolchain. Types.

import type { BuildRecord } from '../attest/provenance/record.ts'
import type { Candidate } from './collect.ts'

export type ToolchainRun = {
  /** Fetches packages of the lock that the source lacks; `openNetwork` resolves to the proxy once it is reachable. */
  readonly fetch: (openNetwork: () => Promise<string>) => Promise<void>
  /** 1, and 2 for the build that is made to be compared. Never called while there is a network. */
  readonly build: (round: number) => Promise<Candidate[]>
  /** For the provenance, when a build is done. */
  readonly facts: () => Promise<Pick<BuildRecord, 'tools' | 'command' | 'environment' | 'packages' | 'evaluation'>>
}
