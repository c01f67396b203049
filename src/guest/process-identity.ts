// A process of the guest by number and start time, for numbers are reused. Effects: reads /proc, sends signals.

import * as fs from 'node:fs'
import { readStat } from '../linux/stat.ts'

export type ProcessIdentity = { readonly pid: number; readonly startTicks: number }

/** The running process of this number, or null. */
export function identifyProcess(pid: number): ProcessIdentity | null {
  const stat = readStat(pid)
  return stat === null ? null : { pid, startTicks: stat.startTicks }
}

export function isAlive({ pid, startTicks }: ProcessIdentity): boolean {
  return readStat(pid)?.startTicks === startTicks
}

/** Returns true if the signal was sent. No other process of this VM can get the number between the two lines. */
export function signalProcess(identity: ProcessIdentity, signal: NodeJS.Signals): boolean {
  if (!isAlive(identity)) return false
  try {
    return process.kill(identity.pid, signal)
  } catch {
    return false
  }
}

/** Whether the process itself holds the socket that listens on this TCP port. */
export function isListening({ pid }: ProcessIdentity, port: number): boolean {
  const inodes = new Set([...listeners('/proc/net/tcp', port), ...listeners('/proc/net/tcp6', port)])
  if (inodes.size === 0) return false
  try {
    return fs.readdirSync(`/proc/${pid}/fd`).some(fd => inodes.has(socketInode(`/proc/${pid}/fd/${fd}`)))
  } catch {
    return false
  }
}

/** proc(5), /proc/net/tcp: local address, state (0A listens) and inode are the columns 1, 3 and 9. */
function listeners(table: string, port: number): string[] {
  let text: string
  try {
    text = fs.readFileSync(table, 'utf8')
  } catch {
    return [] // no IPv6
  }
  const suffix = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const rows = text.split('\n').map(row => row.trim().split(/\s+/))
  return rows.filter(row => row[1]?.endsWith(suffix) && row[3] === '0A').map(row => row[9] ?? '')
}

function socketInode(link: string): string {
  try {
    return fs.readlinkSync(link).match(/^socket:\[(\d+)\]$/)?.[1] ?? 'none'
  } catch {
    return 'none'
  }
}
