// The interface of a toolchain. Types.

import type { BuildRecord } from '../attest/provenance/record.ts'
import type { Candidate } from './collect.ts'

export type ToolchainRun = {
  /** Fetches packages of the lock that the source lacks; `openNetwork` resolves to the proxy once it is reachable. */
  readonly fetch: (openNetwork: () => Promise<string>) => Promise<void>
  /** 1; 2 for the second build, made for comparison. Never called while there is a network. */
  readonly build: (round: number) => Promise<Candidate[]>
  /** For the provenance, when a build is done. */
  readonly facts: () => Promise<Pick<BuildRecord, 'tools' | 'command' | 'environment' | 'packages' | 'evaluation'>>
}
