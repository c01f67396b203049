// A build with npm or pnpm beside a stand-in registry. The evidence's list of packages must equal the record that npm
// or pnpm itself leaves in node_modules. Effects: a builder.

import { expect } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { nodeTools } from '../../../scripts/rigs/build/node-tools.ts'
import { archiveOf, type SourceFiles } from '../../../scripts/rigs/build/sources.ts'
import { startBuildVm, testLimits } from '../../../scripts/rigs/build/vm.ts'
import type { BuildOrder } from '../../../src/contract/vm/build-order.ts'
import { filesOf } from './built.ts'
import { cratesHost, startFetchServers } from './fetch-servers.ts'
import { type NpmFiles, servePackage } from './npm-packages.ts'

export type NodeBuilt = {
  /**
   * Package URLs of the evidence, decoded, with ` !` behind a package whose install scripts ran.
   */
  readonly packages: readonly string[]
  /** Text of each artifact; `package` for a tar.gz. */
  readonly artifacts: Readonly<Record<string, string>>
  readonly command: readonly string[]
}

type Descriptor = { name: string; uri?: string; digest: object; annotations?: Record<string, unknown> }

export type NodeChange = Partial<BuildOrder> & { readonly archive?: Uint8Array; readonly served?: readonly NpmFiles[] }

/** The evidence and artifacts, or the failure. */
export async function buildNode(
  manager: 'npm' | 'pnpm',
  files: SourceFiles,
  { served = [], ...change }: NodeChange,
): Promise<NodeBuilt | string> {
  await using servers = await startFetchServers()
  for (const pkg of served) servePackage(servers.files, pkg)
  const registry = `https://${cratesHost}/npm`
  const options: BuildOrder['options'] = manager === 'npm' ? { npm: { registry } } : { pnpm: { registry } }
  await using vm = await startBuildVm({ nodeTools: await nodeTools() })
  // Only the outcome is under test, not how fast a busy machine is.
  const limits = { ...testLimits, fetchSeconds: 900, buildSeconds: 900 }
  const ended = await vm.build({ archive: archiveOf(files), limits, options, fetch: servers.fetch, ...change })
  if (ended.result.status === 'failed') return `${ended.result.errorType}: ${ended.result.error}`
  const found = filesOf(ended)
  const json = (path: string) => JSON.parse(Buffer.from(found.get(path) ?? []).toString('utf8'))
  const { resolvedDependencies, internalParameters } = json('attestations/slsa.json').predicate.buildDefinition
  const all = (resolvedDependencies as Descriptor[]).filter(({ uri }) => uri?.startsWith('pkg:npm/') === true)
  const sbom: { purl: string; properties: { name: string; value: string }[] }[] =
    json('attestations/sbom.cdx.json').components
  expect(sbom.map(({ purl, properties }) => [purl, properties[0]?.value])).toEqual(
    all.map(({ uri, annotations }) => [uri ?? '', String(annotations?.origin)]),
  )
  const family: Descriptor[] = json('provenance.json').predicate.buildDefinition.resolvedDependencies
  expect(family.map(({ uri }) => uri).filter(uri => uri?.startsWith('pkg:npm/'))).toEqual(
    all.filter(({ annotations }) => annotations?.origin !== 'path').map(({ uri }) => uri),
  )
  const installed = join(vm.scratch, 'build/node-installed-1/source', change.projectDir ?? '', 'node_modules')
  expect(all.flatMap(listedAs).sort()).toEqual(recordedIn[manager](installed).sort())
  const artifacts = [...found.keys()].filter(path => path.startsWith('artifacts/'))
  const textOf = (path: string) =>
    path.endsWith('.tgz') ? 'package' : Buffer.from(found.get(path) ?? []).toString('utf8')
  return {
    packages: all.map(
      ({ uri = '', annotations }) => `${decodeURIComponent(uri)}${annotations?.ranScripts === true ? ' !' : ''}`,
    ),
    artifacts: Object.fromEntries(artifacts.map(path => [path.slice('artifacts/'.length), textOf(path)])),
    command: internalParameters.command,
  }
}

/** `NAME VERSION INTEGRITY`, or `NAME VERSION in OWNER` for a package inside another's file. None for the project. */
function listedAs({ uri = '' }: Descriptor): string[] {
  const [, name = '', version = '', query = ''] = /^pkg:npm\/(.+)@([^?]+)\?(.*)$/.exec(decodeURIComponent(uri)) ?? []
  const [, hex = ''] = /^checksum=sha512:([0-9a-f]+)$/.exec(query) ?? []
  if (hex !== '') return [`${name} ${version} sha512-${Buffer.from(hex, 'hex').toString('base64')}`]
  const [, owner = ''] = /^bundled_in=(.+)@/.exec(query) ?? []
  return owner === '' ? [] : [`${name} ${version} in ${owner}`]
}

type Recorded = {
  readonly name?: string
  readonly version: string
  readonly integrity?: string
  readonly inBundle?: true
}

/** Packages that each manager records for an install, in the same form. The builder reads neither file. */
const recordedIn = { npm: recordedByNpm, pnpm: recordedByPnpm } as const

/** node_modules/.package-lock.json (docs.npmjs.com/cli/configuring-npm/package-lock-json, "Hidden Lockfiles"). */
function recordedByNpm(nodeModules: string): string[] {
  const path = join(nodeModules, '.package-lock.json')
  if (!fs.existsSync(path)) return []
  const { packages }: { packages: Record<string, Recorded> } = JSON.parse(fs.readFileSync(path, 'utf8'))
  const lines = Object.entries(packages).map(([place, { name, version, integrity, inBundle }]) => {
    const [owner = '', last = ''] = place.split(/(?:^|\/)node_modules\//).slice(-2)
    return `${name ?? last} ${version} ${inBundle === true ? `in ${owner}` : integrity}`
  })
  return [...new Set(lines)]
}

/**
 * node_modules/.pnpm/lock.yaml without the packages that node_modules/.modules.yaml lists as skipped. Neither file has
 * packages inside the file of another package, so directories are read for these.
 */
function recordedByPnpm(nodeModules: string): string[] {
  const store = join(nodeModules, '.pnpm')
  if (!fs.existsSync(join(store, 'lock.yaml'))) return []
  const yaml = (path: string): unknown => Bun.YAML.parse(fs.readFileSync(join(nodeModules, path), 'utf8'))
  const { packages = {} } = yaml('.pnpm/lock.yaml') as {
    readonly packages?: Record<string, { readonly resolution: { readonly integrity: string } }>
  }
  const { skipped = [] } = yaml('.modules.yaml') as { readonly skipped?: readonly string[] }
  const lines = Object.entries(packages)
    .filter(([key]) => !skipped.includes(key))
    .map(([key, { resolution }]) => `${key.replace(/(.)@([^@]+)$/, '$1 $2')} ${resolution.integrity}`)
  const inside = [...new Bun.Glob('*/node_modules/*/node_modules/*/package.json').scanSync({ cwd: store, dot: true })]
  const bundled = inside.map(file => {
    const { name, version }: { name: string; version: string } = JSON.parse(fs.readFileSync(join(store, file), 'utf8'))
    return `${name} ${version} in ${file.split('/')[2]}`
  })
  return [...lines, ...bundled]
}
