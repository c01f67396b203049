// A stand-in for a mirror of Rust's distribution (forge.rust-lang.org/infra/channel-layout.html). Its compiler is a
// script that runs this machine's own under another version, and its cargo is this machine's own; everything else is as
// in the distribution. Effects:
// GNU tar, files below /tmp.

import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { dirname, join } from 'node:path'
import { type SourceFiles, writeTree } from '../../../scripts/rigs/build/sources.ts'
import { findRust } from '../../../scripts/rigs/build/vm.ts'
import { succeed } from '../../../scripts/rigs/guest/root.ts'
import { cratesHost } from './fetch-servers.ts'

export const rustMirror = `https://${cratesHost}/rust`
/** A version that no machine of these tests has. */
export const standInVersion = '1.94.7'
const target = 'x86_64-unknown-linux-gnu'

export const sha256Hex = (bytes: string | Uint8Array) => createHash('sha256').update(bytes).digest('hex')

/** Runs this machine's compiler, with a setting by which a program can tell. */
export const standInCompiler = (version = standInVersion) =>
  `#!/bin/sh\n[ "$*" = --version ] && echo "rustc ${version} (stand-in 2026-01-01)" && exit 0\nexec /opt/rust/bin/rustc --cfg stand_in "$@"\n`

/** Files of a component by its package, below `PACKAGE-VERSION-TARGET/COMPONENT/`. */
type Components = Readonly<Record<string, Component>>
type Component = {
  readonly directory: string
  readonly files: SourceFiles
  /** This machine's own program, by its path in the toolchain. */
  readonly own?: string
}

export const standInComponents = (compiler = standInCompiler()): Components => ({
  rustc: { directory: 'rustc', files: { 'bin/rustc': compiler, 'manifest.in': 'file:bin/rustc\n' } },
  cargo: { directory: 'cargo', files: {}, own: 'bin/cargo' },
  'rust-std': { directory: `rust-std-${target}`, files: { [`lib/rustlib/${target}/lib/none.rlib`]: 'none' } },
})

export type ServedRust = {
  readonly manifest: string
  /** SHA-256 of each component's file. */
  readonly digests: Readonly<Record<string, string>>
}

export const componentPath = (name: string) => `/rust/dist/2026-01-01/${name}-${standInVersion}-${target}.tar.xz`
export const manifestPath = `/rust/dist/channel-rust-${standInVersion}.toml`

/** Puts the channel where a mirror below `/rust` of its host has it. `link`: a component's file that becomes a link. */
export function serveRust(
  into: Map<string, Uint8Array>,
  { components = standInComponents(), link }: { components?: Components; link?: { path: string; to: string } } = {},
): ServedRust {
  const digests: Record<string, string> = {}
  let manifest = `manifest-version = "2"\ndate = "2026-01-01"\n[renames.rust-fmt]\nto = "rustfmt-preview"\n`
  for (const [name, component] of Object.entries(components)) {
    const top = `${name}-${standInVersion}-${target}`
    if (component.own !== undefined) packedOwn ??= packed(top, component, undefined)
    const bytes = component.own === undefined ? packed(top, component, link) : (packedOwn ?? new Uint8Array(0))
    digests[name] = sha256Hex(bytes)
    into.set(componentPath(name), bytes)
    const uri = `https://rust.example${componentPath(name).slice('/rust'.length)}`
    manifest += `[pkg.${name}]\nversion = "${standInVersion} (stand-in 2026-01-01)"\n[pkg.${name}.target.${target}]\navailable = true\nurl = "none"\nhash = "none"\nxz_url = "${uri}"\nxz_hash = "${digests[name]}"\n`
  }
  into.set(manifestPath, Buffer.from(manifest))
  into.set(`${manifestPath}.sha256`, Buffer.from(`${sha256Hex(manifest)}  channel-rust-${standInVersion}.toml\n`))
  return { manifest, digests }
}

/** Packed once, for it is large. */
let packedOwn: Uint8Array | null = null

function packed(
  top: string,
  { directory, files, own }: Component,
  link: { path: string; to: string } | undefined,
): Uint8Array {
  const dir = fs.mkdtempSync('/tmp/strongroom-rust-')
  try {
    writeTree(join(dir, top), { components: `${directory}\n`, 'install.sh': '#!/bin/sh\n' })
    writeTree(join(dir, top, directory), files)
    if (own !== undefined) {
      fs.mkdirSync(join(dir, top, directory, dirname(own)), { recursive: true })
      fs.copyFileSync(join(findRust() ?? '', own), join(dir, top, directory, own))
    }
    if (link !== undefined && files[link.path] !== undefined) {
      fs.rmSync(join(dir, top, directory, link.path))
      fs.symlinkSync(link.to, join(dir, top, directory, link.path))
    }
    succeed([
      'tar',
      '--create',
      '--use-compress-program',
      'xz -0',
      '--file',
      join(dir, 'out.tar.xz'),
      '--directory',
      dir,
      top,
    ])
    return fs.readFileSync(join(dir, 'out.tar.xz'))
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}
