// A process of the guest by number and start time, for numbers are reused. Effects: reads /proc, sends signals.

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
