// Goal: a channel manifest gives exactly the files that the toolchain file needs, below the mirror that was named, and
// whatever does not fit is refused by name.

import { expect, test } from 'bun:test'
import {
  type ChannelNeeds,
  componentsOf,
  exactVersion,
  readDigestFile,
  uselessOf,
} from '../../../src/builder/cargo/channel.codec.ts'

const mirror = 'https://rust.example/a'
const own = 'x86_64-unknown-linux-gnu'
const hex = (digit: string) => digit.repeat(64)

const entry = (name: string, target: string, digit: string, url = `https://from.example/dist/d/${name}-${target}.xz`) =>
  `[pkg.${name}.target."${target}"]\navailable = true\nxz_url = "${url}"\nxz_hash = "${hex(digit)}"\n`
const head = 'manifest-version = "2"\n[pkg.rustc]\nversion = "1.96.0 (abc 2026-01-01)"\n'
const base = `${head}${entry('rustc', own, 'a')}${entry('cargo', own, 'b')}${entry('rust-std', own, 'c')}`
const more = `${entry('rust-std', 'wasm32-wasip1', 'd')}${entry('rust-src', '*', 'e', 'https://from.example/dist/d/src.xz')}${entry('llvm-tools-preview', own, 'f')}[renames.llvm-tools]\nto = "llvm-tools-preview"\n`

function read(text: string, needs: Partial<ChannelNeeds> = {}, target: string | null = null): string[] | string {
  try {
    const all = { components: [], targets: [], ...needs }
    const found = componentsOf(text, { mirror, version: '1.96.0', needs: all, target })
    return found.map(({ name, uri, sha256 }) => `${name} ${uri} ${sha256[0]}`)
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

const three = [
  `rustc ${mirror}/dist/d/rustc-${own}.xz a`,
  `cargo ${mirror}/dist/d/cargo-${own}.xz b`,
  `rust-std ${mirror}/dist/d/rust-std-${own}.xz c`,
]

// Goal: a fetch takes the files of the pinned version and of the named components and targets, each by its hash.
test('the files of a channel', () => {
  expect(read(base)).toEqual(three)
  const needs = { components: ['rustfmt', 'rust-src', 'llvm-tools', 'rustc'], targets: ['wasm32-wasip1', own] }
  expect(read(base + more, needs)).toEqual([
    ...three,
    `rust-std wasm32-wasip1 ${mirror}/dist/d/rust-std-wasm32-wasip1.xz d`,
    `rust-src ${mirror}/dist/d/src.xz e`,
    `llvm-tools-preview ${mirror}/dist/d/llvm-tools-preview-${own}.xz f`,
  ])
  expect(uselessOf({ components: ['rustfmt', 'clippy-preview', 'rust-src'], targets: [] })).toEqual([
    'rustfmt',
    'clippy-preview',
  ])
  expect(read(base + more, {}, 'wasm32-wasip1')).toHaveLength(4)
  // A target that has no standard library is the request's to correct, where those that have one are listed.
  expect(read(base, {}, 'wasm32-wasip1')).toEqual(three)
})

// Goal: a manifest that names no file, no hash, or another address than the mirror's is refused with its place.
test('what is refused', () => {
  const where = 'rust_mirror: https://rust.example/a/dist/channel-rust-1.96.0.toml: '
  const cases: [text: string, why: string][] = [
    ['manifest-version = "1"\n', `${where}not a channel manifest of version 2`],
    [base.replace('1.96.0 (', '1.97.0 ('), `${where}its rustc is "1.97.0 (abc 2026-01-01)", not 1.96.0`],
    [base.replace('1.96.0 (', '1.96.01 ('), `${where}its rustc is "1.96.01 (abc 2026-01-01)", not 1.96.0`],
    [`${head}${entry('rustc', own, 'a')}`, `${where}no cargo for ${own}`],
    [base.replace('available = true', 'available = false'), `${where}no rustc for ${own}`],
    [base.replace(hex('a'), 'AA'), `${where}rustc: xz_url or xz_hash is missing or invalid`],
  ]
  for (const [text, why] of cases) expect(read(text)).toBe(why)
  for (const url of [
    'http://a/dist/x',
    'https://a/other/x',
    'https://a/dist/../x',
    'https://a/dist/x?y',
    'file:///dist/x',
  ])
    expect(read(`${head}${entry('rustc', own, 'a', url)}`)).toBe(
      `${where}rustc: ${JSON.stringify(url)} is no https address below /dist`,
    )
  expect(read(base, { components: ['rust-src'] })).toBe(
    'rust-toolchain.toml: components: Rust 1.96.0 has no "rust-src" for this builder; remove it',
  )
  expect(read('[[[')).toMatch(/^rust_mirror: .*channel-rust-1.96.0.toml: /)
  for (const text of ['', 'AB', `${hex('a')}x`, ` ${hex('a')}`])
    expect(() => readDigestFile(text, 'https://a')).toThrow('rust_mirror: https://a: not a SHA-256 in hexadecimal')
  expect(readDigestFile(`${hex('a')}  channel.toml\n`, 'https://a')).toBe(hex('a'))
})

// Goal: only an exact version is fetched; a channel that moves is not.
test('channels that are a version', () => {
  expect(exactVersion('1.96.0')).toBe('1.96.0')
  expect(exactVersion(`1.96.0-${own}`)).toBe('1.96.0')
  for (const channel of ['1.96', 'stable', 'nightly-2026-01-01', '1.96.0-beta.1', '1.96.0-aarch64-unknown-linux-gnu'])
    expect(exactVersion(channel)).toBeNull()
})
