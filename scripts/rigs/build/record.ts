// What a build VM knows when its build is done, for tests: a Cargo build and a Nix build.

import { sha256 } from '../../../src/attest/hash.ts'
import type { BuildRecord, Tool } from '../../../src/attest/provenance/record.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
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
    fetchCaSha256: null,
    cratesMirror: null,
  },
  source: {
    uri: 'https://git.example/demo.git',
    commit: 'a'.repeat(40),
    treeSha1: 'b'.repeat(40),
    treeSha256: 'c'.repeat(64),
  },
  project: 'demo',
  projectVersion: '0.1.0',
  tools: { toolchain: 'cargo', cargo: tool('cargo 1.96.0'), rustc: tool('rustc 1.96.0') },
  guest: tool('0.1.0'),
  command: ['cargo', 'build', '--release', '--locked'],
  environment: { TZ: 'UTC', SOURCE_DATE_EPOCH: '0' },
  order: {},
  networkPolicy: 'none',
  lockFile: { name: 'Cargo.lock', sha256: hexOf('lock') },
  packages: [
    { kind: 'crate', name: 'serde', version: '1.0.228', from: { kind: 'registry', sha256: hexOf('serde') } },
    { kind: 'crate', name: 'libz-sys', version: '1.1.3+zlib-1.3', from: { kind: 'registry', sha256: hexOf('z') } },
    {
      kind: 'crate',
      name: 'sev',
      version: '7.1.0',
      from: { kind: 'git', url: 'https://git.example/sev?branch=main', commit: 'd'.repeat(40) },
    },
  ],
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
    fetchCaSha256: null,
    cratesMirror: null,
    archive: { name: 'demo.tar.gz', sha256: hexOf('archive'), sizeBytes: 1234 },
  },
  source: { uri: '', commit: null, treeSha1: 'b'.repeat(40), treeSha256: 'c'.repeat(64) },
  projectVersion: null,
  tools: { toolchain: 'nix', nix: tool('nix (Nix) 2.26.3') },
  command: ['nix', 'build'],
  lockFile: { name: 'flake.lock', sha256: hexOf('flake') },
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
  const { nonce, projectDir, toolchain, reproduce, archive, repoUrl, repoRef, fetchCaSha256, cratesMirror } = request
  return {
    jobId,
    nonce,
    projectDir,
    toolchain,
    reproduce,
    builderId,
    imageSummary,
    limits,
    source: archive === null ? { kind: 'git', url: repoUrl ?? '', ref: repoRef } : { kind: 'archive', ...archive },
    accepts: { caSha256: fetchCaSha256, cratesMirror },
    fetch: record.networkPolicy === 'none' ? null : { proxy: 'http://10.0.0.1:8444', cratesMirror, ca: null },
  }
}

/** What the client of this record asked for. */
export function requestOf({ request, source }: BuildRecord): AskedRequest {
  const { projectDir, toolchain, reproduce, archive, repoUrl, repoRef, fetchCaSha256, cratesMirror } = request
  return {
    projectDir,
    toolchain,
    reproduce,
    fetchCaSha256,
    cratesMirror,
    sourceName: archive?.name ?? null,
    source:
      source.commit === null
        ? { kind: 'tree', sha1: source.treeSha1, sha256: source.treeSha256 }
        : { kind: 'commit', commit: source.commit, url: repoUrl ?? '', ref: repoRef },
  }
}
