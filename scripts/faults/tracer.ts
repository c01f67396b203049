// A program: `tracer.ts PID COUNT [held]` holds a process at each system call with an effect outside of it, says which
// one it is, and lets it go on; the one after COUNT is not made any more: SIGKILL comes first. With `all` as COUNT it
// is never killed. Effects: ptrace(2), SIGKILL, lines on standard output.
//
// Lines: `attached`, then one JSON string for each effect in the order in which they begin, then `killed` when it was.
// The last string before `killed` names the call that was not made. Ended with the process, or by SIGKILL, after which
// the process goes on untraced.

import { closeSync, openSync, readFileSync, readlinkSync, readSync, writeSync } from 'node:fs'
import { effectOf, isBirth, type Process } from './effects.plan.ts'
import { attach, nextStop, resume, type Stop } from './ptrace.ts'

const pathBytesMax = 4096
const pageBytes = 4096
const stdout = 1
const endedProgram = 'a program that has ended'

const pid = Number(process.argv[2])
const killAfter = process.argv[3] === 'all' ? Number.POSITIVE_INFINITY : Number(process.argv[3])
/** The process stops itself before it does anything, at once or soon. A SIGCONT from before that stop does nothing. */
let isHeld = process.argv[4] === 'held'

const traced: Process = { pid, target, text, bytes, clientOf, log: target(stdout), peers: new Map() }
/** Threads inside of a call that makes a process. */
const births = new Map<number, string>()
let count = 0

attach(pid)
say('attached')
for (let stop = nextStop(); stop !== null; stop = nextStop()) {
  if (stop.kind === 'ended' && stop.tid === pid) break
  if (stop.kind === 'enter' && meet(stop)) break
  if (stop.kind === 'leave') leave(stop)
  resume(stop)
  if (isHeld && stop.kind === 'group') {
    isHeld = false
    process.kill(pid, 'SIGCONT')
  }
}

/** True if this was the one, and the process is dead. */
function meet({ tid, number, args }: Stop & { kind: 'enter' }): boolean {
  const effect = effectOf(number, args, traced)
  if (effect === null) return false
  if (count >= killAfter) {
    process.kill(pid, 'SIGKILL')
    say(JSON.stringify(effect))
    say('killed')
    return true
  }
  count += 1
  // Its kind is known once it exists.
  if (isBirth(effect)) births.set(tid, effect)
  else say(JSON.stringify(effect))
  return false
}

function leave({ tid, value }: Stop & { kind: 'leave' }): void {
  const effect = births.get(tid)
  if (effect === undefined) return
  births.delete(tid)
  say(JSON.stringify(`${effect.split(' ')[0]} ${commandOf(value)}`))
}

function commandOf(child: number): string {
  try {
    const words = readFileSync(`/proc/${child}/cmdline`, 'utf8').split('\0')
    return words.slice(0, 4).join(' ').trim() || endedProgram
  } catch {
    return endedProgram
  }
}

function say(line: string): void {
  writeSync(stdout, `${line}\n`)
}

function target(fd: number): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd | 0}`)
  } catch {
    return ''
  }
}

/** Which of the process's own sockets a client has come to: a port, or a path. proc_pid_net(5). */
function clientOf(socket: string): string {
  const inode = /^socket:\[(\d+)\]$/.exec(socket)?.[1]
  if (inode === undefined) return socket
  for (const [file, column] of [
    ['tcp', 9],
    ['tcp6', 9],
    ['unix', 6],
  ] as const) {
    const row = readFileSync(`/proc/${pid}/net/${file}`, 'utf8')
      .split('\n')
      .map(line => line.trim().split(/\s+/))
      .find(cells => cells[column] === inode)
    if (row === undefined) continue
    if (file !== 'unix') return `socket of a client of port ${Number.parseInt(row[1]?.split(':')[1] ?? '', 16)}`
    return row[7] === undefined ? 'socket without a name' : `socket of a client of ${row[7]}`
  }
  return 'socket'
}

function text(address: number): string {
  // A page that is not there ends the read, wherever the text ends before it.
  const first = pageBytes - (address % pageBytes)
  const head = bytes(address, Math.min(first, pathBytesMax))
  const end = head.indexOf(0)
  if (end !== -1) return head.toString('utf8', 0, end)
  const all = Buffer.concat([head, bytes(address + first, pathBytesMax - first)])
  const last = all.indexOf(0)
  return all.toString('utf8', 0, last === -1 ? all.length : last)
}

/** Opened each time: a process that executes another program has other memory. */
function bytes(address: number, length: number): Buffer {
  if (address === 0 || length <= 0) return Buffer.alloc(0)
  try {
    const fd = openSync(`/proc/${pid}/mem`, 'r')
    try {
      const into = Buffer.alloc(length)
      return into.subarray(0, readSync(fd, into, 0, length, address))
    } finally {
      closeSync(fd)
    }
  } catch {
    return Buffer.alloc(0)
  }
}
