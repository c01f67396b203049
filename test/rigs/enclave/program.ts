// Stands for strongroom-enclave in an image that a test boots: init is the real one; serve inspects the machine and
// prints one line of JSON to the serial console at each start. The first start ends itself; the second leaves orphans
// and powers off. Effects.

import * as fs from 'node:fs'
import { rootCertificates } from 'node:tls'
import { systemClock } from '../../../src/base/clock.ts'
import { messageOf, systemErrorCode } from '../../../src/base/fault.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { initSettings, runInit } from '../../../src/enclave/boot.ts'
import { enclavePaths } from '../../../src/enclave/paths.ts'
import { showStage } from '../../../src/enclave/stage.ts'
import { powerOff } from '../../../src/guest/power.ts'
import { startSandboxed } from '../../../src/host/sandbox.ts'
import { plainEnv } from '../../../src/linux/command.ts'

/** Facts that serve finds. The machine's second disk is the root image again. */
export type EnclaveFacts = {
  readonly start: number
  readonly argv: readonly string[]
  readonly environment: readonly string[]
  readonly oomScoreAdjust: number
  readonly pid1: string
  /** Command lines of all processes but the kernel's. */
  readonly processes: readonly string[]
  /** Sockets that wait for somebody. */
  readonly listening: readonly string[]
  /** Mounts that can be written to and executed from. */
  readonly writableAndExecutable: readonly string[]
  /** Outcome of each try to change or run something. */
  readonly tries: Readonly<Record<string, string>>
  readonly settings: Readonly<Record<string, string>>
  readonly found: readonly string[]
  /** How many authorities TLS trusts without any file. */
  readonly authorities: number
  readonly workerRoot: Readonly<Record<string, readonly string[]>>
  readonly sandbox: { readonly exitCode: number; readonly said: string }
  readonly modelDisk: Readonly<Record<'opened' | 'refused', string>>
}

const { runDir, workerRoot } = enclavePaths('')
const kernel = (name: string) => fs.readFileSync(name, 'utf8').trim()

/** Each must not be there: ways to give commands, and the initrd's own. */
const unwanted = [
  ...['/bin/sh', '/bin/bash', '/bin/dash', '/bin/busybox', '/usr/bin/env', '/usr/bin/perl', '/usr/bin/python3'],
  ...['/usr/sbin/sshd', '/usr/bin/dpkg', '/usr/bin/apt', '/usr/bin/login', '/usr/sbin/agetty', '/init', '/continue'],
  ...['/boot-modules', '/usr/lib/modules'],
]

function processes(): number[] {
  return fs.readdirSync('/proc').map(Number).filter(Number.isInteger)
}

function argvOf(pid: number): string {
  try {
    return fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
  } catch {
    return ''
  }
}

/**
 * Kernel Documentation/networking/proc_net_tcp.rst: state 0A is LISTEN; datagram sockets wait once they are bound.
 */
function listening(): string[] {
  const lines = (name: string) => kernel(`/proc/net/${name}`).split('\n').slice(1)
  const inet = ['tcp', 'tcp6'].flatMap(name =>
    lines(name)
      .filter(line => line.trim().split(/\s+/)[3] === '0A')
      .map(line => `${name} ${line.trim()}`),
  )
  const datagram = ['udp', 'udp6', 'raw', 'raw6'].flatMap(name => lines(name).map(line => `${name} ${line.trim()}`))
  // unix(7) flag 00010000: it accepts connections.
  const local = lines('unix').filter(line => line.split(/\s+/)[3] === '00010000')
  return [...inet, ...datagram, ...local]
}

function attempt(act: () => unknown): string {
  try {
    act()
    return 'done'
  } catch (error) {
    return systemErrorCode(error) ?? messageOf(error)
  }
}

function runFromTmp(): void {
  fs.copyFileSync('/usr/bin/ip', '/tmp/ip')
  fs.chmodSync('/tmp/ip', 0o755)
  Bun.spawnSync(['/tmp/ip', 'link'])
}

async function sandboxed(): Promise<EnclaveFacts['sandbox']> {
  const said: string[] = []
  const sandbox = startSandboxed(
    {
      root: workerRoot,
      mounts: [{ kind: 'tmpfs', target: '/tmp', sizeBytes: 1_048_576 }],
      user: { uid: 999, gid: 999 },
      env: {},
      limits: { memoryMiBMax: 'any', tasksMax: 64 },
    },
    ['/usr/bin/llama-server', '--version'],
    { onLine: line => said.push(line), lineBytesMax: 1_024 },
  )
  return { exitCode: await sandbox.exited, said: said.join(' ') }
}

