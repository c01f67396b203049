// How much code a relying party trusts: the lines of each module that the bundler puts into a program. Effects: Bun's
// bundler; reads the repository.

import { readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { brokerEntry } from '../build/broker-bundle.ts'
import { builderRecipe, enclaveRecipe, guestRecipe } from '../build/recipes.ts'

/** Lines of own modules and of modules from npm. */
export type Lines = { readonly own: number; readonly npm: number }

type TrustedProgram = {
  readonly entry: string
  /** Entries of its threads: the executable contains them beside the program. */
  readonly threads?: readonly string[]
  readonly target: 'bun' | 'browser'
  /** A run of test/meta fails above it. Lower it with each program that became smaller. */
  readonly budget: Lines
  /** Where the budget is to end. */
  readonly aim: Lines
}

/** Programs that measured images contain, and the one that relying parties load into pages. */
export const TRUSTED_PROGRAMS = {
  'strongroom-enclave': {
    entry: enclaveRecipe.entry,
    threads: enclaveRecipe.threads ?? [],
    target: 'bun',
    budget: { own: 30_470, npm: 13_775 },
    aim: { own: 28_000, npm: 13_775 },
  },
  'strongroom-guest': {
    entry: guestRecipe.entry,
    target: 'bun',
    budget: { own: 14_965, npm: 1_375 },
    aim: { own: 14_000, npm: 1_375 },
  },
  'strongroom-broker': {
    entry: brokerEntry,
    target: 'bun',
    budget: { own: 2_815, npm: 0 },
    aim: { own: 2_500, npm: 0 },
  },
  'strongroom-builder': {
    entry: builderRecipe.entry,
    target: 'bun',
    budget: { own: 13_000, npm: 2_070 },
    aim: { own: 12_990, npm: 2_070 },
  },
  'strongroom-verify.js': {
    entry: 'src/verifier/index.ts',
    target: 'browser',
    budget: { own: 7_025, npm: 4_370 },
    aim: { own: 6_970, npm: 4_370 },
  },
  'strongroom-tpm.js': {
    entry: 'src/verifier/tpm.ts',
    target: 'browser',
    budget: { own: 1_710, npm: 985 },
    aim: { own: 1_710, npm: 985 },
  },
  'strongroom-measure.js': {
    entry: 'src/verifier/measure.ts',
    target: 'browser',
    budget: { own: 3_060, npm: 4_955 },
    aim: { own: 3_060, npm: 4_955 },
  },
} as const satisfies Record<string, TrustedProgram>

export type TrustedLines = Lines & {
  /** Lines of each room (`src/attest`) and package, the largest first. */
  readonly parts: ReadonlyMap<string, number>
  /** Own modules, the largest first. */
  readonly files: readonly TrustedFile[]
}

export type TrustedFile = {
  readonly path: string
  readonly lines: number
  /** Bytes of it in the bundle that has the most of it. Few bytes for its lines: it could be split. */
  readonly bundledBytes: number
  /** A shortest chain of imports, from an entry to the module that imports it. Empty for an entry. */
  readonly via: readonly string[]
}

/** Counts each module whole if any of it is in the bundle. Throws if the entry does not bundle. */
export async function trustedLines(repo: string, program: TrustedProgram): Promise<TrustedLines> {
  const { entry, threads = [], target } = program
  const entrypoints = [entry, ...threads].map(path => join(repo, path))
  const built = await Bun.build({ entrypoints, target, metafile: true, root: repo })
  if (!built.success || built.metafile === undefined) throw new Error(`${entry} does not bundle`)
  const { inputs, outputs } = built.metafile
  const named = (path: string) => relative(repo, resolve(path))
  const bundled = new Map<string, number>()
  for (const output of Object.values(outputs)) {
    for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
      const name = named(path)
      if (bytesInOutput > 0 && /\.[cm]?[jt]sx?$/.test(name)) {
        bundled.set(name, Math.max(bundled.get(name) ?? 0, bytesInOutput))
      }
    }
  }
  const imports = new Map(Object.entries(inputs).map(([path, input]) => [named(path), input.imports.map(importedPath)]))
  const chains = chainsFrom([entry, ...threads], path => (imports.get(path) ?? []).map(named))
  const lines = new Map([...bundled.keys()].map(path => [path, codeLines(readFileSync(join(repo, path), 'utf8'))]))
  const parts = new Map<string, number>()
  for (const [path, count] of lines) parts.set(partOf(path), (parts.get(partOf(path)) ?? 0) + count)
  const sum = (isOwn: boolean) =>
    [...lines].reduce((total, [path, count]) => total + (isOwnPath(path) === isOwn ? count : 0), 0)
  const files = [...lines]
    .filter(([path]) => isOwnPath(path))
    .map(([path, count]) => ({ path, lines: count, bundledBytes: bundled.get(path) ?? 0, via: chains.get(path) ?? [] }))
  return {
    own: sum(true),
    npm: sum(false),
    parts: new Map([...parts].toSorted(([, a], [, b]) => b - a)),
    files: files.toSorted((a, b) => b.lines - a.lines),
  }
}

/** For each module that can be reached: a shortest way from an entry to it, without itself. */
export function chainsFrom(
  entries: readonly string[],
  importsOf: (path: string) => readonly string[],
): Map<string, string[]> {
  const chains = new Map<string, string[]>(entries.map(entry => [entry, []]))
  // A map yields what is added while it is read: so it is the queue, too.
  for (const [path, chain] of chains) {
    for (const imported of importsOf(path)) {
      if (!chains.has(imported)) chains.set(imported, [...chain, path])
    }
  }
  return chains
}

function importedPath({ path }: { readonly path: string }): string {
  return path
}

function isOwnPath(path: string): boolean {
  return path.startsWith('src/')
}

/** Lines that are neither blank nor wholly a comment. Comments are found at the beginning of a line alone. */
export function codeLines(text: string): number {
  const withoutBlocks = text.replace(/^[ \t]*\/\*[\s\S]*?\*\//gm, '')
  return withoutBlocks.split('\n').filter(line => !/^\s*(\/\/.*)?$/.test(line)).length
}

/** `src/attest`, a module right below `src`, or the package's name. */
function partOf(path: string): string {
  const [, name] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path) ?? []
  return name ?? path.split('/').slice(0, 2).join('/')
}
