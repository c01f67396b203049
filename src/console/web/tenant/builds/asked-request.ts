// The request that a build's evidence is compared with: as this tab sent it, else as the service's record has it.
// Pure.

import type { BuildRecord } from '../../../../contract/http/build-api.ts'
import type { AskedRequest, AskedSource } from '../../../../verifier/build/question.ts'
import type { CommandOptions } from '../../core/command.ts'
import type { KnownBuild } from './known-builds.ts'

/** A source that is not a commit is not compared here: the command line hashes its tree. */
export function requestOf(known: KnownBuild | null, record: BuildRecord): AskedRequest {
  return {
    source: known === null ? 'any' : sourceOf(known),
    projectDir: known === null ? record.project_dir : known.projectDir,
    toolchain: known === null ? record.toolchain : known.toolchain,
    reproduce: known?.reproduce ?? false,
    sourceName: known?.source.kind === 'archive' ? known.source.name : 'any',
    fetchCaSha256: null,
    cratesMirror: null,
  }
}

function sourceOf({ source }: KnownBuild): AskedSource | 'any' {
  if (source.kind !== 'git' || !/^[0-9a-f]{40}$/i.test(source.ref ?? '')) return 'any'
  return { kind: 'commit', commit: (source.ref ?? '').toLowerCase(), url: source.url, ref: source.ref }
}

/** Options of `strongroom verify build` that ask the same. */
export function requestOptions({ source, projectDir, toolchain, reproduce }: AskedRequest): CommandOptions {
  const isCommit = source !== 'any' && source.kind === 'commit'
  return {
    ...(isCommit ? { commit: source.commit, repository: source.url, ref: source.ref } : { 'any-source': true }),
    'project-dir': projectDir,
    toolchain,
    reproduce,
  }
}

/** Parts of the request that the verdict says nothing of, in words. */
export function notCompared(known: KnownBuild | null): string {
  if (known === null) {
    return 'This tab did not submit it: nonce and source are not compared, and the rest with the service’s own record of the request.'
  }
  if (sourceOf(known) !== 'any') return 'It is compared with the request of this tab, the commit too.'
  return 'It is compared with the request of this tab, but for its source: a page names a commit or nothing. Compare that on the command line, by --source or --commit.'
}
