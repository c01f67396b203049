// Go's standard library, compiled while an image is made, so that a build compiles only what its source adds. Effects:
// runs Go in a sandbox without a network.

import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { goEnvironment } from '../../../src/builder/go/go.plan.ts'
import { ImageFault } from '../image-fault.ts'
import { runTool } from '../tool.ts'

export type GoCompiling = {
  /** Directories of the sandbox, read-only. `/usr` is one of them. */
  readonly binds: readonly { readonly from: string; readonly to: string }[]
  /** PATH in the sandbox. */
  readonly path: string
  /** Directory that gets the compiled packages; it does not exist yet. */
  readonly target: string
}

const compileTimeoutMs = 30 * 60_000
const cachePlace = '/build/go-cache'
/** An entry of Go's build cache: two digests, size, time in nanoseconds (cmd/go/internal/cache, `entrySize`). */
const entryPattern = /^(v1 [0-9a-f]{64} [0-9a-f]{64} [ \d]{20} )[ \d]{20}\n$/

/**
 * Compiles every package of the standard library with the settings of a build (`goEnvironment`). The same Go and gcc
 * write the same bytes: Go finds an entry by the digest of all that the compiler reads. Throws tool_failed.
 */
export async function compileGoLibrary({ binds, path, target }: GoCompiling): Promise<void> {
  await mkdir(target, { recursive: true, mode: 0o755 })
  const env = { ...goEnvironment(path, 'readonly'), GOCACHE: cachePlace, GODEBUG: withoutIndex }
  await runTool(
    [
      ...(['bwrap', '--unshare-all', '--die-with-parent', '--cap-drop', 'ALL', '--clearenv'] as const),
      ...binds.flatMap(({ from, to }) => ['--ro-bind', from, to]),
      ...['bin', 'lib', 'lib64'].flatMap(name => ['--symlink', `usr/${name}`, `/${name}`]),
      ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', '/build/home'],
      ...['--bind', target, cachePlace],
      ...Object.entries(env).flatMap(([name, value]) => ['--setenv', name, value]),
      ...['--chdir', '/build/home', '--', 'go', 'build', 'std'],
    ],
    { timeoutMs: compileTimeoutMs },
  )
  for (const name of await readdir(target, { recursive: true })) {
    const file = join(target, name)
    if (name.endsWith('-a')) await writeFile(file, withoutTime(await readFile(file, 'latin1'), name))
    // The time of the last cleaning, and a text for people.
    else if (!name.includes('/') && !/^[0-9a-f]{2}$/.test(name)) await rm(file)
  }
}

/** Go's index of the sources holds times of files, and saves no compiling. */
const withoutIndex = 'goindex=0'

function withoutTime(entry: string, name: string): string {
  const [, rest] = entryPattern.exec(entry) ?? []
  if (rest === undefined) throw new ImageFault('tool_failed', `go build std: ${name} is no entry of its cache`)
  return `${rest}${'0'.padStart(20)}\n`
}
