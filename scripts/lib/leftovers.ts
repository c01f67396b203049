// Finds and removes what a test run left: processes, network namespaces, links, nftables tables, control groups, and
// directories of `/tmp` with the mounts in them.
//
// Everything that tests make is named `srt-<pid>-*` after the process that made it, and every process they start
// inherits STRONGROOM_TEST_RUN. Other test runs may be under way on the same machine, so only two things are removed:
// processes with this run's mark, and what is named after a process that has ended, with the processes inside of such
// a namespace: a paused QEMU, for example, which carries no mark and would keep its tap. Any other `srt-*` is reported
// and left alone.

import { existsSync, readdirSync, readFileSync, readlinkSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { basename } from 'node:path'
import { resultOr } from '../../src/base/result-or.ts'
import { runCommand } from './command.ts'

export const runMarkVariable = 'STRONGROOM_TEST_RUN'
const namePrefix = 'srt-'
const namesDir = '/run/netns'
const newMs = 60_000
const gone = { throwIfNoEntry: false } as const
const toolTimeoutMs = 10_000

export type Thing =
  | { readonly kind: 'process'; readonly name: string; readonly pid: number }
  | { readonly kind: 'namespace' | 'link'; readonly name: string }
  /** A name below /run/netns that no process sees a namespace at: ip(8) calls it invalid. */
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'table'; readonly name: string; readonly family: string }
  /** The name of a control group is its path. */
  | { readonly kind: 'control group' | 'directory'; readonly name: string }

export type Leftover = { readonly thing: Thing; readonly removed: boolean; readonly why: string }

type Process = { readonly pid: number; readonly argv: readonly string[]; readonly mark: string | null }

/** Removes what nobody uses any more. Returns that, and what it left alone and why. */
export async function clearLeftovers(mark: string): Promise<Leftover[]> {
  const leftovers: Leftover[] = []
  for (const { pid, argv } of markedProcesses(mark)) {
    const thing: Thing = { kind: 'process', pid, name: argv.join(' ').slice(0, 120) }
    leftovers.push({ thing, removed: kill(pid), why: 'started by this run' })
  }
  const things = [...(await listNamespaces()), ...(await listLinks()), ...(await listTables()), ...listPaths()]
  // After the things: what a process makes that starts meanwhile is not among them. A process that has ended has no
  // command line; its parent may not have seen it yet.
  const alive = new Set(readProcesses().flatMap(({ pid, argv }) => (argv.length > 0 ? [pid] : [])))
  for (const thing of things) {
    const why = reasonToKeep(basename(thing.name), alive)
    if (why !== null) leftovers.push({ thing, removed: false, why })
    else leftovers.push({ thing, removed: await remove(thing), why: 'its process has ended' })
  }
  for (const name of namesOfNothing()) {
    const thing: Thing = { kind: 'name', name }
    leftovers.push({ thing, removed: await remove(thing), why: 'no process sees a namespace there' })
  }
  return leftovers
}

/** Why something of this name must stay; null when it may go. `alive` holds the pid of every process. */
export function reasonToKeep(name: string, alive: ReadonlySet<number>): string | null {
  const owner = /^srt[-_](\d+)[-_]/.exec(name)?.[1]
  if (owner === undefined) return 'not named after a process'
  return alive.has(Number(owner)) ? `process ${owner} may be using it` : null
}

/** Kills every other process whose mark is or begins with this (children of a run have longer marks). */
export function killMarked(mark: string): void {
  for (const { pid } of markedProcesses(mark)) kill(pid)
}

/** Kills them, and what they start meanwhile, until none is left or the time is over. */
export async function endMarked(mark: string, timeoutMs: number): Promise<void> {
  const endMs = performance.now() + timeoutMs
  for (; markedProcesses(mark).length > 0 && performance.now() < endMs; await Bun.sleep(50)) killMarked(mark)
}

function markedProcesses(mark: string): Process[] {
  return readProcesses().filter(child => child.mark?.startsWith(mark) && child.pid !== process.pid)
}

function readProcesses(): Process[] {
  const found: Process[] = []
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue
    const argv = readFields(`/proc/${entry}/cmdline`).filter(Boolean)
    const mark = readFields(`/proc/${entry}/environ`).find(line => line.startsWith(`${runMarkVariable}=`))
    found.push({ pid: Number(entry), argv, mark: mark?.slice(runMarkVariable.length + 1) ?? null })
  }
  return found
}

/** Empty for a process that has ended meanwhile or belongs to another user. */
function readFields(path: string): string[] {
  try {
    return readFileSync(path, 'utf8').split('\0')
  } catch {
    return []
  }
}

async function listNamespaces(): Promise<Thing[]> {
  const names = await namesOf(['ip', '-json', 'netns', 'list'], row => (row as { name?: string }).name)
  return names.map(name => ({ kind: 'namespace', name }))
}

async function listLinks(): Promise<Thing[]> {
  const names = await namesOf(['ip', '-json', 'link', 'show'], row => (row as { ifname?: string }).ifname)
  return names.map(name => ({ kind: 'link', name }))
}

