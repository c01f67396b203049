// Builds a Go project in a builder without a VM and reads three things: the evidence's list of modules, the artifacts,
// and what `go version -m` finds in the artifacts. Effects: a builder, programs, files below /tmp.

import * as fs from 'node:fs'
import { join, normalize } from 'node:path'
import { gzipSync } from 'node:zlib'
import { tarOf } from '../../../../scripts/rigs/archive-bytes.ts'
import { type GoTools, goTools } from '../../../../scripts/rigs/build/go-tools.ts'
import type { SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import { startBuildVm, testLimits } from '../../../../scripts/rigs/build/vm.ts'
import { succeed } from '../../../../scripts/rigs/guest/root.ts'
import type { BuildOrder } from '../../../../src/contract/vm/build-order.ts'
import { filesOf } from '../built.ts'
import { cratesHost, type FetchServers } from '../fetch-servers.ts'
import { type GoModuleFiles, serveModule } from '../go-modules.ts'

export type GoProject = {
  readonly what: string
  readonly files: SourceFiles
  /** Symbolic links by their path. */
  readonly links?: SourceFiles
  /** Modules that the proxy of the request has. Without them, the request names no proxy. */
  readonly served?: readonly GoModuleFiles[]
  readonly projectDir?: string
  readonly waivers?: BuildOrder['waivers']
}

export type GoEnd = {
  /** `ERROR_TYPE: MESSAGE`; null for a build that ended well. */
  readonly failure: string | null
  readonly artifacts: readonly string[]
  /** Modules of the evidence: `NAME VERSION ORIGIN` or, from a directory of the source, `NAME VERSION ORIGIN DIR`. */
  readonly modules: readonly string[]
  /** The modules of the evidence in the form of `linked`. */
  readonly named: readonly string[]
  /** Modules in the artifacts: `main PATH`, `PATH VERSION HASH`, `PATH VERSION` without a hash, or `./DIR`. */
  readonly linked: readonly string[]
  /** Output of the first artifact. */
  readonly output: string
}

export async function buildGo(project: GoProject, servers: FetchServers): Promise<GoEnd> {
  const { files, links = {}, served = null, projectDir = null, waivers = [] } = project
  const tools = await goTools()
  for (const module of served ?? []) serveModule(servers.files, module)
  const archive = gzipSync(
    tarOf([
      ...Object.entries(files).map(([name, content]) => ({ name, content })),
      ...Object.entries(links).map(([name, link]) => ({ name, type: '2', link })),
    ]),
  )
  await using vm = await startBuildVm({ goTools: tools })
  const end = await vm.build({
    archive,
    projectDir,
    waivers,
    limits: { ...testLimits, fetchSeconds: 900, buildSeconds: 900 },
    fetch: served === null ? null : servers.fetch,
    options: served === null ? null : { go: { proxy: `https://${cratesHost}/go` } },
  })
  const none = { artifacts: [], modules: [], named: [], linked: [], output: '' }
  if (end.result.status === 'failed') return { ...none, failure: `${end.result.errorType}: ${end.result.error}` }
  const found = filesOf(end)
  const modules = modulesOf(found.get('attestations/slsa.json'))
  const programs = [...found].filter(([path]) => path.startsWith('artifacts/'))
  return {
    failure: null,
    artifacts: programs.map(([path]) => path.slice('artifacts/'.length)).sort(),
    modules: modules.map(({ text }) => text).sort(),
    named: [...new Set(modules.map(({ named }) => named))].sort(),
    ...readPrograms(
      tools,
      programs.map(([, bytes]) => bytes),
      projectDir ?? '.',
    ),
  }
}

type Descriptor = { readonly name: string; readonly uri?: string; readonly annotations?: { readonly origin?: string } }

function modulesOf(slsa: Uint8Array | undefined): { readonly text: string; readonly named: string }[] {
  const { predicate } = JSON.parse(Buffer.from(slsa ?? []).toString('utf8'))
  const all: Descriptor[] = predicate.buildDefinition.resolvedDependencies
  return all
    .filter(({ uri }) => uri?.startsWith('pkg:golang/') === true)
    .map(({ name, uri = '', annotations }) => {
      const [path = '', query = ''] = decodeURIComponent(uri).split('?')
      const version = /@([^@]+)$/.exec(path)?.[1] ?? ''
      const { origin = '' } = annotations ?? {}
      const [, directory = ''] = /download_url=file:(.*)$/.exec(query) ?? []
      const [, hex = ''] = /checksum=h1:([0-9a-f]+)/.exec(query) ?? []
      const word = (text: string) => (text === '' ? '' : ` ${text}`)
      const hash = hex === '' ? '' : ` h1:${Buffer.from(hex, 'hex').toString('base64')}`
      const named = origin === 'path' ? `main ${name}` : version === '' ? `./${directory}` : `${name} ${version}${hash}`
      return { text: `${name}${word(version)} ${origin}${word(directory)}`, named }
    })
}

/** Go itself reads the artifacts, outside of the builder. */
function readPrograms(
  { file }: GoTools,
  programs: readonly Uint8Array[],
  projectDir: string,
): Pick<GoEnd, 'linked' | 'output'> {
  const dir = fs.mkdtempSync('/tmp/strongroom-go-programs-')
  try {
    const paths = programs.map((bytes, at) => {
      const path = join(dir, String(at))
      fs.writeFileSync(path, bytes, { mode: 0o755 })
      return path
    })
    const linked = paths.flatMap(path => linkedOf(succeed([file, 'version', '-m', path]), projectDir))
    const { stdout, stderr } = Bun.spawnSync([paths[0] ?? '/bin/false'])
    return { linked: [...new Set(linked)].sort(), output: `${stdout}${stderr}`.trim() }
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}

/** `mod`, `dep` and `=>` lines of `go version -m`: kind, path, version, hash. A replacement follows its module. */
function linkedOf(text: string, projectDir: string): string[] {
  const linked: string[] = []
  for (const line of text.split('\n')) {
    const [, kind = '', path = '', version = '', hash = ''] = line.split('\t')
    if (kind === 'mod') linked.push(`main ${path}`)
    if (kind === '=>') linked.pop()
    if (kind !== 'dep' && kind !== '=>') continue
    const isDirectory = path.startsWith('.')
    linked.push(
      isDirectory ? `./${normalize(join(projectDir, path))}` : [path, version, hash].filter(Boolean).join(' '),
    )
  }
  return linked
}
