// A build with npm or pnpm beside a stand-in registry, and the evidence's own list of packages.
// Effects: a builder.

import { expect } from 'bun:test'
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
