// The order for a build VM, from the build's row and the configuration. Pure.

import { sha256 } from '../attest/hash.ts'
import { toHex, utf8 } from '../base/bytes.ts'
import type { BuildLimits, BuildOrder } from '../contract/vm/build-order.ts'
import type { Build } from '../store/directory/build.table.ts'
import type { BuildsSettings } from './types.ts'

export type OrderSettings = Pick<BuildsSettings, 'builderId' | 'limits' | 'fetch'>

/** Returns the order. `imageSummary`: SHA-256 of the verification summary of the VM's image, or null. */
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
    options: build.options,
    waivers: [...(build.waivers ?? [])],
    accepts: { caSha256: build.fetchCaSha256, cratesMirror: build.cratesMirror },
    builderId,
    imageSummary,
    limits,
    fetch: fetch === null ? null : fetchFor(build, fetch),
  }
}

/** Returns the service's own mirror, and the SHA-256 of its authorities, with which a request names them. */
export function ownOf({ fetch }: Pick<OrderSettings, 'fetch'>): {
  fetchCaSha256: string | null
  cratesMirror: string | null
} {
  const ca = fetch?.ca ?? null
  return {
    fetchCaSha256: ca === null ? null : toHex(sha256(utf8(ca))),
    cratesMirror: fetch?.cratesMirror ?? null,
  }
}

function fetchFor(
  { fetchCaSha256, cratesMirror }: Build,
  { proxy, ca }: NonNullable<BuildOrder['fetch']>,
): BuildOrder['fetch'] {
  return { proxy, cratesMirror, ca: fetchCaSha256 === null ? null : ca }
}

/** Returns the maximum duration of a build in milliseconds, from its order to its end, regardless of its own limits. */
export function buildDeadlineMs({ reproduce }: Pick<Build, 'reproduce'>, limits: BuildLimits): number {
  return (limits.fetchSeconds + limits.buildSeconds * (reproduce ? 2 : 1)) * 1000 + slackMs
}

/** Time for unpacking, hashing, evidence and the archive. */
const slackMs = 30 * 60 * 1000
