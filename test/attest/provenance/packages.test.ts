// Goal: each kind of package has the URL, the digests and the members that ECMA-427, in-toto and CycloneDX give it, and
// only a package that the builder fetched has a registry's checksum.

import { expect, test } from 'bun:test'
import { describePackage, packageUrl } from '../../../src/attest/provenance/packages.ts'
import type { LockedPackage } from '../../../src/attest/provenance/record.ts'

const hex = 'ab'.repeat(32)
const hex512 = 'cd'.repeat(64)
const commit = 'ef'.repeat(20)
const tree = (path: string) => ({ kind: 'tree', path, sha256: hex }) as const
const sourceTree = { name: 'strongroom:source-tree', value: `gitoid:tree:sha256:${hex}` }
const property = (name: string, value: string) => ({ name: `strongroom:${name}`, value })

const crate = {
  ...{ kind: 'crate', name: 'serde', version: '1.0.0+a', origin: 'fetched', compiled: true, dependsOn: ['pkg:x'] },
  from: { kind: 'registry', sha256: hex, url: null },
} as const satisfies LockedPackage
const module = {
  ...{ kind: 'go-module', name: 'example.org/a b/v2', version: 'v2.1.0', origin: 'fetched', replaces: null },
  ...{ from: { kind: 'module', h1: hex }, dependsOn: [] },
} as const satisfies LockedPackage
const npm = {
  ...{ kind: 'npm-package', name: '@scope/name', version: '1.2.3', origin: 'fetched', ranScripts: false },
  ...{ from: { kind: 'file', sha512: hex512, bundledIn: null }, dependsOn: [] },
} as const satisfies LockedPackage
const fetch = {
  ...{ kind: 'nix-fetch', name: 'src.tar', drvPath: 'x-src.drv', outputHashMode: 'flat' },
  ...{ hash: { algorithm: 'sha256', hex }, url: 'https://a.example/src' },
} as const satisfies LockedPackage

