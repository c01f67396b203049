// Writes the tree of a Debian package and has dpkg-deb pack it. The same entries, control data and time give the same
// bytes. Effects: files, one process.

import { chmod, copyFile, mkdir, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { runCommand } from '../lib/command.ts'
import { type Control, conffilesText, controlText, type Entry, md5sumsText } from './control.ts'

export type DebOptions = {
  readonly control: Control
  readonly entries: readonly Entry[]
  /** postinst, prerm, postrm: the names that dpkg knows, with their text. */
  readonly scripts: Readonly<Record<string, string>>
  readonly outDir: string
  /** Seconds since 1970: the time of every file in it (SOURCE_DATE_EPOCH). */
  readonly epochS: number
  readonly compression: Compression
}

export const COMPRESSIONS = ['xz', 'gzip', 'zstd', 'none'] as const
export type Compression = (typeof COMPRESSIONS)[number]

const packTimeoutMs = 900_000

/** Path of the package. Throws with the words of dpkg-deb. */
export async function writeDeb(options: DebOptions): Promise<string> {
  const { control, outDir, epochS, compression } = options
  const file = join(outDir, `${control.name}_${control.version}_amd64.deb`)
  const workDir = join(outDir, `.${control.name}-${process.pid}`)
  await rm(workDir, { recursive: true, force: true })
  const root = join(workDir, 'root')
  await mkdir(join(root, 'DEBIAN'), { recursive: true, mode: 0o755 })
  try {
    const { bytes, sums } = await writeEntries(root, options.entries)
    const meta = {
      control: controlText(control, bytes),
      conffiles: conffilesText(options.entries),
      md5sums: md5sumsText(sums),
    }
    for (const [name, text] of Object.entries(meta)) {
      if (text !== '') await writeFile(join(root, 'DEBIAN', name), text, { mode: 0o644 })
    }
    for (const [name, text] of Object.entries(options.scripts)) {
      await writeFile(join(root, 'DEBIAN', name), text, { mode: 0o755 })
    }
    await setTimes(root, epochS)
    const made = join(workDir, 'made.deb')
    const argv = ['dpkg-deb', '--root-owner-group', `-Z${compression}`, '--build', root, made]
    const { exitCode, output } = await runCommand(argv, {
      timeoutMs: packTimeoutMs,
      env: { SOURCE_DATE_EPOCH: `${epochS}`, LC_ALL: 'C' },
    })
    if (exitCode !== 0) throw new Error(`dpkg-deb: ${output}`)
    await rename(made, file)
    return file
  } finally {
    await rm(workDir, { recursive: true, force: true })
  }
}

async function writeEntries(root: string, entries: readonly Entry[]) {
  const sums = new Map<string, string>()
  let bytes = 0
  for (const entry of entries.toSorted((a, b) => (a.path < b.path ? -1 : 1))) {
    const path = join(root, entry.path)
    await mkdir(dirname(path), { recursive: true, mode: 0o755 })
    switch (entry.kind) {
      case 'link':
        await symlink(entry.target, path)
        break
      case 'copy':
        await copyFile(entry.from, path)
        break
      case 'file':
        await writeFile(path, entry.bytes)
        break
    }
    if (entry.kind === 'link') continue
    await chmod(path, entry.mode)
    bytes += (await stat(path)).size
    sums.set(entry.path, await md5Of(path))
  }
  return { bytes, sums }
}

async function md5Of(path: string): Promise<string> {
  const hasher = new Bun.CryptoHasher('md5')
  for await (const chunk of Bun.file(path).stream()) hasher.update(chunk)
  return hasher.digest('hex')
}

/** Directories last: writing into one changes its time. Links have none of their own in a package. */
async function setTimes(root: string, epochS: number): Promise<void> {
  const paths = [...new Bun.Glob('**/*').scanSync({ cwd: root, dot: true, onlyFiles: false })]
  for (const path of ['', ...paths].toSorted((a, b) => b.length - a.length)) {
    await utimes(join(root, path), epochS, epochS).catch(() => {})
  }
}
