// Goal: a package has one origin, the same in every document that names it, and the verdict counts them by it.

import { describe, expect, test } from 'bun:test'
import type { Provenance } from '../../../src/attest/provenance/statement.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { packagesCheck } from '../../../src/verifier/build/packages.ts'

type Listed = { readonly uri: string; readonly origin: string | null }
type Case = {
  readonly packages: readonly Listed[]
  /** In the SBOM, where they differ from the statement's. */
  readonly components?: readonly object[]
  /** URIs of provenance.json, where they are not all but the source's own. */
  readonly wanted?: readonly string[]
  readonly bomFormat?: string
}
function judge({ packages, components, wanted, bomFormat = 'CycloneDX' }: Case) {
  const slsa = packages.map(({ uri, origin }) => ({
    ...{ name: 'p', uri },
    ...(origin === null ? {} : { annotations: { origin } }),
  }))
  const listed = packages.map(({ uri: purl, origin: value }) => ({
    purl,
    properties: [
      { name: 'other', value: 'x' },
      { name: 'strongroom:origin', value },
    ],
  }))
  const named = wanted ?? packages.filter(({ origin }) => origin !== 'path').map(({ uri }) => uri)
  const documents = new Map([
    [
      'attestations/slsa.json',
      utf8(
        JSON.stringify({
          predicate: { buildDefinition: { resolvedDependencies: [{ name: 'source-tree' }, ...slsa] } },
        }),
      ),
    ],
    ['attestations/sbom.cdx.json', utf8(JSON.stringify({ bomFormat, components: components ?? listed }))],
  ])
  const resolvedDependencies = [...named, 'https://git.example/demo.git'].map(uri => ({ uri }))
  const provenance = { predicate: { buildDefinition: { resolvedDependencies } } } as unknown as Provenance
  const { name, outcome, reason, required } = packagesCheck({ documents, digests: new Map() }, provenance)
  expect(name).toBe('packages')
  return [outcome, reason, required]
}

const of = (uri: string, origin: string | null = 'fetched') => ({ uri, origin })
const [serde, tool, node] = ['pkg:cargo/serde@1', 'pkg:golang/tool@1', 'pkg:npm/node@1']
const differ = 'slsa.json, provenance.json and the SBOM differ in '

test('goal: every origin is counted in words, and those that a reader of the lock would not expect are named', () => {
  const many = Array.from({ length: 9 }, (_, at) => of(`pkg:npm/%40a/p${at}@1`, 'patched'))
  expect(judge({ packages: [of(serde), of(tool), of(node, 'vendored'), of('pkg:cargo/own@1', 'path')] })).toEqual([
    'pass',
    "2 fetched and compared with the lock; 1 vendored in the source, the lock's checksum not compared; 1 of the source itself",
    true,
  ])
  expect(judge({ packages: [of('pkg:cargo/a%zz@1', 'replaced'), ...many] })).toEqual([
    'pass',
    expect.stringMatching(/^9 patched by the source: @a\/p0@1, .*@a\/p7@1; 1 replaced by the source: a%zz@1$/),
    true,
  ])
})

test('goal: none passes where none is wanted; a result from before origins is not checked', () => {
  expect(judge({ packages: [] })).toEqual(['pass', 'none of Cargo, Go, npm or pnpm', true])
  expect(judge({ packages: [of('pkg:nix-fetch/a')] })).toEqual(['pass', 'none of Cargo, Go, npm or pnpm', true])
  const old = ['not-checked', 'this result does not say where its packages came from', false]
  for (const packages of [[of(serde, null)], [of(serde, null), of(tool, null)]]) {
    expect(judge({ packages, components: [] })).toEqual(old)
  }
  // Some with an origin and some without are no old result.
  const components = [{ purl: serde }, { purl: tool, properties: [{ name: 'strongroom:origin', value: 'fetched' }] }]
  expect(judge({ packages: [of(serde, null), of(tool)], components })).toEqual(['fail', `${differ}${serde}`, true])
})

describe('documents that differ', () => {
  const component = (purl: string, value: string) => ({ purl, properties: [{ name: 'strongroom:origin', value }] })
  // Goal: a package that one document lacks, or has of another origin, is named.
  test.each<readonly [string, Case, string]>([
    ['missing in the SBOM', { packages: [of(serde), of(tool)], components: [component(serde, 'fetched')] }, tool],
    ['of another origin there', { packages: [of(serde)], components: [component(serde, 'vendored')] }, serde],
    ['without an origin there', { packages: [of(serde)], components: [{ purl: serde }] }, serde],
    ['missing in provenance.json', { packages: [of(serde), of(tool)], wanted: [tool] }, serde],
    ['only in provenance.json', { packages: [of(serde)], wanted: [serde, node] }, node],
    ['alone in provenance.json', { packages: [], wanted: [node] }, node],
    ['of the source, and in provenance.json', { packages: [of(serde, 'path')], wanted: [serde] }, serde],
  ])('goal: %s', (_, given, uri) => {
    expect(judge(given)).toEqual(['fail', `${differ}${uri}`, true])
  })

  test('goal: eight of them are named', () => {
    const packages = Array.from({ length: 9 }, (_, at) => of(`pkg:npm/p${at}@1`))
    const eight = packages.slice(0, 8).map(({ uri }) => uri)
    expect(judge({ packages, wanted: [] })).toEqual(['fail', differ + eight.join('; '), true])
  })
})

test('goal: a checksum is of a package that was fetched, by the lock or by another module', () => {
  const wrong = (uri: string, origin: string) => [
    'fail',
    `slsa.json: ${uri}: ${origin}, and yet with the checksum of a registry`,
    true,
  ]
  for (const uri of [serde, tool, node].map(bare => `${bare}?checksum=sha256:aa`)) {
    for (const origin of ['fetched', 'patched']) expect(judge({ packages: [of(uri, origin)] })[0]).toBe('pass')
    for (const origin of ['vendored', 'path'])
      expect(judge({ packages: [of(uri, origin)] })).toEqual(wrong(uri, origin))
    const replaced = judge({ packages: [of(uri, 'replaced')] })
    if (uri.startsWith('pkg:golang/')) expect(replaced[0]).toBe('pass')
    else expect(replaced).toEqual(wrong(uri, 'replaced'))
  }
  expect(judge({ packages: [of(serde, 'stolen')] })[1]).toBe(`slsa.json: ${serde}: the unknown origin "stolen"`)
})

test('goal: an SBOM of another format, and documents that cannot be read, fail', () => {
  expect(judge({ packages: [], bomFormat: 'SPDX' })).toEqual([
    ...['fail', 'sbom.cdx.json.bomFormat is "SPDX", not CycloneDX', true],
  ])
  expect(judge({ packages: [], components: [{}] })[0]).toBe('fail')
  const provenance = { predicate: { buildDefinition: { resolvedDependencies: [] } } } as unknown as Provenance
  expect(packagesCheck({ documents: new Map(), digests: new Map() }, provenance)).toMatchObject({
    outcome: 'fail',
    reason: 'there is no attestations/slsa.json',
  })
})
