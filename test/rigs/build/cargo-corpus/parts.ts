// Parts of small Cargo projects: manifests, locks, vendored crates, and the rows of the corpus. Pure.

import { answerCrate, type SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import { sha256Hex } from '../rust-mirror.ts'
import type { CorpusProject } from './corpus.ts'

export const cratesIo = 'registry+https://github.com/rust-lang/crates.io-index'

/** A manifest of edition 2021 and version 0.1.0, unless `head` says otherwise. */
export const manifest = (name: string, more = '', head = 'edition = "2021"') =>
  `[package]\nname = "${name}"\nversion = "0.1.0"\n${head}\n${more}`

export type LockEntry = {
  name: string
  version?: string
  deps?: string[]
  source?: string
  checksum?: string
  replace?: string
}

export const lockOf = (...entries: LockEntry[]) => `version = 4\n\n${entriesOf(entries)}`

export function entriesOf(entries: readonly LockEntry[]): string {
  return [...entries]
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, version = '0.1.0', deps = [], source, checksum, replace }) =>
      [
        `[[package]]\nname = "${name}"\nversion = "${version}"`,
        ...(source === undefined ? [] : [`source = "${source}"`]),
        ...(checksum === undefined ? [] : [`checksum = "${checksum}"`]),
        ...(replace === undefined ? [] : [`replace = "${replace}"`]),
        ...(deps.length === 0 ? [] : [`dependencies = [\n${deps.map(dep => ` "${dep}",\n`).join('')}]`]),
        '',
      ].join('\n'),
    )
    .join('\n')
}

export const answer: LockEntry = { name: 'answer', source: cratesIo, checksum: answerCrate.sha256 }
export const answerManifest = '[package]\nname = "answer"\nversion = "0.1.0"\nedition = "2021"\n'
export const answerSource = 'pub fn answer() -> u32 { 42 }\n'

/** A directory of the source that has crates instead of the registry. */
export function vendor(crates: Readonly<Record<string, SourceFiles>>): SourceFiles {
  const files: Record<string, string> = {
    '.cargo/config.toml':
      '[source.crates-io]\nreplace-with = "vendored-sources"\n[source.vendored-sources]\ndirectory = "vendor"\n',
  }
  for (const [name, own] of Object.entries(crates)) {
    const sums = Object.fromEntries(Object.entries(own).map(([path, text]) => [path, sha256Hex(text)]))
    const checksum = { files: sums, package: name === 'answer' ? answerCrate.sha256 : sha256Hex(name) }
    for (const [path, text] of Object.entries(own)) files[`vendor/${name}/${path}`] = text
    files[`vendor/${name}/.cargo-checksum.json`] = JSON.stringify(checksum)
  }
  return files
}

export const vendoredAnswer = vendor({ answer: { 'Cargo.toml': answerManifest, 'src/lib.rs': answerSource } })
export const crate = (name: string): LockEntry => ({ name, source: cratesIo, checksum: sha256Hex(name) })
export const main = (text: string): SourceFiles => ({ 'src/main.rs': `fn main() { ${text} }\n` })
export const printsAnswer = main('println!("{}", answer::answer());')
export const usesAnswer: SourceFiles = {
  'Cargo.toml': manifest('uses', '[dependencies]\nanswer = "0.1"\n'),
  ...printsAnswer,
}
export const usesLock = lockOf(answer, { name: 'uses', deps: ['answer'] })
export const listed = ['answer 0.1.0 vendored', 'uses 0.1.0 path']

/** A library `name` of the source in a directory of that name. */
export const library = (name: string, more = '', text = 'pub fn value() -> u32 { 1 }\n'): SourceFiles => ({
  [`${name}/Cargo.toml`]: manifest(name, more),
  [`${name}/src/lib.rs`]: text,
})

/** A program `app` with a library of the source beside it. */
export function withLibrary(name: string, dependency: string, lib: SourceFiles, program = ''): SourceFiles {
  return {
    'Cargo.toml': manifest('app', dependency),
    'Cargo.lock': lockOf({ name: 'app', deps: [name] }, { name }),
    ...main(program),
    ...lib,
  }
}

export type Row = CorpusProject & {
  /** Runs in each sample. */
  readonly always?: true
  /** Places of the compiler's record, by the ones of the evidence, where a link leads from one to the other. */
  readonly places?: Readonly<Record<string, string>>
} & (
    | { readonly artifacts: readonly string[]; readonly packages: readonly string[]; readonly lock?: string }
    | { readonly fails: RegExp }
  )

export const alone = (name: string) => [`${name} 0.1.0 path`]
export const plain: SourceFiles = { 'Cargo.toml': manifest('app'), 'Cargo.lock': lockOf({ name: 'app' }), ...main('') }

export const lockV1 = `${entriesOf([
  { ...answer, checksum: undefined as never },
  { name: 'uses', deps: [`answer 0.1.0 (${cratesIo})`] },
]).replaceAll('checksum = "undefined"\n', '')}
[metadata]
"checksum answer 0.1.0 (${cratesIo})" = "${answerCrate.sha256}"
`
