// The Debian part of a root: a tarball that mmdebstrap makes from locked packages alone. Effects.

import { mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { linkPackages } from '../downloads.ts'
import type { PackagesLock } from '../packages-lock.ts'
import type { MachineRecipe } from '../recipe.ts'
import { runTool } from '../tool.ts'

/** Sources of apt in the guest, as Debian's own package has them for this suite. */
const debianSources =
  '--customize-hook=install -D --mode=0644 "$1/usr/share/doc/apt/examples/debian.sources" "$1/etc/apt/sources.list.d/debian.sources"'

export type BaseTreeOptions = {
  readonly recipe: MachineRecipe
  readonly lock: PackagesLock
  readonly downloadsDir: string
  readonly workDir: string
  /** Where the tarball goes, renamed into place when it is complete. */
  readonly target: string
}

/** Installs every `root` package of the lock, by exact version, into an empty tree. Resolves nothing. */
export async function buildBaseTree(options: BaseTreeOptions): Promise<void> {
  const { recipe, lock, downloadsDir, workDir, target } = options
  const repoDir = join(workDir, 'repo')
  await mkdir(repoDir, { recursive: true })
  const wanted = lock.packages.filter(entry => entry.role === 'root')
  const names = await linkPackages(downloadsDir, wanted, repoDir)
  const paragraphs: string[] = []
  for (const [index, entry] of wanted.entries()) {
    const control = await runTool(['dpkg-deb', '--field', join(repoDir, names[index] ?? '')], { timeoutMs: 30_000 })
    const file = basename(entry.file)
    paragraphs.push(`${control.trimEnd()}\nFilename: ./${file}\nSize: ${entry.sizeBytes}\nSHA256: ${entry.sha256}\n`)
  }
  await writeFile(join(repoDir, 'Packages'), paragraphs.join('\n'))
  const partial = `${target}.${process.pid}.partial`
  try {
    await runTool(
      [
        'mmdebstrap',
        '--mode=root',
        '--variant=custom',
        '--format=tar',
        `--architectures=${recipe.architecture}`,
        `--include=${wanted.map(entry => `${entry.name}=${entry.version}`).join(',')}`,
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=APT::Sandbox::User "root"',
        '--dpkgopt=force-unsafe-io',
        '--skip=check/signed-by',
        ...(wanted.some(entry => entry.name === 'apt') ? [debianSources] : []),
        recipe.suite,
        partial,
        // Bytes were checked against the lock; a signature would add nothing.
        `deb [trusted=yes] copy://${repoDir} ./`,
      ],
      { timeoutMs: 900_000, env: { SOURCE_DATE_EPOCH: String(recipe.sourceDateEpoch), TMPDIR: workDir } },
    )
    await rename(partial, target)
  } finally {
    await rm(partial, { force: true })
  }
}
