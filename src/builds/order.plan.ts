// The order that a build VM gets, from the build's row and the configuration. Pure.

import type { BuildLimits, BuildOrder } from '../contract/build-agent.ts'
import type { Build } from '../store/directory/build.table.ts'

export type OrderSettings = {
  readonly builderId: string
  readonly limits: BuildLimits
  /** Null: nothing may be fetched. */
  readonly fetch: BuildOrder['fetch']
}

/** `imageSummary`: SHA-256 of the verification summary of the VM's image, or null. */

export function orderOf(
  build: Build,
  { builderId, limits, fetch, imageSummary }: OrderSettings & Pick<BuildOrder, 'imageSummary'>,
): BuildOrder {
  return {
    jobId: build.id,
    nonce: build.nonce,
    source:
      build.sourceKind === 'git'
        ? { kind: 'git', url: build.repoUrl ?? '', ref: build.repoRef }
        : {
            kind: 'archive',
            name: build.sourceName,
            sizeBytes: build.sourceBytes ?? 0,
            sha256: build.sourceSha256 ?? '',
          },
    projectDir: build.projectDir,
    toolchain: build.toolchain,
    reproduce: build.reproduce,
    builderId,
    imageSummary,
    limits,
    fetch,
  }
}

/** How long a build may take from its order to its end, whatever it says. */
export function buildDeadlineMs({ reproduce }: Pick<Build, 'reproduce'>, limits: BuildLimits): number {
  return (limits.fetchSeconds + limits.buildSeconds * (reproduce ? 2 : 1)) * 1000 + slackMs
}

/** For unpacking, hashing, evidence and the archive. */
const slackMs = 30 * 60 * 1000
