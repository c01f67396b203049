// Runs a program of a build in its own sandbox until it ends or exceeds a limit, then kills all remaining processes.
// Effects: processes, a cgroup, files for its /etc.

import * as fs from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import { messageOf } from '../../base/fault.ts'
import { plainEnv } from '../../linux/command.ts'
import { endProcessesOf } from '../../linux/users.ts'
import { BuildFailure } from '../failure.ts'
import { type Cgroup, type CgroupSite, createCgroup } from './cgroup.ts'
import { launchArgv, ownEtc, type RootPlan, rootArgv } from './root.plan.ts'

export type Bounds = {
  readonly timeoutMs: number
  readonly memoryBytes: number
  readonly pids: number
  /** Limit on the growth of the disk, and on the size of a file. */
  readonly diskBytes: number
  /** Limit for stdout and stderr together. */
  readonly outputBytes: number
  /** Limit for a stdout that the builder parses and does not log. */
  readonly answerBytes?: number
}

type Program = {
  /** One word, for messages and the cgroup. */
  readonly name: string
  readonly plan: RootPlan
  readonly bounds: Bounds
  readonly onStdout: (chunk: Uint8Array) => void
  readonly onStderr: (chunk: Uint8Array) => void
  readonly signal: AbortSignal
}

/** Where programs run. */
export type Site = {
  readonly cgroups: CgroupSite
  /** The build's own file system, so that growth is measured as a whole. */
  readonly scratch: string
  readonly clock: Clock
}

const diskPollMs = 250
const killTimeoutMs = 30_000
/** Inode limit of a build per MiB of its disk. */
const inodesPerMiB = 1024

/**
 * Runs a program and returns its exit code. Failures: `limit_exceeded`, `cancelled`; `internal` if the program cannot
 * be started or ended.
 */
export async function runProgram(site: Site, program: Program): Promise<number> {
  const { plan, bounds } = program
  program.signal.throwIfAborted()
  writeEtc(plan)
  const cgroup = createCgroup(site.cgroups, program.name, bounds, site.clock)
  try {
    const code = await runInside(site, program, cgroup)
    // The kernel may have killed one process, and the others then reported an error of their own.
    if (code !== 0) refuseExhausted(program, cgroup)
    return code
  } catch (error) {
    refuseExhausted(program, cgroup)
    if (error instanceof BuildFailure) throw error
    throw new BuildFailure('internal', `${program.name}: cannot be run: ${messageOf(error)}`, { cause: error })
  } finally {
    await cgroup.end()
    // Only a kernel bug would let a process leave its cgroup; it cannot change its user.
    await endProcessesOf(plan.uid, killTimeoutMs, site.clock)
  }
}

function refuseExhausted({ name, bounds }: Program, cgroup: Cgroup): void {
  if (cgroup.exhausted() !== 'memory') return
  throw new BuildFailure(
    'limit_exceeded',
    `${name}: out of memory: it used more than its limit of ${bounds.memoryBytes} bytes`,
  )
}

async function runInside(site: Site, program: Program, cgroup: Cgroup): Promise<number> {
  const { plan, bounds, signal } = program
  const over = Promise.withResolvers<never>()
  over.promise.catch(() => {}) // raced below
  const exceed = (what: string) => over.reject(new BuildFailure('limit_exceeded', `${program.name}: ${what}`))
  const cancel = () => over.reject(signal.reason)
  signal.addEventListener('abort', cancel, { once: true })
  const deadline = setTimeout(() => exceed(`not done within ${bounds.timeoutMs / 1000} s`), bounds.timeoutMs)
  const disk = watchDisk(site.scratch, bounds.diskBytes, exceed)
  try {
    const limits = { processesMax: bounds.pids, fileBytesMax: bounds.diskBytes }
    const child = Bun.spawn(launchArgv(cgroup.dir, plan.uid, limits, rootArgv(plan)), {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      env: plainEnv,
    })
    const output = { left: bounds.outputBytes, max: bounds.outputBytes }
    const { answerBytes } = bounds
    const answer = answerBytes === undefined ? output : { left: answerBytes, max: answerBytes }
    const take = (give: (chunk: Uint8Array) => void, bytes: typeof output) => (chunk: Uint8Array) => {
      give(chunk.subarray(0, Math.max(bytes.left, 0)))
      bytes.left -= chunk.length
      if (bytes.left < 0) exceed(`printed more than ${bytes.max} bytes`)
    }
    const outputs = Promise.all([
      drain(child.stdout, take(program.onStdout, answer)),
      drain(child.stderr, take(program.onStderr, output)),
    ])
    outputs.catch(() => {}) // awaited below, where nothing ended it before
    const code = await Promise.race([child.exited, over.promise])
    // A process that still holds the pipes was left behind; its output counts up to this point.
    await cgroup.end()
    await Promise.race([outputs, over.promise])
    return code
  } finally {
    clearTimeout(deadline)
    clearInterval(disk)
    signal.removeEventListener('abort', cancel)
  }
}

function writeEtc({ etcDir, uid }: RootPlan): void {
  fs.mkdirSync(etcDir, { recursive: true, mode: 0o755 })
  for (const { name, textOf } of ownEtc) fs.writeFileSync(`${etcDir}/${name}`, textOf(uid), { mode: 0o644 })
}

/** Measures with the file system's counters: walking a million files takes longer than writing them. */
function watchDisk(path: string, bytesMax: number, exceed: (what: string) => void): ReturnType<typeof setInterval> {
  const before = usedOf(path)
  const inodesMax = Math.max(inodesPerMiB * Math.ceil(bytesMax / 1024 ** 2), 65_536)
  return setInterval(() => {
    const now = usedOf(path)
    if (now.bytes - before.bytes > bytesMax) exceed(`more than ${bytesMax} bytes on disk`)
    else if (now.inodes - before.inodes > inodesMax) exceed(`more than ${inodesMax} files on disk`)
    else if (now.freeBytes < reserveBytes) exceed('the disk is full')
  }, diskPollMs)
}

/** Reserved for the VM's own writes. */
const reserveBytes = 16 * 1024 * 1024

function usedOf(path: string): { bytes: number; inodes: number; freeBytes: number } {
  const { blocks, bfree, bavail, bsize, files, ffree } = fs.statfsSync(path)
  return { bytes: (blocks - bfree) * bsize, inodes: files - ffree, freeBytes: bavail * bsize }
}

async function drain(stream: ReadableStream<Uint8Array>, take: (chunk: Uint8Array) => void): Promise<void> {
  for await (const chunk of stream) take(chunk)
}
