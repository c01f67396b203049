// The verifier's package as others get it: built, packed by npm, installed from the tarball into a project that knows
// nothing of this repository. Effects: files in a temporary directory, processes, which end with what they are for.

import { copyFileSync, cpSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { packageName } from '../../../scripts/build/verifier-package.ts'
import { builtPackage } from '../built/package.ts'

const repo = resolve(import.meta.dir, '../../..')

export type PackageProject = Disposable & {
  readonly folder: string
  readonly tarball: Uint8Array
  /** Names of the files in the tarball, sorted. */
  readonly packed: readonly string[]
  /** `program`: another than package-main.mjs, which lies in the folder. */
  readonly start: (runtime: ClientRuntime, program?: string) => PackageClient
}

export type ClientRuntime = 'bun' | 'node'

/** Commands one after the other; package-client.mjs has them. */
export type PackageClient = AsyncDisposable & {
  readonly ask: (command: { readonly do: string; readonly [name: string]: unknown }) => Promise<Told>
}

export type Told = {
  readonly value?: unknown
  readonly error?: {
    readonly names: readonly string[]
    readonly messages: readonly string[]
    readonly failed: readonly string[]
    readonly status: number | null
  }
}

const commandTimeoutMs = 600_000

// At import, so that the build takes no test's time.
const built = await builtPackage()

export async function preparePackage(): Promise<PackageProject> {
  const work = mkdtempSync(join(tmpdir(), 'strongroom-package-'))
  const folder = join(work, 'project')
  const { project, tarball, packed } = built
  cpSync(project, folder, { recursive: true })
  // Its users have this installed beside it.
  symlinkSync(join(repo, 'node_modules/openai'), join(folder, 'node_modules/openai'))
  copyFileSync(join(folder, 'node_modules', packageName, 'README.md'), join(folder, 'README.md'))
  for (const name of ['package-client.mjs', 'package-main.mjs'])
    copyFileSync(join(import.meta.dir, name), join(folder, name))
  return {
    folder,
    packed,
    tarball,
    start: (runtime, program = 'package-main.mjs') => startClient(runtime, folder, program),
    [Symbol.dispose]: () => rmSync(work, { recursive: true, force: true }),
  }
}

const ARGV = { bun: [process.execPath], node: ['node'] } as const satisfies Record<ClientRuntime, readonly string[]>

function startClient(runtime: ClientRuntime, cwd: string, program: string): PackageClient {
  const child = Bun.spawn([...ARGV[runtime], program], {
    cwd,
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: commandTimeoutMs,
  })
  const errors = child.stderr.text()
  const lines = linesOf(child.stdout)
  return {
    ask: async command => {
      child.stdin.write(`${JSON.stringify(command)}\n`)
      await child.stdin.flush()
      const { value, done } = await lines.next()
      if (done) throw new Error(`the ${runtime} client ended: ${await errors}`)
      return JSON.parse(value)
    },
    [Symbol.asyncDispose]: async () => {
      await child.stdin.end()
      await child.exited
      if (child.exitCode !== 0) throw new Error(`the ${runtime} client: exit status ${child.exitCode}: ${await errors}`)
    },
  }
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  let rest = ''
  const decoder = new TextDecoder()
  for await (const bytes of stream) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split('\n')
    rest = parts.pop() ?? ''
    yield* parts
  }
  return undefined
}
