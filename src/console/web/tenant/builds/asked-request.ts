// The request that a build's evidence is compared with: as this tab sent it, else as the service's record has it.
// Pure.

import type { BuildRecord } from '../../../../contract/http/build-api.ts'
import type { AskedRequest } from '../../../../verifier/build/question.ts'
import type { KnownBuild } from './known-builds.ts'

/** The source is not compared here: its tree is hashed by the command line, which has it. */
export function requestOf(known: KnownBuild | null, record: BuildRecord): AskedRequest {
  return {
    source: 'any',
    projectDir: known === null ? record.project_dir : known.projectDir,
    toolchain: known === null ? record.toolchain : known.toolchain,
    reproduce: known?.reproduce ?? false,
    sourceName: known?.source.kind === 'archive' ? known.source.name : 'any',
    fetchCaSha256: null,
    cratesMirror: null,
  }
}
