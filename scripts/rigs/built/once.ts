// Builds that several test files need. One process makes each of them when its inputs have changed. Effects: files
// below `dist`, a process.

import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { runCommand } from '../../lib/command.ts'

const root = resolve(import.meta.dir, '../../..')
const buildMs = 600_000

/** Files that may go into any of them. */
const inputs = [
  ...['src/**/*', 'scripts/build/*', 'scripts/rigs/built/*.ts', 'test/rigs/built/*.ts'],
  ...['package.json', 'bun.lock'],
] as const

export type BuiltOnce = {
  /** Path of the module that makes it when it runs as a program: by `makeOnce`. */
  readonly program: string
  /** Path of a file of the result. */
  readonly path: string
  /** Glob of more files that may go into it. */
  readonly moreInputs?: string
}

/** Returns once it is there. */
export async function builtOnce(built: BuiltOnce): Promise<void> {
  if (isBuilt(built)) return
  mkdirSync(dirname(built.path), { recursive: true })
  // The kernel lets go of the lock when its holder ends, however that ends.
  const argv = ['flock', besides(built, 'lock'), process.execPath, built.program]
  const { exitCode, output } = await runCommand(argv, { timeoutMs: buildMs })
  if (exitCode !== 0) throw new Error(`${built.program}: ${output}`)
}

/** Called by the program, under the lock. */
export async function makeOnce(built: BuiltOnce, make: () => Promise<unknown>): Promise<void> {
  if (isBuilt(built)) return
  await make()
  writeFileSync(besides(built, 'tested'), stamp(built))
}

/** Paths in this repository, with the files that match `moreInputs`. */
export function inputsOf(moreInputs?: string): string[] {
  const globs = moreInputs === undefined ? inputs : [...inputs, moreInputs]
  return globs.flatMap(glob => [...new Bun.Glob(glob).scanSync({ cwd: root })])
}

/** Sizes and times of what goes in and of what came out: to read them takes less than a tenth of a second. */
function stamp({ path, moreInputs }: BuiltOnce): string {
  const sources = inputsOf(moreInputs).map(name => join(root, name))
  const lines = [process.execPath, path, ...sources].map(file => {
    const found = statSync(file, { throwIfNoEntry: false })
    return `${file} ${found?.size} ${found?.mtimeMs}`
  })
  return new Bun.CryptoHasher('sha256').update(lines.toSorted().join('\n')).digest('hex')
}

function besides({ path }: BuiltOnce, extension: string): string {
  return join(dirname(path), `.${basename(path)}.${extension}`)
}

function isBuilt(built: BuiltOnce): boolean {
  try {
    return readFileSync(besides(built, 'tested'), 'utf8') === stamp(built)
  } catch {
    return false
  }
}
