// The packaged coding agent: an npm platform package pinned by version and integrity, fetched with the npm client.
// Effects.

import { chmod, mkdir, mkdtemp, rename, rm, stat, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { type Static, Type } from '@sinclair/typebox'
import { readChecked } from './checked-json.ts'
import { sha256Text } from './digest.ts'
import { ImageFault } from './image-fault.ts'
import { runTool } from './tool.ts'

export const AgentLock = Type.Object(
  {
    schemaVersion: Type.Literal(1),
    name: Type.String({ pattern: '^[a-z][a-z0-9-]*$' }),
    package: Type.String({ pattern: '^[a-z0-9][a-z0-9-]*$' }),
    version: Type.String({ pattern: '^[0-9]+\\.[0-9]+\\.[0-9]+$' }),
    /** Subresource integrity as the registry gives it. */
    integrity: Type.String({ pattern: '^sha512-[A-Za-z0-9+/]{86}==$' }),
    /** Path of the executable below the package's root. */
    executable: Type.String({ pattern: '^[a-z0-9][a-z0-9/._-]*$' }),
  },
  { additionalProperties: false },
)
export type AgentLock = Static<typeof AgentLock>

/** Throws recipe_invalid. */
export function readAgentLock(path: string): Promise<AgentLock> {
  return readChecked(AgentLock, path)
}

/** Path of the package's tarball, fetched when absent and checked always. Throws digest_mismatch. */
export async function fetchPackage(
  downloadsDir: string,
  lock: Pick<AgentLock, 'package' | 'version' | 'integrity'>,
): Promise<string> {
  const path = join(downloadsDir, `${sha256Text(lock.integrity)}.tgz`)
  await mkdir(downloadsDir, { recursive: true })
  if (
    await stat(path).then(
      () => true,
      () => false,
    )
  ) {
    if ((await integrityOf(path)) === lock.integrity) {
      const now = new Date()
      await utimes(path, now, now)
      return path
    }
    await rm(path)
  }
  const workDir = await mkdtemp(join(downloadsDir, 'npm-'))
  try {
    const spec = `${lock.package}@${lock.version}`
    const argv = [
      'npm',
      'pack',
      '--silent',
      '--ignore-scripts',
      '--pack-destination',
      workDir,
      '--cache',
      join(workDir, 'cache'),
      spec,
    ] as const
    await runTool(argv, {
      timeoutMs: 600_000,
      inheritEnv: true,
      cwd: workDir,
      env: { HOME: process.env.HOME ?? workDir },
    })
    const fetched = join(workDir, `${lock.package}-${lock.version}.tgz`)
    if ((await integrityOf(fetched)) !== lock.integrity) throw new ImageFault('digest_mismatch', `npm package ${spec}`)
    await rename(fetched, path)
    return path
  } finally {
    await rm(workDir, { recursive: true, force: true })
  }
}

/** Unpacks the agent's executable to `target`. */
export async function installAgent(tarball: string, lock: AgentLock, target: string, workDir: string): Promise<void> {
  const member = `package/${lock.executable}`
  await runTool(['tar', '--extract', '--gzip', '--file', tarball, '--directory', workDir, member], {
    timeoutMs: 120_000,
  })
  await rename(join(workDir, member), target)
  await chmod(target, 0o755)
}

async function integrityOf(path: string): Promise<string> {
  const digest = new Bun.CryptoHasher('sha512').update(await Bun.file(path).bytes()).digest('base64')
  return `sha512-${digest}`
}
