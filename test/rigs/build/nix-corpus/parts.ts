// Parts of small flakes: derivations that a shell builds, locks, and the rows of the corpus. Pure.

import type { SourceFiles } from '../../../../scripts/rigs/build/sources.ts'
import type { NixProject } from './corpus.ts'

export type Row = NixProject & {
  /** Runs in each sample. */
  readonly always?: true
  /** Nix before 2.26 refuses the form. */
  readonly since26?: true
} & (
    | {
        readonly artifacts: Readonly<Record<string, string>>
        /** Names in the list: `input`, or `fixed NAME` and `path NAME`. Null for a build by another toolchain. */
        readonly lists: readonly string[] | null
        /** Text in the build's log. */
        readonly logs?: RegExp
      }
    | { readonly fails: RegExp }
  )

/** A derivation that the shell of the sandbox builds. `more`: further attributes. */
export const derivation = (name: string, script: string, more = '') =>
  `derivation { name = "${name}"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" ''${script}'' ]; ${more} }`

export const emptyLock = (version = 7) => JSON.stringify({ nodes: { root: {} }, root: 'root', version })

/** A flake whose default package is this expression. `inputs`: attributes before the outputs. */
export function flake(
  value: string,
  { head = '', args = 'self', lock = emptyLock(), output = 'packages.x86_64-linux.default' } = {},
): SourceFiles {
  return { 'flake.nix': `{ ${head} outputs = { ${args} }: { ${output} = ${value}; }; }\n`, 'flake.lock': lock }
}

export const hello = derivation('hello', 'echo hello > $out')

type Node = { readonly locked: object; readonly original?: object; readonly [key: string]: unknown }

/** `names`: of the nodes that are inputs of the flake itself, all of them unless given. */
export function lockOf(
  nodes: Readonly<Record<string, Node>>,
  { version = 7, names = Object.keys(nodes) } = {},
): string {
  const inputs = Object.fromEntries(names.map(name => [name, name]))
  const all = Object.entries(nodes).map(([name, node]) => [name, { original: node.locked, ...node }])
  return JSON.stringify({ nodes: { ...Object.fromEntries(all), root: { inputs } }, root: 'root', version })
}
