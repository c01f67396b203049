// Goal: provenance.json has exactly the members that the family reads, in its order; each member that is missing, and
// every other one, is refused by name.

import { describe, expect, test } from 'bun:test'
import { prettyJson } from '../../../src/attest/provenance/json.ts'
import type { BuildRecord } from '../../../src/attest/provenance/record.ts'
import {
  buildTypeOf,
  provenanceBytes,
  provenanceOf,
  readProvenance,
  sourceTreeName,
} from '../../../src/attest/provenance/statement.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'

const hex = (byte: string) => byte.repeat(32)
const cargo = {
  jobId: 'job',
  builderId: 'https://builder.example',
  command: ['cargo', 'build', '--locked'],
  source: {
    uri: 'https://git.example/demo.git',
    commit: 'aa'.repeat(20),
    submodules: [{ path: 'sub/a', url: 'https://git.example/a.git', commit: 'ab'.repeat(20) }],
    treeSha1: 'ac'.repeat(20),
    treeSha256: hex('ad'),
  },
  tools: {
    toolchain: 'cargo',
    programs: { cargo: { version: 'c1', sha256: hex('01') }, rustc: { version: 'r1', sha256: hex('02') } },
  },
  guest: { version: 'g1', sha256: hex('03') },
  lockFile: { name: 'Cargo.lock', path: 'Cargo.lock', sha256: hex('04') },
  packages: [
    {
      ...{ kind: 'crate', name: 'serde', version: '1.0.0', origin: 'fetched', compiled: true, dependsOn: [] },
      from: { kind: 'registry', sha256: hex('05'), url: null },
    },
    {
      ...{ kind: 'crate', name: 'demo', version: '0.1.0', origin: 'path', compiled: true, dependsOn: [] },
      from: { kind: 'tree', path: '', sha256: hex('06') },
    },
  ],
  evaluation: null,
  startedAtMs: Date.UTC(2026, 0, 2, 3, 4, 5),
  finishedAtMs: Date.UTC(2026, 0, 2, 3, 5, 6),
  artifacts: [{ name: 'demo', sha256: hex('07'), sizeBytes: 1, reproducible: null }],
} as unknown as BuildRecord

const nix = {
  ...cargo,
  source: { ...cargo.source, commit: null, submodules: [] },
  tools: { toolchain: 'nix', programs: { nix: { version: 'n1', sha256: hex('01') } } },
  evaluation: { derivationCount: 12, fetchCount: 3 },
  packages: [
    { kind: 'flake-input', name: 'nixpkgs', uri: 'github:NixOS/nixpkgs/1', narSha256: hex('00') },
    {
      ...{ kind: 'nix-fetch', name: 'src', drvPath: 'x.drv', outputHashMode: 'flat', url: 'https://a.example/s' },
      hash: { algorithm: 'sha512', hex: '08'.repeat(64) },
    },
  ],
} as unknown as BuildRecord

const byproducts = [{ name: 'build.log', sha256: hex('09') }]
const tool = (version: string, byte: string) => ({ digest: { sha256: hex(byte) }, version })

