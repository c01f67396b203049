// Clients in TypeScript that well-known generators make of an OpenAPI document, and the compiler over them.
// Effects: files, processes.

import { join } from 'node:path'

const modules = join(import.meta.dir, '../../../node_modules')
const typescriptApi = join(import.meta.dir, 'typescript-api.ts')

/** By name; each writes into `directory`. */
const GENERATORS = {
  /** Types alone, as one file `schema.ts`. */
  'openapi-typescript': (document: string, directory: string) => [
    join(modules, 'openapi-typescript/bin/cli.js'),
    ...[document, '--output', join(directory, 'schema.ts')],
  ],
  /** A client with a function for each operation. Its `bin` would start another process, without the preload. */
  '@hey-api/openapi-ts': (document: string, directory: string) => [
    join(modules, '@hey-api/openapi-ts/dist/run.mjs'),
    ...['--input', document, '--output', directory, '--client', '@hey-api/client-fetch', '--no-log-file'],
  ],
} as const

export type Generator = keyof typeof GENERATORS

export async function generateClient(generator: Generator, document: string, directory: string): Promise<void> {
  await succeed([process.execPath, '--preload', typescriptApi, ...GENERATORS[generator](document, directory)])
}

/** Returns the errors of the compiler for all files of the directory, in strict mode; empty without any. */
export async function compile(directory: string): Promise<string> {
  const options = {
    compilerOptions: {
      ...{ strict: true, noUncheckedIndexedAccess: true, noEmit: true, skipLibCheck: false, types: [] },
      ...{ target: 'ES2022', lib: ['ES2022', 'DOM', 'DOM.Iterable'], module: 'Preserve', moduleResolution: 'bundler' },
    },
    include: ['**/*.ts'],
  }
  const config = join(directory, 'tsconfig.json')
  await Bun.write(config, JSON.stringify(options))
  const { stdout } = await ended([process.execPath, join(modules, 'typescript/bin/tsc'), '--project', config])
  return stdout
}

async function succeed(argv: readonly string[]): Promise<void> {
  const { code, stdout, stderr } = await ended(argv)
  if (code !== 0) throw new Error(`${argv.join(' ')}: exit code ${code}\n${stdout}${stderr}`)
}

async function ended(argv: readonly string[]) {
  const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}
