// Results of test files that passed on this machine, each kept under a key of all that the file read. A later run
// with the same key may take the result and not run the file. Effects: files below the cache directory.

import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { availableParallelism, release } from 'node:os'
import { dirname, join } from 'node:path'
import { sha256Text } from '../../image/digest.ts'
import { readsOf } from './reads.ts'
import { readTree, type SourceTree, stampOf } from './tree.ts'

export type KeptResult = {
  readonly file: string
  readonly passed: number
  readonly skipped: number
  /** Unix time of the run. */
  readonly atMs: number
}

/** Facts about the machine and the run that a test can notice, each by name. */
export type Surroundings = Readonly<Record<string, string>>

export type TestKind = {
  /** The file uses the built executables or images. */
  readonly needsBuild: boolean
  readonly surroundings: Surroundings
}

/** Certificates and clocks of tests move on: a result counts for so long. */
const validMs = 7 * 24 * 3_600_000
const formatVersion = 2

/** The results as one run sees them: it reads the tree at its start. */
export class KeptResults {
  readonly #directory: string
  readonly #tree: SourceTree
  readonly #stamp: string
  readonly #nowMs: () => number

  constructor(root: string, directory: string, nowMs: () => number = Date.now) {
    this.#directory = directory
    this.#tree = readTree(root)
    this.#stamp = stampOf(this.#tree)
    this.#nowMs = nowMs
    mkdirSync(directory, { recursive: true })
    this.#removeOld()
  }

  keyOf(file: string, { needsBuild, surroundings }: TestKind): string {
    const { files } = readsOf(this.#tree, file, needsBuild)
    const { digest, codeDigest } = this.#tree
    const inputs = [...files].map(([path, reading]) => [path, reading === 'code' ? codeDigest(path) : digest(path)])
    const facts = Object.entries(surroundings).toSorted(([a], [b]) => (a < b ? -1 : 1))
    return sha256Text(JSON.stringify([formatVersion, file, facts, inputs]))
  }

  /** The result of an earlier run with these inputs, or null. */
  find(file: string, kind: TestKind): KeptResult | null {
    const text = readTextOrNull(this.#pathOf(this.keyOf(file, kind)))
    if (text === null) return null
    const kept: KeptResult = JSON.parse(text)
    return this.#nowMs() - kept.atMs < validMs ? kept : null
  }

  /** Keeps results of files that passed, unless a file of the tree was written since this run began. */
  keep(results: readonly Omit<KeptResult, 'atMs'>[], kind: TestKind): void {
    if (results.length === 0 || stampOf(this.#tree) !== this.#stamp) return
    for (const result of results) {
      const path = this.#pathOf(this.keyOf(result.file, kind))
      const unfinished = `${path}.${process.pid}`
      writeFileSync(unfinished, JSON.stringify({ ...result, atMs: this.#nowMs() } satisfies KeptResult))
      renameSync(unfinished, path)
    }
  }

  #pathOf(key: string): string {
    return join(this.#directory, `${key}.json`)
  }

  #removeOld(): void {
    for (const name of readdirSync(this.#directory)) {
      const path = join(this.#directory, name)
      const { mtimeMs } = statSync(path, { throwIfNoEntry: false }) ?? { mtimeMs: Number.POSITIVE_INFINITY }
      if (this.#nowMs() - mtimeMs > validMs) rmSync(path, { force: true })
    }
  }
}

/** This machine and its tools. */
export function machineSurroundings(): Surroundings {
  return {
    bun: `${Bun.version} ${Bun.revision}`,
    kernel: release(),
    processors: String(availableParallelism()),
    // Names and versions of all packages of Debian.
    packages: sha256Text(readTextOrNull('/var/lib/dpkg/status') ?? ''),
    settings: sha256Text(settingsOf(process.env)),
    user: String(process.getuid?.()),
    devices: devices.filter(path => existsSync(path)).join(' '),
    tools: sha256Text(JSON.stringify(tools.map(fileOf))),
  }
}

/** Devices whose presence changes what a test does. */
const devices = ['/dev/kvm', '/dev/sev', '/dev/sev-guest', '/dev/tdx_guest', '/sys/fs/cgroup/cgroup.controllers']
/** Programs that need not come from a package of Debian. */
const tools = ['cargo', 'rustc', 'go', 'nix', 'node', 'npm', 'pebble', 'ssh', 'chromium', 'qemu-system-x86_64'] as const

/** The program of this name as it is now: its real path, size and time. A missing one has none of these. */
function fileOf(name: string): readonly (string | number)[] {
  const found = Bun.which(name)
  if (found === null) return [name]
  const path = realpathSync(found)
  const { size, mtimeMs } = statSync(path)
  // rustup's proxies start the toolchain that its settings name.
  const rustup = path.includes('rustup')
    ? (readTextOrNull(join(dirname(dirname(found)), '../.rustup/settings.toml')) ?? '')
    : ''
  return [name, path, size, mtimeMs, rustup]
}

/** Variables that choose cases, seeds and vectors of tests. */
function settingsOf(env: Readonly<Record<string, string | undefined>>): string {
  const own = Object.entries(env).filter(([name]) => /^STRONGROOM_(?!TEST_RUN$|CACHE$)/.test(name))
  return JSON.stringify(own.toSorted())
}

function readTextOrNull(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null
  }
}
