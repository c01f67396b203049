// Goal: the toolchain of a source is the one that can build it, and the answer says how each was judged. Real files.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { flakeProject, plainProject, type SourceFiles, writeTree } from '../../scripts/rigs/build/sources.ts'
import { BuildFailure } from '../../src/builder/failure.ts'
import { findProject } from '../../src/builder/project.ts'
import { TOOLCHAINS } from '../../src/builder/toolchains.ts'

const noWish = { projectDir: null, toolchain: null, options: null, fetch: null, sourceName: 'source' }
type Wish = Parameters<typeof findProject>[1]

async function found(files: SourceFiles, wish: Partial<Wish> = {}): Promise<string> {
  const root = fs.mkdtempSync(join(tmpdir(), 'strongroom-project-'))
  try {
    writeTree(root, files)
    const { toolchain, judgement } = await findProject(root, { ...noWish, ...wish }, TOOLCHAINS)
    return judgement === null ? toolchain : `${toolchain}: ${judgement}`
  } catch (error) {
    if (error instanceof BuildFailure) return `${error.errorType}: ${error.message}`
    throw error
  } finally {
    fs.rmSync(root, { recursive: true })
  }
}

const narHash = `sha256-${'A'.repeat(43)}=`
const nixpkgs = { type: 'github', owner: 'NixOS', repo: 'nixpkgs', rev: 'ab'.repeat(20), narHash }
const lockOf = (locked: object, version = 7) =>
  JSON.stringify({ version, root: 'root', nodes: { nixpkgs: { locked }, root: { inputs: { nixpkgs: 'nixpkgs' } } } })
const both: SourceFiles = { ...plainProject, ...flakeProject }
const withInput: SourceFiles = { ...both, 'flake.lock': lockOf(nixpkgs) }

test('goal: one toolchain with its lock is taken without a judgement', async () => {
  expect(await found(plainProject)).toBe('cargo')
  expect(await found(flakeProject)).toBe('nix')
  expect(await found({ ...plainProject, 'flake.nix': '{}' })).toBe('cargo')
  expect(await found({ ...flakeProject, 'Cargo.toml': '' })).toBe('nix')
  expect(await found(both, { toolchain: 'cargo' })).toBe('cargo')
  expect(await found(withInput, { toolchain: 'nix' })).toBe('nix')
})

test('goal: a flake without inputs from elsewhere goes before Cargo', async () => {
  expect(await found(both)).toBe(
    'nix: flake.nix needs no unavailable input, and takes precedence; Cargo.toml with Cargo.lock can be built, too',
  )
})

test('goal: a flake whose inputs are not available gives way to Cargo, and the answer names the cause', async () => {
  const cargo = (problem: string) =>
    `cargo: flake.nix cannot be built: flake.lock: ${problem}; Cargo.toml with Cargo.lock can be built`
  expect(await found(withInput)).toBe(cargo('1 inputs from elsewhere, and this service fetches nothing'))
  const fetches = { fetch: {} }
  expect(await found(withInput, fetches)).toBe(
    cargo('1 inputs from elsewhere, and the request names no nix_caches for what they need'),
  )
  const caches = [{ url: 'https://cache.example', publicKey: `c-1:${'A'.repeat(43)}=` }]
  expect(await found(withInput, { ...fetches, options: { nix: { output: null, caches } } })).toStartWith('nix: ')
  const absolute = { ...both, 'flake.lock': lockOf({ type: 'path', path: '/opt/dep', narHash }) }
  expect(await found(absolute)).toStartWith(
    'cargo: flake.nix cannot be built: flake.lock: input "nixpkgs" is the path "/opt/dep"',
  )
  expect(await found({ ...both, 'flake.lock': lockOf(nixpkgs, 4) })).toStartWith('cargo: flake.nix cannot be built')
})

test('goal: an output of a flake is one of Nix, even beside Cargo and without an input that it needs', async () => {
  expect(await found(withInput, { options: { nix: { output: 'tool', caches: [] } } })).toBe('nix')
  expect(await found(plainProject, { options: { nix: { output: 'tool', caches: [] } } })).toBe(
    'toolchain_undetected: toolchain nix: there is no flake.nix in the project; no directory near the root of the source has one',
  )
})