describe('what is written', () => {
  test('goal: a build of cargo, member by member', () => {
    const provenance = provenanceOf(cargo, byproducts)
    expect(JSON.stringify(provenance)).toBe(
      JSON.stringify({
        _type: 'https://in-toto.io/Statement/v1',
        predicate: {
          buildDefinition: {
            buildType: 'urn:strongroom:build:cargo:v1',
            externalParameters: {
              buildCommand: 'cargo build --locked',
              source: {
                digest: { gitCommit: 'aa'.repeat(20), gitTree: 'ac'.repeat(20) },
                uri: 'https://git.example/demo.git',
              },
            },
            internalParameters: {
              lockfileHash: { sha256: hex('04') },
              toolchain: { cargo: tool('c1', '01'), rustc: tool('r1', '02'), kettle: tool('g1', '03') },
            },
            resolvedDependencies: [
              { digest: { sha256: hex('ad') }, name: 'source-tree', uri: `gitoid:tree:sha256:${hex('ad')}` },
              {
                ...{ digest: { gitCommit: 'ab'.repeat(20) }, name: 'submodule sub/a' },
                uri: 'git+https://git.example/a.git',
              },
              {
                ...{ digest: { sha256: hex('05') }, name: 'serde' },
                uri: `pkg:cargo/serde@1.0.0?checksum=sha256:${hex('05')}`,
              },
            ],
          },
          runDetails: {
            builder: { id: 'https://builder.example' },
            byproducts: [{ digest: { sha256: hex('09') }, name: 'build.log' }],
            metadata: {
              ...{ invocationId: 'job', startedOn: '2026-01-02T03:04:05.000Z' },
              finishedOn: '2026-01-02T03:05:06.000Z',
            },
          },
        },
        predicateType: 'https://slsa.dev/provenance/v1',
        subject: [{ digest: { sha256: hex('07') }, name: 'demo' }],
      }),
    )
    const { bytes, digest } = provenanceBytes(provenance)
    expect(readProvenance(bytes)).toEqual(provenance)
    expect(toHex(digest)).toBe(new Bun.CryptoHasher('sha256').update(bytes).digest('hex'))
  })

  test('goal: a build of Nix has its evaluation and the inputs of its flake', () => {
    const { buildDefinition } = provenanceOf(nix, []).predicate
    expect(buildDefinition.buildType).toBe('urn:strongroom:build:nix:v1')
    expect(buildDefinition.externalParameters.source.digest).toEqual({ gitCommit: '', gitTree: 'ac'.repeat(20) })
    expect(JSON.stringify(buildDefinition.internalParameters)).toBe(
      JSON.stringify({
        evaluation: { derivationCount: 12, fetchCount: 3 },
        flakeInputs: [{ name: 'nixpkgs', narHash: `sha256-${'A'.repeat(43)}=` }],
        lockfileHash: { sha256: hex('04') },
        toolchain: { nix: tool('n1', '01'), kettle: tool('g1', '03') },
      }),
    )
    expect(buildDefinition.resolvedDependencies.slice(1)).toEqual([
      { digest: { sha256: hex('00') }, name: 'nixpkgs', uri: 'pkg:nix-flake/nixpkgs?uri=github:NixOS%2Fnixpkgs%2F1' },
      {
        annotations: { drvPath: 'x.drv', outputHashMode: 'flat', url: 'https://a.example/s' },
        digest: { sha512: '08'.repeat(64) },
        name: 'src',
        uri: `pkg:nix-fetch/src?hash=sha512:${'08'.repeat(64)}`,
      },
    ])
    const bad = { ...nix, packages: [{ kind: 'flake-input', name: 'n', uri: 'u', narSha256: 'xyz' }] }
    expect(() => provenanceOf(bad as unknown as BuildRecord, [])).toThrow('provenance.json: "xyz" is not hexadecimal')
    expect([buildTypeOf('go'), sourceTreeName]).toEqual(['urn:strongroom:build:go:v1', 'source-tree'])
  })
})

type Json = { [name: string]: unknown }
const plain = (record: BuildRecord) => JSON.parse(JSON.stringify(provenanceOf(record, byproducts))) as Json

/** The document with the member at this path changed; `undefined` takes it away. */
function changed(record: BuildRecord, path: string, value: unknown): Uint8Array {
  const document = plain(record)
  const names = path.split('.')
  const last = names.pop() ?? ''
  const at = names.reduce<Json>((inner, name) => inner[name] as Json, document)
  at[last] = value
  return prettyJson(document)
}

const definition = 'predicate.buildDefinition'
const details = 'predicate.runDetails'
const internal = `${definition}.internalParameters`
const dependency = `${definition}.resolvedDependencies`