/** The second disk is the root's image: its root hash is on the command line, and where its hash tree begins. */
function modelDisk(): EnclaveFacts['modelDisk'] {
  const word = (name: string) => new RegExp(`strongroom\\.${name}=(\\S+)`).exec(kernel('/proc/cmdline'))?.[1] ?? ''
  const open = (name: string, rootHash: string) => {
    const offset = Number(word('data_blocks')) * 4_096
    const argv = ['veritysetup', 'open', `--hash-offset=${offset}`, '/dev/vdb', name, '/dev/vdb', rootHash]
    const { exitCode, stderr } = Bun.spawnSync(argv, { env: plainEnv })
    if (exitCode !== 0) return `exit code ${exitCode}: ${stderr}`
    return attempt(() => fs.readSync(fs.openSync(`/dev/mapper/${name}`, 'r'), new Uint8Array(4_096)))
  }
  const rootHash = word('root_hash')
  return {
    opened: open('model', rootHash),
    refused: open(
      'other',
      rootHash.replace(/^./, text => (text === '0' ? '1' : '0')),
    ),
  }
}

async function look(start: number): Promise<EnclaveFacts> {
  return {
    start,
    argv: argvOf(process.pid).split(' '),
    environment: Object.entries(process.env).map(([name, value]) => `${name}=${value}`),
    oomScoreAdjust: Number(kernel('/proc/self/oom_score_adj')),
    pid1: fs.readlinkSync('/proc/1/exe'),
    processes: processes()
      .map(argvOf)
      .filter(argv => argv !== ''),
    listening: listening(),
    writableAndExecutable: kernel('/proc/mounts')
      .split('\n')
      .map(line => line.split(' '))
      .filter(([, , , options = '']) => /(?:^|,)rw(?:,|$)/.test(options) && !options.split(',').includes('noexec'))
      .map(([, target = '', type = '']) => `${target} ${type}`),
    tries: {
      'write to the root': attempt(() => fs.writeFileSync('/usr/bin/new', '')),
      'write to the root of the worker': attempt(() => fs.writeFileSync(`${workerRoot}/usr/bin/new`, '')),
      'run from /tmp': attempt(runFromTmp),
      'write to the hosts': attempt(() => fs.appendFileSync('/etc/hosts', '192.0.2.1 upstream.test\n')),
      'write to the resolvers': attempt(() => fs.writeFileSync('/etc/resolv.conf', '')),
      'allow modules again': attempt(() => fs.writeFileSync('/proc/sys/kernel/modules_disabled', '0')),
    },
    settings: {
      lockdown: kernel('/sys/kernel/security/lockdown'),
      modules: kernel('/proc/sys/kernel/modules_disabled'),
      sysrq: kernel('/proc/sys/kernel/sysrq'),
      printk: kernel('/proc/sys/kernel/printk').split(/\s+/)[0] ?? '',
      routerAdvertisements: kernel('/proc/sys/net/ipv6/conf/default/accept_ra'),
      hostname: kernel('/proc/sys/kernel/hostname'),
    },
    authorities: rootCertificates.length,
    found: unwanted.filter(path => fs.existsSync(path)),
    workerRoot: Object.fromEntries(
      ['dev', 'proc', 'run', 'sys', 'tmp'].map(name => [name, fs.readdirSync(`${workerRoot}/${name}`)]),
    ),
    sandbox: await sandboxed(),
    modelDisk: modelDisk(),
  }
}

/**
 * Starts processes whose parent ends first, then ends them. Counts those that PID 1 adopted and those it has not
 * collected.
 */
async function orphans(): Promise<{ adopted: number; uncollected: readonly number[] }> {
  const parent = Bun.spawn([process.execPath, 'parent'], { stdout: 'pipe' })
  const pids = (await parent.stdout.text()).trim().split(' ').map(Number)
  await parent.exited
  const adopted = pids.filter(pid => fs.readFileSync(`/proc/${pid}/status`, 'utf8').includes('PPid:\t1\n')).length
  for (const pid of pids) process.kill(pid, 'SIGKILL')
  const untilMs = performance.now() + 20_000
  // A process that has ended is there until it is collected.
  const left = () => pids.filter(pid => fs.existsSync(`/proc/${pid}`))
  while (left().length > 0 && performance.now() < untilMs) await Bun.sleep(100)
  return { adopted, uncollected: left() }
}

async function serve(): Promise<void> {
  const counter = `${runDir}/starts`
  const start = fs.existsSync(counter) ? Number(fs.readFileSync(counter, 'utf8')) + 1 : 1
  fs.writeFileSync(counter, String(start))
  // On standard output: the console must not show it.
  process.stdout.write('printed by accident\n')
  if (start === 1) {
    showStage(`facts ${JSON.stringify(await look(start))}`)
    process.kill(process.pid, 'SIGKILL')
  }
  showStage(`orphans ${JSON.stringify(await orphans())}`)
  await powerOff({ clock: systemClock, log: silentLogger })
}

switch (process.argv[2]) {
  case 'init':
    await runInit(initSettings)
    break
  case 'serve':
    await serve().catch(error => showStage(`failed: ${messageOf(error)}`))
    break
  case 'parent': {
    const children = [1, 2, 3].map(() => Bun.spawn(['/usr/bin/ip', 'monitor'], { stdin: 'ignore', stdout: 'ignore' }))
    process.stdout.write(children.map(({ pid }) => pid).join(' '))
    process.exit(0)
  }
}