async function listTables(): Promise<Thing[]> {
  const { exitCode, output } = await runTool(['nft', 'list', 'tables'])
  if (exitCode !== 0) return []
  return [...output.matchAll(/^table (\S+) (srt[-_]\S*)$/gm)].map(([, family = '', name = '']) => ({
    kind: 'table',
    family,
    name,
  }))
}

/** Control groups and directories of `/tmp` that are named after a process, such as an appliance's. */
function listPaths(): Thing[] {
  const owned = (parent: string) =>
    (existsSync(parent) ? readdirSync(parent) : [])
      .filter(name => /^srt-\d+-/.test(name))
      .map(name => `${parent}/${name}`)
  const groups = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].flatMap(owned)
  return [
    ...groups.map(name => ({ kind: 'control group', name }) as const),
    ...owned('/tmp').map(name => ({ kind: 'directory', name }) as const),
  ]
}

/** An appliance starts VMs without a mark, in a network namespace of its own: their open files lead to them. */
function killUsersOf(path: string): void {
  const isBelow = (file: string) => file.startsWith(`${path}/`)
  for (const { pid, argv } of readProcesses()) {
    const isUser = filesOf(pid).some(isBelow) || argv.some(word => word.includes(`${path}/`))
    if (isUser && pid !== process.pid) kill(pid)
  }
}

/** Without files that are closed meanwhile. */
function filesOf(pid: number): string[] {
  const list = resultOr(() => readdirSync(`/proc/${pid}/fd`), [])
  return list.map(fd => resultOr(() => readlinkSync(`/proc/${pid}/fd/${fd}`), ''))
}

/** Unmounts what is mounted there and below, the innermost first; `rm` stays on the directory's own file system. */
async function removeDirectory(path: string): Promise<boolean> {
  const mountPoints = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map(line => line.split(' ')[4] ?? '')
    .filter(point => point === path || point.startsWith(`${path}/`))
  for (const point of mountPoints.reverse()) {
    if ((await runTool(['umount', '--lazy', point])).exitCode !== 0) return false
  }
  return (await runTool(['rm', '--recursive', '--force', '--one-file-system', path])).exitCode === 0
}

/** A control group has none within it and no process, or it stays. */
function removeGroup(path: string): boolean {
  try {
    for (const entry of readdirSync(path, { withFileTypes: true })) {
      if (entry.isDirectory()) removeGroup(`${path}/${entry.name}`)
    }
    rmdirSync(path)
    return true
  } catch {
    return false
  }
}

/** A namespace may be mounted there in the mount namespace of any process. */
function namesOfNothing(): string[] {
  // ip(8) makes the file first, and then mounts the namespace there.
  const isOld = (name: string) => Date.now() - (statSync(`${namesDir}/${name}`, gone)?.mtimeMs ?? Date.now()) > newMs
  const names = existsSync(namesDir) ? readdirSync(namesDir).filter(isOld) : []
  if (names.length === 0) return []
  const mounts = readProcesses().map(({ pid }) => readFields(`/proc/${pid}/mountinfo`).join(''))
  return names.filter(name => !mounts.some(text => text.includes(` ${namesDir}/${name} `)))
}

async function namesOf(argv: readonly string[], pick: (row: unknown) => string | undefined): Promise<string[]> {
  const { exitCode, output } = await runTool(argv)
  // The list is one line. Others are complaints, for example about a namespace that has just ended.
  const list = output.split('\n').find(line => line.startsWith('['))
  if (exitCode !== 0 || list === undefined) return []
  const rows: unknown[] = JSON.parse(list)
  return rows.map(pick).filter(name => name?.startsWith(namePrefix)) as string[]
}

async function remove(thing: Thing): Promise<boolean> {
  switch (thing.kind) {
    case 'process':
      return kill(thing.pid)
    case 'namespace':
      // Without its name nobody would find them again.
      await killInside(thing.name)
      return (await runTool(['ip', 'netns', 'delete', thing.name])).exitCode === 0
    case 'name':
      rmSync(`${namesDir}/${thing.name}`, { force: true })
      return true
    case 'link':
      return (await runTool(['ip', 'link', 'delete', 'dev', thing.name])).exitCode === 0
    case 'table':
      return (await runTool(['nft', 'delete', 'table', thing.family, thing.name])).exitCode === 0
    case 'directory':
      killUsersOf(thing.name)
      return removeDirectory(thing.name)
    case 'control group':
      return removeGroup(thing.name)
  }
}

async function killInside(namespace: string): Promise<void> {
  const { output } = await runTool(['ip', 'netns', 'pids', namespace])
  for (const pid of output.split('\n').filter(line => /^\d+$/.test(line))) kill(Number(pid))
}

async function runTool(argv: readonly string[]): Promise<{ exitCode: number | null; output: string }> {
  if (Bun.which(argv[0] ?? '') === null) return { exitCode: 127, output: '' }
  return runCommand(argv, { timeoutMs: toolTimeoutMs })
}

function kill(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL')
  } catch {
    return false
  }
}
