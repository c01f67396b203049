// How much code a relying party trusts: the lines of each module that the bundler puts into a program. Effects: Bun's
// bundler; reads the repository.

import { readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'

/** Lines of own modules and of modules from npm. */
export type Lines = { readonly own: number; readonly npm: number }

type TrustedProgram = {
  readonly entry: string
  readonly target: 'bun' | 'browser'
  /** A run of test/meta fails above it. Lower it with each program that became smaller. */
  readonly budget: Lines
  /** Where the budget is to end. */
  readonly aim: Lines
}

/** Programs that measured images contain, and the one that relying parties load into pages. */
export const TRUSTED_PROGRAMS = {
  'strongroom-enclave': {
    entry: 'src/enclave/main.ts',
    target: 'bun',
    budget: { own: 33_800, npm: 20_500 },
    aim: { own: 28_000, npm: 20_500 },
  },
  'strongroom-guest': {
    entry: 'src/guest-main.ts',
    target: 'bun',
    budget: { own: 15_500, npm: 7_400 },
    aim: { own: 14_000, npm: 7_400 },
  },
  'strongroom-builder': {
    entry: 'src/builder/main.ts',
    target: 'bun',
    budget: { own: 13_300, npm: 5_600 },
    aim: { own: 13_300, npm: 5_600 },
  },
  'strongroom-verify.js': {
    entry: 'src/verifier/index.ts',
    target: 'browser',
    budget: { own: 9_950, npm: 5_250 },
    aim: { own: 7_000, npm: 5_250 },
  },
} as const satisfies Record<string, TrustedProgram>

export type TrustedLines = Lines & {
  /** Lines of each room (`src/attest`) and package, the largest first. */
  readonly parts: ReadonlyMap<string, number>
}

/** Counts each module whole if any of it is in the bundle. Throws if the entry does not bundle. */
export async function trustedLines(repo: string, { entry, target }: TrustedProgram): Promise<TrustedLines> {
  const built = await Bun.build({ entrypoints: [join(repo, entry)], target, metafile: true, root: repo })
  if (!built.success || built.metafile === undefined) throw new Error(`${entry} does not bundle`)
  const included = Object.values(built.metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? [path] : [])),
  )
  const parts = new Map<string, number>()
  for (const path of new Set(included.map(path => relative(repo, resolve(path))))) {
    if (!/\.[cm]?[jt]sx?$/.test(path)) continue
    const part = partOf(path)
    parts.set(part, (parts.get(part) ?? 0) + codeLines(readFileSync(join(repo, path), 'utf8')))
  }
  const sum = (isOwn: boolean) =>
    [...parts].reduce((lines, [part, count]) => lines + (part.startsWith('src/') === isOwn ? count : 0), 0)
  return { own: sum(true), npm: sum(false), parts: new Map([...parts].toSorted(([, a], [, b]) => b - a)) }
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
