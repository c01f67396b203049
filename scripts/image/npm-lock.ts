// Programs of an image that come from the npm registry as whole packages: npm and pnpm, pinned by
// version and integrity. Effects.

import { existsSync } from 'node:fs'
import { chmod, mkdir, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { AgentLock, fetchPackage } from './agent-lock.ts'
import { readChecked } from './checked-json.ts'
import { runTool } from './tool.ts'

const closed = { additionalProperties: false } as const

const NpmLock = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    packages: Type.Array(Type.Pick(AgentLock, ['package', 'version', 'integrity', 'executable'], closed), {
      minItems: 1,
      maxItems: 16,
    }),
  },
  closed,
)
type NpmLock = Static<typeof NpmLock>
export type NpmProgram = NpmLock['packages'][number]

/** Returns the programs of a recipe; none without a lock. Throws recipe_invalid. */
export async function readNpmPrograms(path: string): Promise<readonly NpmProgram[]> {
  return existsSync(path) ? (await readChecked(NpmLock, path)).packages : []
}

/**
 * Installs a package below `usr` as npm does, without its documentation. Throws digest_mismatch.
 */
export async function installNpmProgram(downloadsDir: string, program: NpmProgram, usr: string): Promise<void> {
  const tarball = await fetchPackage(downloadsDir, program)
  const into = join(usr, 'lib/node_modules', program.package)
  await mkdir(into, { recursive: true })
  await runTool(
    [
      ...(['tar', '--extract', '--gzip', '--no-same-owner', '--file', tarball, '--directory', into] as const),
      ...['--strip-components=1', '--exclude=package/docs', '--exclude=package/man'],
    ],
    { timeoutMs: 120_000 },
  )
  await chmod(join(into, program.executable), 0o755)
  await symlink(`../lib/node_modules/${program.package}/${program.executable}`, join(usr, 'bin', program.package))
}
