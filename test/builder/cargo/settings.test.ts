// Goal: cargo runs without an empty wrapper, and so with rustc's recorded answers, only where the source has no file
// from which cargo would read settings, in whatever form.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { dirname, join } from 'node:path'
import { cargoBuildEnvironment, cargoResolveEnvironment } from '../../../src/builder/cargo/cargo.plan.ts'
import { hasCargoSettings } from '../../../src/builder/cargo/settings.ts'

let root = ''
beforeAll(() => {
  root = fs.mkdtempSync('/tmp/strongroom-settings-')
})
afterAll(() => fs.rmSync(root, { recursive: true }))

/** A source with these entries: text, or a link to somewhere. */
function source(entries: Readonly<Record<string, string | { readonly to: string }>>): string {
  const dir = fs.mkdtempSync(`${root}/`)
  for (const [path, entry] of Object.entries(entries)) {
    fs.mkdirSync(dirname(join(dir, path)), { recursive: true })
    if (typeof entry === 'string') fs.writeFileSync(join(dir, path), entry)
    else fs.symlinkSync(entry.to, join(dir, path))
  }
  return dir
}

// Goal: a file at the project or above it in the source counts, and so does a link on the way there, which may lead
// elsewhere in the sandbox; no other file does.
test.each([
  ['no settings', { 'a/Cargo.toml': '' }, 'a', false],
  ['settings of the source', { '.cargo/config.toml': '', 'a/b/Cargo.toml': '' }, 'a/b', true],
  ['settings between', { 'a/.cargo/config.toml': '', 'a/b/Cargo.toml': '' }, 'a/b', true],
  ['settings of the project', { 'a/.cargo/config': '' }, 'a', true],
  ['settings of another directory', { 'b/.cargo/config.toml': '', 'a/Cargo.toml': '' }, 'a', false],
  ['a directory of settings without a file', { '.cargo/audit.toml': '' }, '', false],
  ['a link', { '.cargo/config.toml': { to: '../elsewhere' }, elsewhere: '' }, '', true],
  ['a link to nothing', { '.cargo/config.toml': { to: 'nothing' } }, '', true],
  ['a directory that is a link', { '.cargo': { to: 'own' }, 'own/config.toml': '' }, '', true],
  ['links that lead to one another', { '.cargo': { to: '.cargo' } }, '', true],
  ['a file in the place of the directory', { '.cargo': '' }, '', true],
  ['a link to a path of the sandbox', { '.cargo': { to: '/source/own' }, 'own/config.toml': '' }, '', true],
  ['a link over the name that the source has in the sandbox', { '.cargo': { to: '../source/own' } }, '', true],
  ['a project behind a link of the sandbox', { 'b/Cargo.toml': '', a: { to: '/source/b' } }, 'a', true],
  ['a project behind a link that leaves the source', { a: { to: '/usr' } }, 'a', true],
  ['a project behind a link', { 'b/.cargo/config.toml': '', 'b/c/Cargo.toml': '', a: { to: 'b/c' } }, 'a', true],
] as const)('%s', (_, entries, dir, expected) => {
  expect(hasCargoSettings(source(entries), dir)).toBe(expected)
})

// Goal: settings choose no wrapper, and without settings none is named.
test('goal: settings choose no wrapper, and without settings there is none', () => {
  for (const environment of [cargoBuildEnvironment, cargoResolveEnvironment]) {
    const wrappers = (hasSettings: boolean) => {
      const { RUSTC, RUSTC_WRAPPER, RUSTC_WORKSPACE_WRAPPER } = environment('/usr/bin', { hasSettings })
      return [RUSTC, RUSTC_WRAPPER, RUSTC_WORKSPACE_WRAPPER]
    }
    expect(wrappers(true)).toEqual(['rustc', '', ''])
    expect(wrappers(false)).toEqual(['rustc', undefined, undefined])
  }
})