// Goal: the URL, the digests and every member of one kind.
test.each<[string, LockedPackage, object]>([
  [
    'a crate of crates.io',
    crate,
    {
      url: `pkg:cargo/serde@1.0.0%2Ba?checksum=sha256:${hex}`,
      digest: { sha256: hex },
      slsaAnnotations: { origin: 'fetched', compiled: true, dependsOn: ['pkg:x'] },
      isExternal: true,
      dependsOn: ['pkg:x'],
      component: {
        version: '1.0.0+a',
        hashes: [{ alg: 'SHA-256', content: hex }],
        properties: [property('origin', 'fetched'), property('compiled', 'true')],
      },
    },
  ],
  [
    'a crate of git that only tests need',
    { ...crate, compiled: false, from: { kind: 'git', url: 'https://a.example/r', commit } },
    {
      url: `pkg:cargo/serde@1.0.0%2Ba?vcs_url=git%2Bhttps:%2F%2Fa.example%2Fr%40${commit}`,
      digest: { gitCommit: commit },
      slsaAnnotations: { origin: 'fetched', compiled: false, dependsOn: ['pkg:x'] },
      isExternal: true,
      dependsOn: ['pkg:x'],
      component: {
        version: '1.0.0+a',
        scope: 'excluded',
        externalReferences: [{ type: 'vcs', url: `git+https://a.example/r#${commit}` }],
        properties: [property('origin', 'fetched'), property('compiled', 'false')],
      },
    },
  ],
  [
    'a crate of the source',
    { ...crate, origin: 'path', dependsOn: [], from: tree('a/b') },
    {
      url: 'pkg:cargo/serde@1.0.0%2Ba?download_url=file:a%2Fb',
      digest: { sha256: hex },
      slsaAnnotations: { origin: 'path', compiled: true, dependsOn: [] },
      isExternal: false,
      dependsOn: [],
      component: {
        version: '1.0.0+a',
        properties: [property('origin', 'path'), property('compiled', 'true'), sourceTree],
      },
    },
  ],
  [
    'a module of Go',
    module,
    {
      url: `pkg:golang/example.org/a%20b/v2@v2.1.0?checksum=h1:${hex}`,
      digest: { sha256: hex },
      slsaDigest: { dirHash1: hex },
      slsaAnnotations: { origin: 'fetched', compiled: true, replaces: null, dependsOn: [] },
      isExternal: true,
      dependsOn: [],
      component: {
        version: 'v2.1.0',
        properties: [property('origin', 'fetched'), property('compiled', 'true'), property('go:dirHash1', hex)],
      },
    },
  ],
  [
    'a module of the source',
    { ...module, version: null, origin: 'path', replaces: 'example.org/c', from: tree('') },
    {
      url: 'pkg:golang/example.org/a%20b/v2?download_url=file:.',
      digest: { sha256: hex },
      slsaAnnotations: { origin: 'path', compiled: true, replaces: 'example.org/c', dependsOn: [] },
      isExternal: false,
      dependsOn: [],
      component: { properties: [property('origin', 'path'), property('compiled', 'true'), sourceTree] },
    },
  ],
  [
    'a package of npm',
    npm,
    {
      url: `pkg:npm/%40scope/name@1.2.3?checksum=sha512:${hex512}`,
      digest: { sha512: hex512 },
      slsaAnnotations: { origin: 'fetched', ranScripts: false, dependsOn: [] },
      isExternal: true,
      dependsOn: [],
      component: {
        version: '1.2.3',
        hashes: [{ alg: 'SHA-512', content: hex512 }],
        properties: [property('origin', 'fetched'), property('npm:ranScripts', 'false')],
      },
    },
  ],
  [
    'a package inside of another',
    { ...npm, ranScripts: true, from: { kind: 'file', sha512: hex512, bundledIn: 'npm@11.0.0' } },
    {
      url: 'pkg:npm/%40scope/name@1.2.3?bundled_in=npm%4011.0.0',
      digest: { sha512: hex512 },
      slsaAnnotations: { origin: 'fetched', ranScripts: true, dependsOn: [], bundledIn: 'npm@11.0.0' },
      isExternal: true,
      dependsOn: [],
      component: {
        version: '1.2.3',
        properties: [
          ...[property('origin', 'fetched'), property('npm:ranScripts', 'true')],
          property('npm:bundledIn', 'npm@11.0.0'),
        ],
      },
    },
  ],
  [
    'the project itself',
    { ...npm, version: null, origin: 'path', from: tree('.') },
    {
      url: 'pkg:npm/%40scope/name?download_url=file:.',
      digest: { sha256: hex },
      slsaAnnotations: { origin: 'path', ranScripts: false, dependsOn: [] },
      isExternal: false,
      dependsOn: [],
      component: { properties: [property('origin', 'path'), property('npm:ranScripts', 'false'), sourceTree] },
    },
  ],
  [
    'an input of a flake',
    { kind: 'flake-input', name: 'nixpkgs', uri: 'github:NixOS/nixpkgs/1', narSha256: hex },
    {
      url: 'pkg:nix-flake/nixpkgs?uri=github:NixOS%2Fnixpkgs%2F1',
      digest: { sha256: hex },
      slsaAnnotations: { reference: 'github:NixOS/nixpkgs/1' },
      isExternal: true,
      component: { hashes: [{ alg: 'SHA-256', content: hex }] },
    },
  ],
  [
    'a path of a cache',
    {
      kind: 'nix-path',
      name: 'bash',
      storePath: 'x-bash',
      narSha256: hex,
      signers: ['k:A', 'l:B'],
      contentAddress: null,
    },
    {
      url: `pkg:nix-path/x-bash?nar=sha256:${hex}`,
      digest: { sha256: hex },
      slsaAnnotations: { storePath: 'x-bash', signers: ['k:A', 'l:B'], contentAddress: null },
      isExternal: true,
      component: {
        hashes: [{ alg: 'SHA-256', content: hex }],
        properties: [property('nix:signer', 'k:A'), property('nix:signer', 'l:B')],
      },
    },
  ],
  [
    'a fetch of Nix',
    fetch,
    {
      url: `pkg:nix-fetch/src.tar?hash=sha256:${hex}`,
      digest: { sha256: hex },
      slsaAnnotations: { drvPath: 'x-src.drv', outputHashMode: 'flat', url: 'https://a.example/src' },
      familyAnnotations: { drvPath: 'x-src.drv', outputHashMode: 'flat', url: 'https://a.example/src' },
      isExternal: true,
      component: {
        hashes: [{ alg: 'SHA-256', content: hex }],
        externalReferences: [{ type: 'distribution', url: 'https://a.example/src' }],
      },
    },
  ],
  [
    'a fetch by SHA-512 without address',
    { ...fetch, outputHashMode: null, url: null, hash: { algorithm: 'sha512', hex: hex512 } },
    {
      url: `pkg:nix-fetch/src.tar?hash=sha512:${hex512}`,
      digest: { sha512: hex512 },
      slsaAnnotations: { drvPath: 'x-src.drv', outputHashMode: null, url: null },
      familyAnnotations: { drvPath: 'x-src.drv' },
      isExternal: true,
      component: { hashes: [{ alg: 'SHA-512', content: hex512 }] },
    },
  ],
])('%s', (_, pkg, expected) => {
  expect(describePackage(pkg) as object).toEqual(expected)
  expect(packageUrl(pkg)).toBe(describePackage(pkg).url)
})

test('goal: a registry of its own is in the URL, and every other character is percent-encoded', () => {
  const own = { ...crate, from: { kind: 'registry', sha256: hex, url: 'sparse+https://r.example/' } } as const
  expect(packageUrl(own)).toBe(
    `pkg:cargo/serde@1.0.0%2Ba?checksum=sha256:${hex}&repository_url=sparse%2Bhttps:%2F%2Fr.example%2F`,
  )
  const input = { kind: 'flake-input', name: "a!'()*~-_.:\u0001é", uri: 'x', narSha256: hex } as const
  expect(packageUrl(input)).toBe('pkg:nix-flake/a%21%27%28%29%2A~-_.:%01%C3%A9?uri=x')
})
