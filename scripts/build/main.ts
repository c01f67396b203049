// Command line that the build scripts share.

import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { buildExecutable, type Recipe } from './executable.ts'

const repo = resolve(import.meta.dir, '..', '..')

/** Builds and prints path, size and SHA-256; exit code 1 with the reason on standard error. */
export async function buildMain(recipe: Recipe, argv: readonly string[]): Promise<void> {
  const usage = `usage: build [--out DIR] [--force]\n  builds DIR/${recipe.name} (default: dist) unless its inputs are unchanged\n`
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        out: { type: 'string' },
        force: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) {
      process.stdout.write(usage)
      return
    }
    const outDir = resolve(values.out ?? join(repo, 'dist'))
    const { path, sizeBytes, sha256, fresh } = await buildExecutable(recipe, { repo, outDir, force: values.force })
    process.stdout.write(`${path}  ${sizeBytes} bytes  sha256 ${sha256}${fresh ? '' : '  (up to date)'}\n`)
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    process.exitCode = 1
  }
}
