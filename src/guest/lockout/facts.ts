// Facts for root about every way into this VM, for a verifier that runs as the login user. Effects: reads files and
// /proc, runs `sshd -T`.
//
// judge.plan.ts evaluates them. Every process of the VM may read them, so they hold no secret: whether a password
// exists, and sshd's configuration without the environment of sessions, which contains the instance's gateway key.

import * as fs from 'node:fs'
import { messageOf } from '../../base/fault.ts'
import { OneOf } from '../../contract/check.ts'
import { Closed, OrNull } from '../../contract/forms.ts'
import { type Static, Type } from '../../contract/type.ts'
import { AgentRequest } from '../../contract/vm/agent.ts'
import type { run } from '../../linux/command.ts'
import { readTextOrNull } from '../../linux/files.ts'

const Text = Type.String({ maxLength: 65_536 })
const TextOrNull = OrNull(Text)

export const LockoutFacts = Closed({
  /** passwd(5). */
  passwd: Text,
  /** From shadow(5): `none` never matches, `empty` needs no password. */
  passwords: Type.Array(Closed({ name: Text, password: OneOf(['none', 'set', 'empty']) })),
  authorizedKeys: TextOrNull,
  /** The keys that orders of the owner have left; null if none has changed them. */
  orderedKeys: TextOrNull,
  /** Output of `sshd -T` without its `setenv` lines, or why there is none. */
  sshd: Closed({ ok: Type.Boolean(), text: Text }),
  /** Titles of root's processes that listen for SSH. */
  sshdTitles: Type.Array(Text),
  /** Processes that can read from a console. */
  consoleReaders: Type.Array(Closed({ pid: Type.Integer(), title: Text, device: Text })),
  /** Listening TCP sockets and bound UDP sockets. */
  sockets: Type.Array(Closed({ protocol: Text, address: Text, port: Type.Integer(), uid: Type.Integer() })),
  /** Requests of the host that the agent accepts. */
  agentOps: Type.Array(Text),
  commandLine: Text,
  modules: Type.Array(Text),
  measuredModules: Type.Array(Text),
  tainted: TextOrNull,
  lockdown: TextOrNull,
  /** Names of mounted file systems' types. */
  mountTypes: Type.Array(Text),
  sysrq: TextOrNull,
  kgdb: TextOrNull,
  hasMemoryDevice: Type.Boolean(),
})
export type LockoutFacts = Static<typeof LockoutFacts>

type FactsDeps = {
  /** Before every path; '' in the guest. */
  readonly root: string
  readonly sshdProgram: string
  readonly run: typeof run
}

const sshdBounds = { timeoutMs: 20_000, outputBytesMax: 65_536 } as const

/** Does not reject for missing files. */
export async function gatherFacts({ root, sshdProgram, run }: FactsDeps): Promise<LockoutFacts> {
  const read = (path: string) => readTextOrNull(`${root}${path}`)
  const lines = (path: string) => (read(path) ?? '').split('\n').filter(line => line !== '')
  return {
    passwd: read('/etc/passwd') ?? '',
    passwords: lines('/etc/shadow').map(passwordOf),
    authorizedKeys: read('/run/strongroom/authorized_keys'),
    orderedKeys: read('/run/strongroom/orders/keys'),
    sshd: await run([sshdProgram, '-T'], sshdBounds).then(
      ({ stdout }) => ({ ok: true, text: stdout.replaceAll(/^setenv .*\n?/gim, '') }),
      error => ({ ok: false, text: messageOf(error) }),
    ),
    sshdTitles: sshdTitles(root),
    consoleReaders: processes(root).flatMap(pid => consolesReadBy(root, pid)),
    sockets: [
      ...['tcp', 'tcp6'].flatMap(name => socketsIn(lines(`/proc/net/${name}`), name, '0A')),
      ...['udp', 'udp6'].flatMap(name => socketsIn(lines(`/proc/net/${name}`), name, '07')),
    ],
    agentOps: AgentRequest.anyOf.map(request => request.properties.op.const),
    commandLine: (read('/proc/cmdline') ?? '').trim(),
    modules: lines('/proc/modules').map(line => line.split(' ')[0] ?? ''),
    measuredModules: modulesBelow(`${root}/usr/lib/modules`),
    tainted: read('/proc/sys/kernel/tainted')?.trim() ?? null,
    lockdown: read('/sys/kernel/security/lockdown')?.trim() ?? null,
    mountTypes: [...new Set(lines('/proc/mounts').map(line => line.split(' ')[2] ?? ''))],
    sysrq: read('/proc/sys/kernel/sysrq')?.trim() ?? null,
    kgdb: read('/sys/module/kgdboc/parameters/kgdboc')?.trim() ?? null,
    hasMemoryDevice: ['/dev/mem', '/dev/kmem', '/dev/port'].some(path => fs.existsSync(`${root}${path}`)),
  }
}

