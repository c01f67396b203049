// Record of a finished build as its VM has it, for tests: a Cargo build and a Nix build.

import { sha256 } from '../../../src/attest/hash.ts'
import type { BuildRecord, CratePlace, PackageOrigin, Tool } from '../../../src/attest/provenance/record.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import { WAIVERS } from '../../../src/contract/http/build.ts'
import type { BuildLimits, BuildOrder } from '../../../src/contract/vm/build-order.ts'
import type { AskedRequest } from '../../../src/verifier/build/question.ts'
import { measurement } from '../gateway/receipt-samples.ts'

export const hexOf = (text: string) => toHex(sha256(utf8(text)))
const tool = (version: string): Tool => ({ version, sha256: hexOf(version) })

export const buildNonceHex = '000102030405060708090a0b0c0d0e0f'

export const ARTIFACTS: Readonly<Record<string, Uint8Array>> = {
  'demo-server': utf8('the server'),
  'libdemo.so': utf8('the library'),
}

const serdeUrl = `pkg:cargo/serde@1.0.228?checksum=sha256:${hexOf('serde')}`

function crate(name: string, version: string, origin: PackageOrigin, from: CratePlace) {
  return { kind: 'crate', name, version, origin, compiled: true, from, dependsOn: [] as string[] } as const
}

export const cargoRecord: BuildRecord = {
  jobId: '4f9d2c1e-0000-4000-8000-000000000001',
  builderId: 'https://builds.example/strongroom',
  request: {
    nonce: buildNonceHex,
    repoUrl: 'https://git.example/demo.git',
    repoRef: 'main',
    archive: null,
    projectDir: null,
    toolchain: null,
    reproduce: true,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
  },
  source: {
    uri: 'https://git.example/demo.git',
    commit: 'a'.repeat(40),
    submodules: [],
    treeSha1: 'b'.repeat(40),
    treeSha256: 'c'.repeat(64),
    lfsPointers: { count: 0, first: [] },
  },
  project: 'demo',
  projectVersion: '0.1.0',
  tools: { toolchain: 'cargo', programs: { cargo: tool('cargo 1.96.0'), rustc: tool('rustc 1.96.0') } },
  guest: tool('0.1.0'),
  command: ['cargo', 'build', '--release', '--locked'],
  environment: { TZ: 'UTC', SOURCE_DATE_EPOCH: '0' },
  order: {},
  networkPolicy: 'none',
  lockFile: { name: 'Cargo.lock', path: 'Cargo.lock', sha256: hexOf('lock') },
  packages: [
    crate('serde', '1.0.228', 'fetched', { kind: 'registry', sha256: hexOf('serde'), url: null }),
    crate('libz-sys', '1.1.3+zlib-1.3', 'fetched', {
      kind: 'registry',
      sha256: hexOf('z'),
      url: 'sparse+https://reg.example/',
    }),
    crate('sev', '7.1.0', 'fetched', { kind: 'git', url: 'https://git.example/sev', commit: 'd'.repeat(40) }),
    crate('answer', '0.1.0', 'vendored', { kind: 'tree', path: 'vendor/an answer', sha256: hexOf('answer') }),
    { ...crate('demo', '0.1.0', 'path', { kind: 'tree', path: '', sha256: 'c'.repeat(64) }), dependsOn: [serdeUrl] },
  ],
  members: ['pkg:cargo/demo@0.1.0?download_url=file:.'],
  pinned: null,
  rust: null,
  evaluation: null,
  imageSummary: 'f5'.repeat(32),
  image: { name: 'builder', rootHash: 'e'.repeat(64), measurement: toHex(measurement) },
  startedAtMs: Date.UTC(2026, 10, 20, 11, 59),
  finishedAtMs: Date.UTC(2026, 10, 20, 11, 59, 30),
  artifacts: Object.entries(ARTIFACTS).map(([name, bytes]) => ({
    name,
    sha256: toHex(sha256(bytes)),
    sizeBytes: bytes.length,
    reproducible: true,
  })),
  log: utf8('Compiling demo v0.1.0\nFinished\n'),
}

