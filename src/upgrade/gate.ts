// The gate of a daemon on trial: reads alone pass, until the upgrade is accepted on the disk. Going back puts the
// former database back, so a change that was accepted meanwhile would be lost. Effects: reads the record, sleeping.

import { type Clock, pause } from '../base/clock.ts'
import { Fault } from '../base/fault.ts'
import { UnavailableFault } from '../http/limited.ts'
import { readRecord, upgradePaths } from './record.ts'
import { isAccepted } from './upgrade.machine.ts'

export type ChangeGate = {
  /** Passes once changes are accepted. Throws UnavailableFault before. */
  readonly admitChange: () => void
  readonly isOpen: () => boolean
  /** Calls `act` once, as soon as changes are accepted, unless the signal is aborted before. Never rejects. */
  readonly whenOpen: (act: () => void, signal: AbortSignal) => Promise<void>
}

const pollMs = 200
const retryMs = 5_000

export const openGate: ChangeGate = {
  admitChange: () => {},
  isOpen: () => true,
  whenOpen: async act => act(),
}

/** Returns the gate of a trial. Throws Fault conflict if no upgrade is running. */
export function trialGate(stateDir: string, clock: Pick<Clock, 'sleep'>): ChangeGate {
  const paths = upgradePaths(stateDir)
  if (readRecord(paths) === null)
    throw new Fault('conflict', `serve --trial is for an upgrade under way, and there is none in ${paths.directory}`)
  let open = false
  // Once accepted it stays so, also when the record goes.
  const isOpen = () => {
    open ||= isAccepted(readRecord(paths)?.phase ?? 'trial')
    return open
  }
  return {
    isOpen,
    admitChange: () => {
      if (isOpen()) return
      throw new UnavailableFault(
        'This appliance is being upgraded and accepts no change until the trial of the new version has passed. Nothing was changed; send the request again after the time in Retry-After.',
        retryMs,
      )
    },
    whenOpen: async (act, signal) => {
      while (!isOpen() && !signal.aborted) await pause(clock, pollMs, signal)
      if (!signal.aborted) act()
    },
  }
}
