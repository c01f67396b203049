// Builds a flake in a builder without a VM and reads three things: the evidence's list, the artifacts, and what Nix
// itself finds in the store afterwards. Effects: a builder, programs, files below /tmp.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { archiveOf, type SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import { startBuildVm, testLimits } from '../../../../scripts/rigs/build/vm.ts'
import type { NixOptions } from '../../../../src/contract/http/build-options.ts'
import { filesOf } from '../built.ts'
import type { FetchServers } from '../fetch-servers.ts'
import { foreignPaths } from './store.ts'

export type NixProject = {
  readonly what: string
  readonly files: SourceFiles
  readonly projectDir?: string
  /** A request without them has no options of Nix. */
  readonly options?: Partial<NixOptions>
  /** False unless the service fetches for it. */
  readonly fetches?: boolean
}

export type NixEnd = {
  /** `ERROR_TYPE: MESSAGE`; null for a build that ended well. */
  readonly failure: string | null
  /** Text of each artifact by its name. */
  readonly artifacts: Readonly<Record<string, string>>
  /** The evidence's list in the form of `foreignPaths`; null for a build by another toolchain. */
  readonly listed: readonly string[] | null
  /** Paths that Nix finds in the store, in the same form. */
  readonly stored: readonly string[] | null
  readonly log: string
}

export async function buildNix(project: NixProject, servers: FetchServers): Promise<NixEnd> {
  const { files, projectDir = null, options, fetches = false } = project
  await using vm = await startBuildVm()
  const end = await vm.build({
    archive: archiveOf(files),
    projectDir,
    limits: { ...testLimits, fetchSeconds: 900, buildSeconds: 900 },
    fetch: fetches ? servers.fetch : null,
    options: options === undefined ? null : { nix: { output: null, caches: [], ...options } },
  })
  const log = end.lines.map(({ msg }) => msg).join('\n')
  const none = { artifacts: {}, listed: null, stored: null, log }
  if (end.result.status === 'failed') return { ...none, failure: `${end.result.errorType}: ${end.result.error}` }
  const found = filesOf(end)
  const text = (path: string) => Buffer.from(found.get(path) ?? []).toString('utf8')
  const nixDir = join(vm.scratch, 'build/build-1/nix')
  const isNix = fs.existsSync(nixDir)
  const directory = projectDir === null ? '' : `${projectDir}/`
  const own = Object.entries(files).filter(([path]) => path.startsWith(directory))
  return {
    failure: null,
    artifacts: Object.fromEntries(
      [...found.keys()]
        .filter(path => path.startsWith('artifacts/'))
        .map(path => [path.slice('artifacts/'.length), isNix ? text(path) : '']),
    ),
    listed: isNix ? listedIn(text('attestations/slsa.json')) : null,
    stored: isNix
      ? foreignPaths(nixDir, Object.fromEntries(own.map(([path, content]) => [path.slice(directory.length), content])))
      : null,
    log,
  }
}

type Descriptor = { readonly name: string; readonly uri?: string; readonly digest: { readonly sha256?: string } }

function listedIn(slsa: string): string[] {
  const all: Descriptor[] = JSON.parse(slsa).predicate.buildDefinition.resolvedDependencies
  const listed = all
    .flatMap(({ name, uri = '', digest: { sha256 = 'no sha256' } }) => {
      const [, kind = ''] = /^pkg:nix-(flake|fetch|path)\//.exec(uri) ?? []
      if (kind === 'flake') return [`input ${sha256}`]
      if (kind === 'fetch') return [`fixed ${name} ${sha256}`]
      return kind === 'path' ? [`path ${name} ${sha256}`] : []
    })
    .sort()
  // Inputs of one address are one path of the store.
  return [...new Set(listed)]
}
