// The service of an upgrade as systemd runs it, and its executables. Effects: systemctl, dpkg, the executables'
// commands, files of systemd.

import { chmodSync, copyFileSync, existsSync, readFileSync, renameSync, symlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { Fault, messageOf } from '../base/fault.ts'
import { plainEnv, run } from '../linux/command.ts'
import { removeFile } from '../linux/files/removal.ts'
import { syncDirectory, syncFile, writeFileAtomic } from '../linux/files.ts'
import { packageName } from './candidate.plan.ts'
import type { Paths, UpgradeRecord } from './record.ts'
import type { ServiceState, UpgradeHost } from './supervise.ts'

export const serviceUnit = 'strongroom.service'
export const upgradeUnit = 'strongroom-upgrade.service'
export const dropInPath = `/etc/systemd/system/${serviceUnit}.d/zz-upgrade.conf`
const unitPath = `/etc/systemd/system/${upgradeUnit}`
const wantedPath = `/etc/systemd/system/multi-user.target.wants/${upgradeUnit}`

export const outputBytesMax = 1_048_576
const systemctlTimeoutMs = 60_000
const commandTimeoutMs = 30_000
/** Long, because doctor reads images of gigabytes. */
const doctorTimeoutMs = 180_000
const dpkgTimeoutMs = 600_000

export function systemdHost(paths: Paths, config: string | null): Omit<UpgradeHost, 'openRouting'> {
  const ask = (executable: string, words: readonly string[], timeoutMs: number) =>
    run([executable, ...words, ...globalWords(paths.stateDir, config)], { timeoutMs, outputBytesMax })
  return {
    stop: () => systemctl('stop', serviceUnit),
    start: async () => {
      // Earlier failures of the unit do not count.
      await systemctl('reset-failed', serviceUnit).catch(() => {})
      await systemctl('start', serviceUnit)
    },
    reload: () => systemctl('daemon-reload'),
    service: serviceState,
    status: async executable => {
      const answer = await ask(executable, ['status', '--json'], commandTimeoutMs).catch(() => null)
      const pid: unknown = answer === null ? null : Reflect.get(Object(JSON.parse(answer.stdout)), 'pid')
      return typeof pid === 'number' ? { pid } : null
    },
    doctor: executable => failedChecks(executable, globalWords(paths.stateDir, config)),
    install: record => install(paths, record),
    disarm: async () => {
      if (!existsSync(unitPath)) return
      removeFile(wantedPath)
      removeFile(unitPath)
      syncDirectory(dirname(unitPath))
      await systemctl('daemon-reload')
    },
  }
}

/** The unit does the work, ends what is interrupted, also after the next boot, and does not hang on a terminal. */
export async function arm(paths: Paths): Promise<void> {
  const words = [paths.former, 'upgrade', '--resume', ...globalWords(paths.stateDir, null)]
  writeFileAtomic(unitPath, unitText(paths.record, words), { mode: 0o644 })
  removeFile(wantedPath)
  symlinkSync(unitPath, wantedPath)
  syncDirectory(dirname(wantedPath))
  await systemctl('daemon-reload')
  await systemctl('reset-failed', upgradeUnit).catch(() => {})
  await systemctl('start', '--no-block', upgradeUnit)
}

function unitText(record: string, words: readonly string[]): string {
  return `# Ends an upgrade that is under way, and goes with it (strongroom help upgrade).
[Unit]
Description=Strongroom upgrade
ConditionPathExists=${record}
StartLimitIntervalSec=0

[Service]
UnsetEnvironment=BUN_OPTIONS BUN_BE_BUN NODE_OPTIONS
Type=exec
ExecStart=${words.map(word => `"${word}"`).join(' ')}
Restart=on-failure
RestartSec=5
UMask=0077

[Install]
WantedBy=multi-user.target
`
}

export function globalWords(stateDir: string, config: string | null): string[] {
  return ['--state-dir', stateDir, ...(config === null ? [] : ['--config', config])]
}

async function systemctl(...words: string[]): Promise<void> {
  await run(['systemctl', ...words], { timeoutMs: systemctlTimeoutMs, outputBytesMax })
}

async function serviceState(): Promise<ServiceState> {
  const properties = await unitProperties('MainPID', 'NRestarts', 'ActiveState')
  return {
    pid: Number(properties.get('MainPID') ?? 0),
    restarts: Number(properties.get('NRestarts') ?? 0),
    isRunning: properties.get('ActiveState') === 'active',
  }
}

/** Properties of the service, by their names (systemd's D-Bus interface). */
export async function unitProperties(...names: string[]): Promise<Map<string, string>> {
  const argv = ['systemctl', 'show', serviceUnit, `--property=${names.join(',')}`]
  const { stdout } = await run(argv, { timeoutMs: systemctlTimeoutMs, outputBytesMax })
  return new Map(
    stdout.split('\n').flatMap(line => {
      const at = line.indexOf('=')
      return at === -1 ? [] : [[line.slice(0, at), line.slice(at + 1)] satisfies [string, string]]
    }),
  )
}

/**
 * `name: detail` of each check of the host that fails. Problems of the daemon that runs count for nothing here: one on
 * trial reports that, its worker still loads, and an upgrade may be what ends the others.
 */
export async function failedChecks(executable: string, words: readonly string[]): Promise<string[]> {
  const child = Bun.spawn([executable, 'doctor', '--json', ...words], {
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    env: plainEnv,
    timeout: doctorTimeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  try {
    const { checks } = JSON.parse(stdout) as {
      checks: { name: string; result: string; detail: string; isOfDaemon?: boolean }[]
    }
    const failed = checks.filter(({ result, isOfDaemon }) => result === 'FAIL' && isOfDaemon !== true)
    return failed.map(({ name, detail }) => `${name}: ${detail}`)
  } catch (error) {
    const said = `${stdout}${stderr}`.trim().slice(0, saidCharsMax)
    return [`doctor: no answer (${child.signalCode ?? child.exitCode}, ${messageOf(error)}): ${said}`]
  }
}

const saidCharsMax = 500

async function install(paths: Paths, { target }: UpgradeRecord): Promise<void> {
  if (target.kind === 'file') {
    if (!isSame(paths.candidate, target.path)) installFile(paths.candidate, target.path)
    return
  }
  if ((await installedPackage()) === target.version) return
  const env = { ...plainEnv, DEBIAN_FRONTEND: 'noninteractive' }
  const options = { timeoutMs: dpkgTimeoutMs, outputBytesMax, env }
  // An interrupted installation is ended first.
  await run(['dpkg', '--configure', '--pending'], options)
  await run(['dpkg', '--force-confdef', '--force-confold', '--install', paths.package], options)
}

/** On the disk, whole, in one step: a process that runs from there keeps its own. */
export function installFile(from: string, to: string): void {
  const partial = `${to}.partial`
  removeFile(partial)
  copyFileSync(from, partial)
  chmodSync(partial, 0o755)
  syncFile(partial)
  renameSync(partial, to)
  syncDirectory(dirname(to))
}

function isSame(a: string, b: string): boolean {
  return existsSync(b) && digestOf(a) === digestOf(b)
}

export function digestOf(path: string): string {
  return new Bun.CryptoHasher('sha256').update(readFileSync(path)).digest('hex')
}

/** Returns the version of our package that dpkg has completely installed; null if there is none. */
export async function installedPackage(): Promise<string | null> {
  if (Bun.which('dpkg-query', { PATH: plainEnv.PATH }) === null) return null
  const argv = ['dpkg-query', '--status', packageName]
  const { stdout } = await run(argv, { timeoutMs: commandTimeoutMs, outputBytesMax }).catch(() => ({ stdout: '' }))
  const isInstalled = /^Status: \S+ \S+ installed$/m.test(stdout)
  return isInstalled ? (/^Version: (\S+)$/m.exec(stdout)?.[1] ?? null) : null
}

/** Returns the service's command. Throws Fault host.unsupported if an upgrade cannot change its command line. */
export async function servedCommand(): Promise<{
  readonly path: string
  readonly words: string[]
  readonly isActive: boolean
  readonly pid: number
}> {
  const properties = await unitProperties('ExecStart', 'ActiveState', 'MainPID')
  const [, path = '', argv = ''] = /^\{ path=(\S+) ; argv\[\]=([^;]*) ;/.exec(properties.get('ExecStart') ?? '') ?? []
  const [, ...words] = argv.trim().split(' ')
  if (path === '' || words[0] !== 'serve')
    throw new Fault('host.unsupported', `systemd has no ${serviceUnit} that runs \`strongroom serve\``)
  return { path, words, isActive: properties.get('ActiveState') === 'active', pid: Number(properties.get('MainPID')) }
}