export const nixRecord: BuildRecord = {
  ...cargoRecord,
  request: {
    nonce: '0001',
    repoUrl: null,
    repoRef: null,
    projectDir: 'sub',
    toolchain: 'nix',
    reproduce: false,
    options: null,
    waivers: [],
    fetchCaSha256: null,
    cratesMirror: null,
    archive: { name: 'demo.tar.gz', sha256: hexOf('archive'), sizeBytes: 1234 },
  },
  source: { ...cargoRecord.source, uri: '', commit: null },
  projectVersion: null,
  tools: { toolchain: 'nix', programs: { nix: tool('nix (Nix) 2.26.3') } },
  command: ['nix', 'build'],
  lockFile: { name: 'flake.lock', path: 'sub/flake.lock', sha256: hexOf('flake') },
  members: [],
  packages: [
    { kind: 'flake-input', name: 'nixpkgs', uri: `github:nixos/nixpkgs/${'f'.repeat(40)}`, narSha256: hexOf('nar') },
    {
      kind: 'nix-fetch',
      name: 'acl-2.3.2.tar.gz',
      drvPath: 'hash-acl-2.3.2.tar.gz.drv',
      outputHashMode: 'flat',
      hash: { algorithm: 'sha256', hex: hexOf('acl') },
      url: 'https://src.example/acl.tar.gz',
    },
    {
      kind: 'nix-fetch',
      name: 'b',
      drvPath: 'hash-b.drv',
      outputHashMode: null,
      hash: { algorithm: 'sha512', hex: 'ab'.repeat(64) },
      url: null,
    },
  ],
  evaluation: { derivationCount: 4, fetchCount: 2 },
  artifacts: cargoRecord.artifacts.map(artifact => ({ ...artifact, reproducible: null })),
}

const limits: BuildLimits = {
  sourceBytes: 1024,
  sourceEntries: 10,
  fetchSeconds: 60,
  fetchBytes: 1024,
  buildSeconds: 3600,
  memoryBytes: 1024,
  pids: 10,
  diskBytes: 1024,
  logBytes: 1024,
  artifactBytes: 1024,
  artifactCount: 2,
}

/** The order that a host gave for this record. */
export function orderOf(record: Omit<BuildRecord, 'order'>): BuildOrder {
  const { request, jobId, builderId, imageSummary } = record
  const { nonce, projectDir, toolchain, reproduce, options, archive, repoUrl, repoRef, fetchCaSha256, cratesMirror } =
    request
  const waivers = WAIVERS.filter(name => request.waivers.includes(name))
  return {
    jobId,
    nonce,
    projectDir,
    toolchain: toolchain as BuildOrder['toolchain'],
    reproduce,
    options: options as BuildOrder['options'],
    waivers,
    builderId,
    imageSummary,
    limits,
    source: archive === null ? { kind: 'git', url: repoUrl ?? '', ref: repoRef } : { kind: 'archive', ...archive },
    accepts: { caSha256: fetchCaSha256, cratesMirror },
    fetch: record.networkPolicy === 'none' ? null : { proxy: 'http://10.0.0.1:8444', cratesMirror, ca: null },
  }
}

/** The client's request for this record. */
export function requestOf({ request, source }: BuildRecord): AskedRequest {
  const { projectDir, toolchain, reproduce, options, archive, repoUrl, repoRef, fetchCaSha256, cratesMirror } = request
  const { waivers } = request
  return {
    projectDir,
    toolchain: toolchain as BuildOrder['toolchain'],
    reproduce,
    options: options as BuildOrder['options'],
    fetchCaSha256,
    cratesMirror,
    lfsPointers: waivers.includes('allow_lfs_pointers') ? 'any' : 'none',
    compiler: waivers.includes('any_toolchain') ? 'any' : 'pinned',
    sourceName: archive?.name ?? null,
    source:
      source.commit === null
        ? { kind: 'tree', sha1: source.treeSha1, sha256: source.treeSha256 }
        : { kind: 'commit', commit: source.commit, url: repoUrl ?? '', ref: repoRef },
  }
}

const sha512 = 'ab'.repeat(64)
const ownUrl = 'pkg:npm/demo@0.1.0?download_url=file:.'

/** A build with pnpm, whose provenance.json has a form that the family has, too. */
export const pnpmRecord: BuildRecord = {
  ...cargoRecord,
  tools: { toolchain: 'pnpm', programs: { pnpm: tool('10.34.8'), node: tool('v20.19.2') } },
  command: ['pnpm', 'run', 'build'],
  lockFile: { name: 'pnpm-lock.yaml', path: 'pnpm-lock.yaml', sha256: hexOf('pnpm') },
  members: [ownUrl],
  packages: [
    {
      ...{ kind: 'npm-package', name: 'demo', version: '0.1.0', origin: 'path', ranScripts: false },
      from: { kind: 'tree', path: '', sha256: 'c'.repeat(64) },
      dependsOn: [`pkg:npm/%40types/node@20.11.5?checksum=sha512:${sha512}`],
    },
    {
      ...{ kind: 'npm-package', name: '@types/node', version: '20.11.5', origin: 'fetched', ranScripts: true },
      from: { kind: 'file', sha512, bundledIn: null },
      dependsOn: [],
    },
    {
      ...{ kind: 'npm-package', name: 'inner', version: '1.0.0', origin: 'fetched', ranScripts: false },
      from: { kind: 'file', sha512, bundledIn: '@types/node@20.11.5' },
      dependsOn: [],
    },
  ],
}
