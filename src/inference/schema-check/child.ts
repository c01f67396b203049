// One schema child from the gateway's side: a process of this executable that takes one job at a time and is killed
// if it exceeds its time, its memory or the protocol. Effects: starts and kills processes; reads /proc.
//
// A process, because JavaScriptCore can neither stop a thread inside a regular expression or the compiler, nor bound
// its memory.

import { closeSync, readFileSync } from 'node:fs'
import { schemaChildCommand } from '../../base/work/child-commands.ts'
import type { Deadlines } from '../../base/work/deadlines.ts'
import { plainEnv } from '../../linux/command.ts'
import { unixSocketPair } from '../../linux/libc/sockets.ts'
import { ownProgram } from '../../linux/own-program.ts'
import { openPipe } from './pipe.ts'
import { decodeReply, encodeJob, type Job, type Reply } from './wire.ts'

/**
 * Reason of a missing reply. `lost`: start failed, killed from outside, or broken protocol. The job caused the others.
 */
export type ChildFailure = 'too_slow' | 'too_much_memory' | 'lost'

export class ChildError extends Error {
  readonly failure: ChildFailure

  constructor(failure: ChildFailure) {
    super(failure)
    this.failure = failure
  }
}

export type SchemaChild = {
  /** Runs one job at a time. Throws ChildError if the child is dead or about to die. */
  readonly run: (job: Job) => Promise<Reply>
  readonly isAlive: () => boolean
  readonly kill: () => void
}

export type StartSchemaChild = () => Promise<SchemaChild>

export type SchemaProcess = {
  readonly pid: number
  /** Exit code, or 128 + signal number. */
  readonly exited: Promise<number>
  readonly kill: () => void
}

/** Starts the child's program with `fd` as its stdin and stdout; the caller closes it. May reject. */
export type StartSchemaProcess = (fd: number) => Promise<SchemaProcess>

/** Maximum time of a job. A child that has worked for most of it is then killed. */
export const jobMs = 2_000
/** Time after which the child is killed even if a busy machine gave it no time to work. */
const jobWallMs = 8_000
const startMs = 15_000
const dataBytesMax = 768 * 1_048_576
/** Without this bound JavaScriptCore reserves 1 GiB for code, above the limit, and interprets: 20 times slower. */
const codeBytes = 64 * 1_048_576

/** Starts a child. Throws ChildError lost if it does not start, or not in time. */
export async function startSchemaChild(deadlines: Deadlines, startProcess: StartSchemaProcess): Promise<SchemaChild> {
  const pair = unixSocketPair()
  if (!pair.ok) throw new ChildError('lost')
  const [ours, theirs] = pair.fds
  const pipe = await openPipe(ours)
  const child = await startProcess(theirs)
    .catch(() => {
      pipe.end()
      throw new ChildError('lost')
    })
    .finally(() => closeSync(theirs))
  let death: ChildFailure | null = null
  let isAlive = true
  const exited = child.exited.then(exitCode => {
    isAlive = false
    pipe.end()
    return exitCode
  })
  const kill = (failure: ChildFailure) => {
    death ??= failure
    child.kill()
  }

  const readReply = async (): Promise<Reply> => {
    let bytes = new Uint8Array(0)
    try {
      for (let piece = await pipe.read(); piece !== null; piece = await pipe.read()) {
        bytes = Buffer.concat([bytes, piece])
        const reply = decodeReply(bytes)
        if (reply !== null) return reply
      }
    } catch {
      kill('lost')
    }
    const exitCode = await exited
    // Only the gateway and the kernel's OOM killer send SIGKILL. JavaScriptCore aborts if it gets no memory.
    throw new ChildError(death ?? (exitCode === killedExitCode ? 'lost' : 'too_much_memory'))
  }

  const cancelStart = deadlines.after(startMs, () => kill('lost'))
  const first = await readReply().catch(() => null)
  cancelStart()
  if (first?.verdict !== 'ready') {
    kill('lost')
    throw new ChildError('lost')
  }
  return {
    run: async job => {
      if (death !== null) throw new ChildError(death)
      const cancelLimit = limitTime(deadlines, child.pid, () => kill('too_slow'))
      try {
        pipe.write(encodeJob(job))
        return await readReply()
      } finally {
        cancelLimit()
      }
    },
    isAlive: () => death === null && isAlive,
    kill: () => kill('lost'),
  }
}

/** Exit code of a process killed by SIGKILL. */
const killedExitCode = 137

/** Starts the program as a child of this process. */
export const startOwnSchemaProcess: StartSchemaProcess = async fd => {
  const program = [...ownProgram(), schemaChildCommand]
  const child = Bun.spawn(['prlimit', `--data=${dataBytesMax}`, '--core=0', '--', ...program], {
    // Discards crash reports: they contain no text of a client, but they are long, and there may be many.
    stdio: [fd, fd, 'ignore'],
    env: { ...plainEnv, BUN_JSC_jitMemoryReservationSize: String(codeBytes) },
    cwd: '/',
  })
  return { pid: child.pid, exited: child.exited, kill: () => child.kill('SIGKILL') }
}

/** Calls `onLate`, unless cancelled, when the process has worked long enough, or at the last limit. */
function limitTime(deadlines: Deadlines, pid: number, onLate: () => void): () => void {
  const startedMs = cpuMsOf(pid)
  let leftCount = jobWallMs / jobMs
  let cancel = () => {}
  const wait = () => {
    cancel = deadlines.after(jobMs, () => {
      leftCount -= 1
      const nowMs = cpuMsOf(pid)
      const isStarved = startedMs !== null && nowMs !== null && nowMs - startedMs < jobMs / 2
      if (leftCount > 0 && isStarved) wait()
      else onLate()
    })
  }
  wait()
  return () => cancel()
}

/**
 * Returns the CPU time of all its threads, user and system (proc(5), fields 14 and 15 of stat, in hundredths of a
 * second on every Linux). Null if /proc hides it: with ProtectProc=invisible a daemon without CAP_SYS_PTRACE cannot see
 * its children, which run as another user.
 */
function cpuMsOf(pid: number): number | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return 10 * (Number(fields[11]) + Number(fields[12]))
  } catch {
    return null
  }
}
