#!/usr/bin/env bun
// Makes the Debian packages: strongroom (executable, units, completions, man pages) and strongroom-images. Each prints
// its path, size and SHA-256. Same inputs, same version and same SOURCE_DATE_EPOCH: same bytes.

import { mkdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { sha256File } from './build/provenance.ts'
import { runCommand } from './lib/command.ts'
import { appliancePackage, imagesPackage } from './package/contents.ts'
import { COMPRESSIONS, type Compression, writeDeb } from './package/deb.ts'

const usage = `usage: bun scripts/build-package.ts [--executable FILE] [--images DIRECTORY]... [options]

  --executable FILE    make the package strongroom of this executable (default without --images: dist/strongroom)
  --images DIRECTORY   make the package strongroom-images of these image directories, as build-image.ts prints them
  --out DIR            where packages go (default: dist)
  --version VERSION    of both packages (default: that of package.json, with the commit and its time)
  --maintainer TEXT    'NAME <ADDRESS>' (default: DEBFULLNAME and DEBEMAIL, as dpkg's own tools have it)
  --compression NAME   ${COMPRESSIONS.join(', ')} (default: zstd, and none for images, whose content is packed already)

SOURCE_DATE_EPOCH is the time of every file (default: that of the commit).
`

const repo = resolve(import.meta.dir, '..')
const gitTimeoutMs = 10_000

try {
  process.umask(0o022)
  await main(process.argv.slice(2))
} catch (error) {
  process.stderr.write(`build-package: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = 1
}

async function main(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      executable: { type: 'string' },
      images: { type: 'string', multiple: true, default: [] },
      out: { type: 'string', default: join(repo, 'dist') },
      version: { type: 'string' },
      maintainer: { type: 'string' },
      compression: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) {
    process.stdout.write(usage)
    return
  }
  const version = values.version ?? (await versionOfCommit())
  if (!/^[0-9][0-9A-Za-z.+~]*(-[0-9A-Za-z.+~]+)?$/.test(version))
    throw new Error(`--version ${version}: not a Debian version`)
  const { DEBFULLNAME: name = 'Strongroom', DEBEMAIL: address = 'root@localhost' } = process.env
  const outDir = resolve(values.out)
  await mkdir(outDir, { recursive: true })
  const epochS = Number(process.env.SOURCE_DATE_EPOCH ?? (await ofCommit('%ct')) ?? 0)
  if (!Number.isSafeInteger(epochS)) throw new Error('SOURCE_DATE_EPOCH is no number of seconds')
  const facts = { repo, version, maintainer: values.maintainer ?? `${name} <${address}>`, epochS }
  const compression = compressionOf(values.compression)
  const images = values.images.map(directory => resolve(directory))
  const executable = values.executable ?? (images.length === 0 ? join(repo, 'dist', 'strongroom') : null)
  const shared = { outDir, epochS }
  if (executable !== null) {
    const made = appliancePackage({ ...facts, executable: resolve(executable) })
    await report(await writeDeb({ ...made, ...shared, compression: compression ?? 'zstd' }))
  }
  if (images.length > 0) {
    const made = imagesPackage({ ...facts, images })
    await report(await writeDeb({ ...made, ...shared, compression: compression ?? 'none' }))
  }
}

function compressionOf(name: string | undefined): Compression | null {
  const found = COMPRESSIONS.find(compression => compression === name)
  if (name !== undefined && found === undefined)
    throw new Error(`--compression ${name}: one of ${COMPRESSIONS.join(', ')}`)
  return found ?? null
}

/** Before the release of this version, and later than packages of earlier commits. */
async function versionOfCommit(): Promise<string> {
  const { version } = (await Bun.file(join(repo, 'package.json')).json()) as { version: string }
  const time = await ofCommit('%cd')
  const commit = await ofCommit('%h')
  return time === null || commit === null ? version : `${version}~${time}.${commit}`
}

/** Null where there is no git or no repository. */
async function ofCommit(format: string): Promise<string | null> {
  const argv = ['git', '-C', repo, 'log', '-1', `--format=${format}`, '--date=format:%Y%m%d%H%M%S', '--abbrev=12']
  const { exitCode, output } = await runCommand(argv, { timeoutMs: gitTimeoutMs, env: { TZ: 'UTC' } })
  return exitCode === 0 ? output.trim() : null
}

async function report(file: string): Promise<void> {
  process.stdout.write(`${file}  ${(await stat(file)).size} bytes  sha256 ${await sha256File(file)}\n`)
}