describe('refused', () => {
  // Goal: no member may be left out.
  test.each([
    ...['_type', 'predicate', 'predicateType', 'subject', definition, details, `${definition}.buildType`],
    ...[`${definition}.externalParameters`, internal, dependency, `${definition}.externalParameters.buildCommand`],
    ...['source', 'source.uri', 'source.digest', 'source.digest.gitCommit', 'source.digest.gitTree'].map(
      name => `${definition}.externalParameters.${name}`,
    ),
    ...['lockfileHash', 'toolchain', 'evaluation.derivationCount', 'evaluation.fetchCount'].map(
      name => `${internal}.${name}`,
    ),
    ...['flakeInputs.0.name', 'flakeInputs.0.narHash'].map(name => `${internal}.${name}`),
    ...['nix.digest', 'nix.version', 'kettle.digest', 'kettle.version'].map(name => `${internal}.toolchain.${name}`),
    ...['1.digest', '1.name', '1.uri', '2.annotations.drvPath'].map(name => `${dependency}.${name}`),
    ...['builder', 'builder.id', 'byproducts', 'byproducts.0.digest', 'byproducts.0.name'].map(n => `${details}.${n}`),
    ...['metadata', 'metadata.invocationId', 'metadata.startedOn', 'metadata.finishedOn'].map(n => `${details}.${n}`),
    ...['subject.0.digest', 'subject.0.name'],
  ])('no %s', path => {
    const name = path.split('.').at(-1)
    const message = name === 'toolchain' ? 'no toolchain' : `no ${name}`
    expect(() => readProvenance(changed(nix, path, undefined))).toThrow(message)
  })

  // Goal: a member of another form is refused by its name.
  test.each<[string, unknown, string]>([
    ['_type', 1, 'provenance.json._type: not a text'],
    ['extra', 1, 'provenance.json: the unknown field "extra"'],
    [`${internal}.evaluation.fetchCount`, '3', 'fetchCount: no count'],
    [`${details}.metadata.finishedOn`, 5, 'finishedOn: not a text'],
    [`${dependency}.0.digest`, {}, 'a digest with more or fewer than one algorithm'],
    [`${dependency}.0.digest`, { '': 'x' }, 'a digest with more or fewer than one algorithm'],
    [`${dependency}.0.digest`, { sha256: 'x', sha512: 'x' }, 'a digest with more or fewer than one algorithm'],
    [`${dependency}.0.digest`, { sha1: 'x' }, 'the digest algorithm "sha1" is not known'],
    [`${dependency}.0.digest`, { sha512: 5 }, 'digest.sha512: not a text'],
    [`${dependency}.0.digest`, { gitCommit: 5 }, 'digest.gitCommit: not a text'],
    [`${dependency}.2.annotations.url`, 5, 'annotations.url: not a text'],
    [`${dependency}.2.annotations.outputHashMode`, 5, 'annotations.outputHashMode: not a text'],
    [`${dependency}.2.annotations.urls`, 5, 'annotations.urls: not a text'],
    [`${internal}.toolchain`, {}, 'neither nix, nor cargo and rustc, nor pnpm and node, nor one of our own'],
    [`${internal}.toolchain`, { nix: tool('n', '01') }, 'neither nix, nor cargo and rustc'],
  ])('%s of %j', (path, value, message) => {
    expect(() => readProvenance(changed(nix, path, value))).toThrow(message)
  })

  const named = (...names: string[]) => Object.fromEntries(names.map(name => [name, tool('v', '01')]))
  // Goal: a set of programs is whole, and in its order.
  test.each([
    [['nix', 'kettle']],
    [['cargo', 'rustc', 'kettle']],
    [['pnpm', 'node', 'kettle']],
    [['go', 'kettle']],
    [['npm', 'node', 'kettle']],
    [['make', 'kettle']],
  ])('the toolchain of %j is read, and none with less or more', names => {
    const readAs = (...given: string[]) => readProvenance(changed(cargo, `${internal}.toolchain`, named(...given)))
    expect(Object.keys(readAs(...names).predicate.buildDefinition.internalParameters.toolchain)).toEqual(names)
    for (const name of names) expect(() => readAs(...names.filter(other => other !== name))).toThrow('neither nix')
    expect(() => readAs(...names, 'zig')).toThrow('the unknown field "zig"')
    expect(() => readAs(...names.toReversed())).toThrow('not in the order or the spelling')
  })

  test('goal: one spelling, up to 16 MiB', () => {
    const { bytes } = provenanceBytes(provenanceOf(cargo, byproducts))
    const text = new TextDecoder().decode(bytes)
    expect(() => readProvenance(utf8(`${text} `))).toThrow('not in the order or the spelling in which they are written')
    expect(() => readProvenance(utf8(JSON.stringify(JSON.parse(text), null, 3)))).toThrow(
      'not in the order or the spelling',
    )
    const long = (size: number) => utf8(text.padEnd(size))
    expect(() => readProvenance(long(16_777_216))).toThrow('not in the order or the spelling')
    expect(() => readProvenance(long(16_777_217))).toThrow('16777217 bytes are more than 16777216')
    // A document that could not be read is not written.
    const document = provenanceOf(cargo, byproducts)
    expect(() => provenanceBytes({ ...document, _type: 1 as unknown as string })).toThrow('_type: not a text')
    const open = { ...document.predicate.runDetails, metadata: { invocationId: 'j', startedOn: 's', finishedOn: null } }
    const bare = { ...document, predicate: { ...document.predicate, runDetails: open } }
    expect(readProvenance(provenanceBytes(bare).bytes).predicate.runDetails.metadata.finishedOn).toBeNull()
  })
})
