// Command-line agents out of the npm registry, pinned by version and integrity, below the cache directory: they are too
// large for the project's own packages. No script of a package runs. Effects: downloads once, writes the cache.

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { runCommand } from '../../lib/command.ts'

type Pin = {
  /** With its version, for this platform. */
  readonly package: string
  /** As the registry states it. */
  readonly integrity: string
  /** The part of the package that is taken. */
  readonly part: string
  readonly executable: string
}

/** To renew one: `npm view PACKAGE@VERSION dist.integrity`, and look at what changed. */
const PINS = {
  'claude-code': {
    package: '@anthropic-ai/claude-code-linux-x64@2.1.332',
    integrity: 'sha512-f4JWhzwYutJIHScC7/dYOPX6s28tt7ZADhsOi8zwOHq5fFPEuUeChh2NMfinSg0GrUckYxaeebC4h0DqiKzLcw==',
    part: 'package/claude',
    executable: 'claude',
  },
  codex: {
    package: '@openai/codex@0.169.0-linux-x64',
    integrity: 'sha512-o05NyAOCDygSPRo1yinzxvkRSdmsZyBD9E7mbpmjRanSfM8lypqWtQgEo4XfNkwhuCR2aFu8mlGOsQGFXVbVww==',
    part: 'package/vendor',
    executable: 'vendor/x86_64-unknown-linux-musl/bin/codex',
  },
  opencode: {
    package: 'opencode-linux-x64-baseline@1.18.33',
    integrity: 'sha512-1KQGBiiDDeL/VHHbHkOvvFo8Jr97WT5+C1tear+p7IcDTnXgVHXqIjU4O4jM4mHQzykTP2i884FCnW5LDa+zCA==',
    part: 'package/bin',
    executable: 'bin/opencode',
  },
} as const satisfies Record<string, Pin>

export type AgentCli = keyof typeof PINS

const installTimeoutMs = 240_000

export type Installed = { readonly path: string } | { readonly problem: string }

/** The executable, or why it cannot be had. `latest`: the newest version, whose integrity the registry states. */
export async function installAgent(name: AgentCli, { latest = false } = {}): Promise<Installed> {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return { problem: 'the agents are pinned for Linux on x64' }
  const { part, executable } = PINS[name]
  const version = latest ? await newestOf(PINS[name]) : PINS[name]
  if ('problem' in version) return version
  const { package: pinned, integrity } = version
  const folder = join(cacheDir(), 'tools', 'agents', `${name}-${pinned.slice(pinned.lastIndexOf('@') + 1)}`)
  const path = join(folder, executable)
  if (existsSync(path)) return { path }
  const partial = `${folder}.partial-${process.pid}`
  mkdirSync(partial, { recursive: true })
  try {
    const packed = await run(['npm', 'pack', '--silent', '--ignore-scripts', pinned], partial)
    if (packed !== null) return { problem: `${pinned} cannot be had: ${packed}` }
    const [tarball = ''] = readdirSync(partial)
    const found = `sha512-${new Bun.CryptoHasher('sha512').update(readFileSync(join(partial, tarball))).digest('base64')}`
    if (found !== integrity) throw new Error(`${pinned} is ${found}, pinned is ${integrity}`)
    const unpacked = await run(['tar', '--extract', '--gzip', '--strip-components=1', '--file', tarball, part], partial)
    if (unpacked !== null) return { problem: `${pinned} cannot be unpacked: ${unpacked}` }
    rmSync(join(partial, tarball))
    if (!existsSync(folder)) renameSync(partial, folder)
    return { path }
  } finally {
    rmSync(partial, { recursive: true, force: true })
  }
}

type Version = Pick<Pin, 'package' | 'integrity'>

/** The package of the newest version. Codex has its platforms as versions: 1.2.3-linux-x64. */
async function newestOf({ package: pinned }: Pin): Promise<Version | { readonly problem: string }> {
  const name = pinned.slice(0, pinned.lastIndexOf('@'))
  const platform = /^[^-]+(-.*)$/.exec(pinned.slice(pinned.lastIndexOf('@') + 1))?.[1] ?? ''
  const read = async (of: string, field: string) => {
    const { exitCode, output } = await runCommand(['npm', 'view', of, field], { timeoutMs: installTimeoutMs })
    return exitCode === 0 && output.trim() !== '' ? output.trim() : null
  }
  const newest = await read(name, 'version')
  const integrity = newest === null ? null : await read(`${name}@${newest}${platform}`, 'dist.integrity')
  if (integrity === null) return { problem: `the registry names no newest version of ${name}` }
  return { package: `${name}@${newest}${platform}`, integrity }
}

/** The version that a program prints. */
export async function versionOf(path: string): Promise<string> {
  const { output } = await runCommand([path, '--version'], { timeoutMs: 60_000 })
  return /\d+\.\d+\.\d+/.exec(output)?.[0] ?? 'unknown'
}

/** Returns the end of the command's output if it failed, null if it succeeded. */
async function run(argv: readonly string[], cwd: string): Promise<string | null> {
  const { exitCode, output } = await runCommand([...argv], { cwd, timeoutMs: installTimeoutMs })
  return exitCode === 0 ? null : output.slice(-500)
}

function cacheDir(): string {
  const fallback = process.getuid?.() === 0 ? '/var/cache/strongroom' : join(homedir(), '.cache/strongroom')
  return process.env.STRONGROOM_CACHE ?? fallback
}