/** shadow(5): no password matches a text that begins with `!` or `*`. */
function passwordOf(line: string): LockoutFacts['passwords'][number] {
  const [name = '', hash = ''] = line.split(':')
  return { name, password: hash === '' ? 'empty' : /^[!*]/.test(hash) ? 'none' : 'set' }
}

function processes(root: string): number[] {
  return entries(`${root}/proc`)
    .filter(name => /^[0-9]+$/.test(name))
    .map(Number)
}

function titleOf(root: string, pid: number): string {
  return (tryRead(`${root}/proc/${pid}/cmdline`) ?? '').replaceAll('\0', ' ').trim()
}

/** Titles of root's alone. One whose parent is listed was forked for a connection and has the title until it execs. */
function sshdTitles(root: string): string[] {
  const found = processes(root).flatMap(pid => {
    const status = tryRead(`${root}/proc/${pid}/status`) ?? ''
    const parent = /^PPid:\s+([0-9]+)$.*^Uid:\s+0\s/ms.exec(status)?.[1]
    const title = titleOf(root, pid)
    return parent !== undefined && title.includes('[listener]') ? [{ pid, parent: Number(parent), title }] : []
  })
  return found.filter(({ parent }) => !found.some(({ pid }) => pid === parent)).map(({ title }) => title)
}

const consoleDevice = /^\/dev\/(console|tty[0-9]+|ttyS[0-9]+|hvc[0-9]+)$/
/** open(2): O_ACCMODE and O_WRONLY. */
const accessMode = 0o3
const writeOnly = 0o1

function consolesReadBy(root: string, pid: number): LockoutFacts['consoleReaders'] {
  return entries(`${root}/proc/${pid}/fd`).flatMap(fd => {
    const device = orNull(() => fs.readlinkSync(`${root}/proc/${pid}/fd/${fd}`))
    if (device === null || !consoleDevice.test(device)) return []
    const flags = /^flags:\s+([0-7]+)$/m.exec(tryRead(`${root}/proc/${pid}/fdinfo/${fd}`) ?? '')?.[1]
    const reads = flags === undefined || (Number.parseInt(flags, 8) & accessMode) !== writeOnly
    return reads ? [{ pid, title: titleOf(root, pid).slice(0, 256), device }] : []
  })
}

/** proc(5), /proc/net/tcp and udp: local address, state and user are the columns 1, 3 and 7. */
function socketsIn(lines: readonly string[], protocol: string, state: string): LockoutFacts['sockets'] {
  return lines.slice(1).flatMap(line => {
    const columns = line.trim().split(/\s+/)
    const [address = '', port = ''] = (columns[1] ?? '').split(':')
    return columns[3] === state ? [{ protocol, address, port: Number.parseInt(port, 16), uid: Number(columns[7]) }] : []
  })
}

/** Names as /proc/modules has them. */
function modulesBelow(dir: string): string[] {
  const found = entries(dir, true).flatMap(path => /([^/]+)\.ko(\.[a-z0-9]+)?$/.exec(path)?.[1] ?? [])
  return [...new Set(found.map(name => name.replaceAll('-', '_')))].toSorted()
}

function entries(dir: string, recursive = false): string[] {
  return orNull(() => fs.readdirSync(dir, { recursive, encoding: 'utf8' })) ?? []
}

function tryRead(path: string): string | null {
  return orNull(() => fs.readFileSync(path, 'utf8'))
}

/** Processes come and go while we look. */
function orNull<T>(look: () => T): T | null {
  try {
    return look()
  } catch {
    return null
  }
}
