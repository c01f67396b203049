// Finds the device that makes this VM's reports, once init has set the devices up. Effects: sysfs, configfs, /dev.

import * as fs from 'node:fs'
import type { Clock } from '../../base/clock.ts'
import type { GuestPaths } from '../paths.ts'
import { type ConfigFiles, openConfigfs } from './configfs.ts'
import { createReportDevice, type ReportDevice } from './device.ts'
import { openSevGuest } from './sev-guest.ts'

type FindDeps = {
  readonly paths: Pick<GuestPaths, 'devicesReady' | 'tsmReports' | 'sevGuest'>
  readonly files: ConfigFiles
  readonly clock: Clock
  /** init loads the modules beside the agent. */
  readonly devicesWaitMs: number
}

/** Null if the platform has no reports. Prefers configfs-tsm, which does not block this thread. */
export async function findReportDevice({ paths, files, clock, devicesWaitMs }: FindDeps): Promise<ReportDevice | null> {
  const untilMs = clock.monotonicMs() + devicesWaitMs
  while (!fs.existsSync(paths.devicesReady) && clock.monotonicMs() < untilMs) await clock.sleep(pollMs)
  const configfs = await openConfigfs(paths.tsmReports, files)
  if (configfs !== null) return createReportDevice('configfs-tsm', configfs.ask, clock)
  const sevGuest = openSevGuest(paths.sevGuest)
  return sevGuest === null ? null : createReportDevice('sev-guest', sevGuest.ask, clock)
}

const pollMs = 20
