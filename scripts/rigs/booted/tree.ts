// Trees of Debian for containers, made by mmdebstrap(1) and kept in the cache under the hash of their inputs. Effects:
// directories of the cache, processes, the network; needs root.
//
// Addresses come from this machine's apt sources. A tree holds all that it needs of the network, so that a
// container has none.

import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { DEPENDS } from '../../package/control.ts'
import { outputOf } from './output.ts'

export const buildTimeoutMs = 600_000
const sourcesTimeoutMs = 60_000

const suite = 'bookworm'
/** Packages that README and `strongroom doctor` ask of a host. */
const packages = [
  'systemd-sysv',
  'dbus',
  'nftables',
  'conntrack',
  'iproute2',
  'bubblewrap',
  'erofs-utils',
  'procps',
  'swtpm',
]
const backports = ['qemu-system-x86', 'qemu-system-common', 'qemu-system-data', 'seabios']
const leftOut = ['/usr/share/doc/*', '/usr/share/man/*', '/usr/share/locale/*']
const keptTreeMs = 30 * 24 * 3_600_000

const minimal = [
  ...['mmdebstrap', '--mode=root', '--variant=minbase', '--format=directory'],
  ...['--aptopt=APT::Install-Recommends "false"', '--aptopt=APT::Sandbox::User "root"', '--dpkgopt=force-unsafe-io'],
] as const

/**
 * Debian 12 with all that the appliance needs of a host. Built in a minute, which needs the network: a test that runs
 * in a namespace of its own asks for it outside, by `beforeAll(debianTree, buildTimeoutMs)`.
 */
export async function debianTree(): Promise<string> {
  const sources = await debianSources(suite)
  if (!sources.includes(`${suite}-backports`)) throw new Error('no apt source of backports: run scripts/setup')
  const argv = [
    ...minimal,
    ...leftOut.map(pattern => `--dpkgopt=path-exclude=${pattern}`),
    `--include=${[...packages, ...backports.map(name => `${name}/${suite}-backports`)].join(',')}`,
    suite,
  ]
  return await cachedTree('booted-debian', argv, sources)
}

/** Codenames of the releases that packages are made for. */
export const RELEASES = { 12: 'bookworm', 13: 'trixie' } as const
export type Release = keyof typeof RELEASES

/**
 * Debian as it is installed before anything of ours: systemd and apt, no more. Packages that ours depends on lie
 * in apt's own cache, so that `apt-get install` needs no network.
 */
export function bareDebianTree(release: Release): Promise<string> {
  return downloadedTree('bare-debian', release, [`satisfy ${DEPENDS.map(name => `'${name}'`).join(' ')}`])
}

/** Programs that operators have beside the appliance: what upgrades a host by itself, a pooler, and a firewall. */
const BESIDE = ['needrestart', 'unattended-upgrades', 'pgbouncer', 'postgresql', 'iptables'] as const

/** The same, for `prove-host.ts`: packages of other programs lie in apt's cache, too, and that of the C library. */
export function provedDebianTree(release: Release): Promise<string> {
  const wanted = [...DEPENDS, ...BESIDE].map(name => `'${name}'`).join(' ')
  return downloadedTree('proved-debian', release, [`satisfy ${wanted}`, 'install --reinstall libc6'])
}

async function downloadedTree(kind: string, release: Release, downloads: readonly string[]): Promise<string> {
  const codename = RELEASES[release]
  // Nobody has backports before he adds them.
  const sources = (await debianSources(codename)).replaceAll(/^deb \S+ \S+-backports .*\n/gm, '')
  const aptGet = 'chroot "$1" apt-get --quiet --yes --download-only --no-install-recommends'
  const argv = [
    ...minimal,
    '--include=systemd-sysv,dbus,ca-certificates',
    '--skip=cleanup/apt',
    ...downloads.map(words => `--customize-hook=${aptGet} ${words}`),
    codename,
  ]
  return await cachedTree(`${kind}-${release}`, argv, sources)
}

/** Debian 12 with what maintains a host besides systemd itself: restarts after upgrades of libraries. */
export async function maintainedDebianTree(): Promise<string> {
  const argv = [
    ...minimal,
    ...leftOut.map(pattern => `--dpkgopt=path-exclude=${pattern}`),
    '--include=systemd-sysv,dbus,iproute2,procps,needrestart',
    suite,
  ]
  return await cachedTree('maintained-debian', argv, await debianSources(suite))
}

/** From the cache where argv and sources are unchanged. */
async function cachedTree(kind: string, argv: readonly string[], sources: string): Promise<string> {
  const digest = createHash('sha256')
    .update(JSON.stringify([argv, sources]))
    .digest('hex')
    .slice(0, 16)
  const trees = join(process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom', 'trees')
  const target = join(trees, `${kind}-${digest}`)
  mkdirSync(trees, { recursive: true })
  if (!existsSync(target)) await buildTree(argv, sources, target, join(trees, 'build.lock'))
  const now = new Date()
  utimesSync(target, now, now)
  for (const entry of readdirSync(trees)) {
    const tree = join(trees, entry)
    if (entry.startsWith(`${kind}-`) && statSync(tree).mtimeMs < now.getTime() - keptTreeMs) {
      rmSync(tree, { recursive: true, force: true })
    }
  }
  return target
}

async function buildTree(argv: readonly string[], sources: string, target: string, lock: string): Promise<void> {
  process.stderr.write(`building ${target}, once\n`)
  const partial = `${target}.partial`
  // Another test run may be building it: then there is nothing left to do when the lock is ours.
  const script = '[ -d "$1" ] && exit 0; rm -rf "$2"; shift 2; exec "$@"'
  const whole = ['flock', lock, 'sh', '-euc', script, 'sh', target, partial, ...argv, partial, '-']
  const { exitCode, stderr } = await outputOf(whole, sources, buildTimeoutMs)
  if (exitCode !== 0) throw new Error(`mmdebstrap: ${exitCode}: ${stderr}`)
  if (!existsSync(target)) renameSync(partial, target)
}

/**
 * Lines of sources.list(5) for Debian's own archives, as this machine's apt names them. Another release than the
 * machine's is at the same addresses.
 */
async function debianSources(codename: string): Promise<string> {
  const format = '$(ORIGIN)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)'
  const argv = ['apt-get', 'indextargets', '--format', format, 'Created-By: Packages']
  const { stdout } = await outputOf(argv, '', sourcesTimeoutMs)
  const rows = stdout.split('\n').map(line => line.split('\t'))
  const lines = rows.flatMap(([origin = '', address = '', release = '', component = '']) =>
    origin.startsWith('Debian') && release.startsWith(suite) && component === 'main'
      ? [`deb ${address.replace(/\/+$/, '')} ${release.replace(suite, codename)} ${component}\n`]
      : [],
  )
  return [...new Set(lines)].toSorted().join('')
}
