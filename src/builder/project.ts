// Which project of a source is built, and with what. Effects: reads a source that nobody writes to meanwhile.

import * as fs from 'node:fs'
import { parse } from 'smol-toml'
import { sha256 } from '../attest/hash.ts'
import { isComponent } from '../attest/provenance/paths.ts'
import { toHex } from '../base/bytes.ts'
import type { Toolchain } from '../contract/http/build.ts'
import { readName, showName } from '../linux/source/tree.plan.ts'
import { lockBytesMax } from './cargo/lock.codec.ts'
import { BuildFailure, refuseUnless } from './failure.ts'

export type Project = {
  /** Relative to the source; '' is its root. */
  readonly dir: string
  readonly toolchain: Toolchain
  /** A plain name, for the archive's top-level directory. */
  readonly name: string
  readonly version: string | null
  readonly lock: { readonly name: 'Cargo.lock' | 'flake.lock'; readonly text: string; readonly sha256: string }
}

type ProjectWish = {
  readonly projectDir: string | null
  readonly toolchain: Toolchain | null
  /** For a project without a plain name. */
  readonly sourceName: string
}

const FILES = {
  cargo: { manifest: 'Cargo.toml', lock: 'Cargo.lock', make: 'cargo generate-lockfile' },
  nix: { manifest: 'flake.nix', lock: 'flake.lock', make: 'nix flake lock' },
} as const satisfies Record<Toolchain, { manifest: string; lock: string; make: string }>

/** Failures: `source_invalid` (directory), `toolchain_undetected`, `lock_missing`. */
export async function findProject(root: string, wish: ProjectWish): Promise<Project> {
  const dir = await projectDir(root, wish.projectDir)
  const at = dir === '' ? root : `${root}/${dir}`
  const has = (name: string) => fs.lstatSync(`${at}/${name}`, { throwIfNoEntry: false })?.isFile() === true
  const toolchain = toolchainOf(wish.toolchain, has)
  const { manifest, lock, make } = FILES[toolchain]
  const locked = lockIn(root, dir, toolchain === 'cargo' ? lock : null) ?? at
  refuseUnless(
    fs.lstatSync(`${locked}/${lock}`, { throwIfNoEntry: false })?.isFile() === true,
    'lock_missing',
    () =>
      `source: ${manifest} without ${lock}${dir === '' ? '' : ` in ${showName(dir)}`}; run \`${make}\` and send ${lock} with the source`,
  )
  const text = await readBounded(`${locked}/${lock}`, lock)
  const described = toolchain === 'cargo' ? describedBy(await readBounded(`${at}/${manifest}`, manifest)) : null
  const fallback = isComponent(wish.sourceName) ? wish.sourceName : 'source'
  return {
    dir,
    toolchain,
    name: described !== null && isComponent(described.name) ? described.name : fallback,
    version: described?.version ?? null,
    lock: { name: lock, text, sha256: toHex(sha256(new TextEncoder().encode(text))) },
  }
}

async function projectDir(root: string, wished: string | null): Promise<string> {
  if (wished === null) return ''
  const name = readName(new TextEncoder().encode(wished))
  if (name.kind === 'root') return ''
  refuseUnless(name.kind === 'path', 'source_invalid', () => 'project_dir: not a relative path inside of the source')
  const dir = name.components.join('/')
  const [realRoot, real] = await Promise.all([
    fs.promises.realpath(root),
    fs.promises.realpath(`${root}/${dir}`).catch(() => null),
  ])
  refuseUnless(
    real !== null && `${real}/`.startsWith(`${realRoot}/`) && fs.statSync(real).isDirectory(),
    'source_invalid',
    () => `project_dir: ${showName(dir)} is no directory of the source`,
  )
  return real.slice(realRoot.length + 1)
}

function toolchainOf(wished: Toolchain | null, has: (name: string) => boolean): Toolchain {
  if (wished !== null) {
    const { manifest } = FILES[wished]
    refuseUnless(
      has(manifest),
      'toolchain_undetected',
      () => `toolchain ${wished}: there is no ${manifest} in the project; see project_dir`,
    )
    return wished
  }
  // Nix before Cargo if both have a lock; a manifest without its lock does not hide one that has it.
  const found = (['nix', 'cargo'] as const).filter(kind => has(FILES[kind].manifest))
  const first = found.find(found => has(FILES[found].lock)) ?? found[0]
  refuseUnless(
    first !== undefined,
    'toolchain_undetected',
    () => 'source: neither Cargo.toml nor flake.nix in the project; see project_dir',
  )
  return first
}

/** The lock of a workspace's member is in the workspace's root, above it. */
function lockIn(root: string, dir: string, lock: string | null): string | null {
  if (lock === null) return null
  const components = dir === '' ? [] : dir.split('/')
  for (let depth = components.length; depth >= 0; depth -= 1) {
    const at = [root, ...components.slice(0, depth)].join('/')
    if (fs.lstatSync(`${at}/${lock}`, { throwIfNoEntry: false })?.isFile() === true) return at
  }
  return null
}

async function readBounded(path: string, what: string): Promise<string> {
  const { O_RDONLY, O_NOFOLLOW } = fs.constants
  const file = await fs.promises.open(path, O_RDONLY | O_NOFOLLOW)
  try {
    const { size } = await file.stat()
    refuseUnless(size <= lockBytesMax, 'source_invalid', () => `${what}: more than ${lockBytesMax} bytes`)
    const bytes = await file.readFile()
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    } catch {
      throw new BuildFailure('source_invalid', `${what}: not UTF-8`)
    }
  } finally {
    await file.close()
  }
}

/** Parsed for names alone: cargo itself reports errors in Cargo.toml. */
function describedBy(manifest: string): { name: string; version: string | null } | null {
  try {
    const { package: described } = parse(manifest) as { package?: { name?: unknown; version?: unknown } }
    if (typeof described?.name !== 'string') return null
    return { name: described.name, version: typeof described.version === 'string' ? described.version : null }
  } catch {
    return null
  }
}
