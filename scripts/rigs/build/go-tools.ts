// Go as the builder image has it, with its compiled standard library, for builders without a VM. Effects: Debian's
// mirror, files of the cache.

import * as fs from 'node:fs'
import { join, resolve } from 'node:path'
import { downloadPath, fetchPackages } from '../../image/downloads.ts'
import { machineMirrors } from '../../image/mirror.ts'
import { readPackagesLock } from '../../image/packages-lock.ts'
import { recipePaths } from '../../image/recipe.ts'
import { runTool } from '../../image/tool.ts'
import { compileGoLibrary } from '../../image/tree/go-library.ts'

export type GoTools = {
  /** Directory of Go's program in a build, for its PATH. */
  readonly path: string
  /** Go's program on this machine. */
  readonly file: string
  readonly binds: readonly { readonly from: string; readonly to: string }[]
  /** Null for a builder without it. */
  readonly library: { readonly from: string; readonly to: string } | null
}

const debianName = /^golang-(\d+\.\d+)-(?:go|src)$/
const timeoutMs = 600_000

/** Unpacks the image's packages of Go when they are not in the cache. */
export async function goTools(): Promise<GoTools & { readonly library: NonNullable<GoTools['library']> }> {
  const cache = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'
  const repo = resolve(import.meta.dir, '../../..')
  const lock = await readPackagesLock(recipePaths(repo, 'builder').packagesLock)
  const packages = lock.packages.filter(({ name }) => debianName.test(name))
  const [, version] = debianName.exec(packages[0]?.name ?? '') ?? []
  // The compiler of C code is this machine's.
  const gcc = await runTool(['gcc', '--version'], { timeoutMs })
  const maker = fs.readFileSync(join(repo, 'scripts/image/tree/go-library.ts'), 'utf8')
  const plan = fs.readFileSync(join(repo, 'src/builder/go/go.plan.ts'), 'utf8')
  const key = Bun.hash(JSON.stringify([packages, gcc, maker, plan])).toString(16)
  const dir = join(cache, 'trees', `go-${key}`)
  const at = (root: string) => ({
    path: `/opt/go/lib/go-${version}/bin`,
    file: `${root}/usr/lib/go-${version}/bin/go`,
    binds: [
      { from: `${root}/usr`, to: '/opt/go' },
      { from: `${root}/library`, to: '/opt/go-library' },
    ],
    library: { from: `${root}/library`, to: '/opt/go-library' },
  })
  if (fs.existsSync(dir)) return at(dir)
  const downloads = join(cache, 'downloads')
  await fetchPackages(downloads, packages, machineMirrors)
  fs.mkdirSync(join(cache, 'trees'), { recursive: true })
  const partial = fs.mkdtempSync(`${dir}.`)
  fs.chmodSync(partial, 0o755)
  for (const { sha256 } of packages)
    await runTool(['dpkg-deb', '--extract', downloadPath(downloads, sha256), partial], { timeoutMs })
  fs.chmodSync(partial, 0o755)
  const { path, binds } = at(partial)
  const system = [{ from: '/usr', to: '/usr' }, ...binds.slice(0, 1)]
  await compileGoLibrary({ binds: system, path: `${path}:/usr/bin`, target: join(partial, 'library') })
  try {
    fs.renameSync(partial, dir)
  } catch (error) {
    fs.rmSync(partial, { recursive: true })
    // Another test was faster.
    if (!fs.existsSync(dir)) throw error
  }
  return at(dir)
}
