// A disk of this VM, found by the serial that the host has given it. Effects: reads /sys.

import { existsSync, readdirSync } from 'node:fs'
import type { Clock } from '../base/clock.ts'
import { readTextOrNull } from '../linux/files.ts'

const pollMs = 50

type DiskQuestion = {
  /** '' in the guest. */
  readonly root: string
  readonly serial: string
  readonly clock: Pick<Clock, 'monotonicMs' | 'sleep'>
  readonly waitMs: number
}

/** Returns its path below /dev, or null after `waitMs`, because the driver may still be loading. */
export async function findDisk({ root, serial, clock, waitMs }: DiskQuestion): Promise<string | null> {
  const untilMs = clock.monotonicMs() + waitMs
  for (;;) {
    const blocks = `${root}/sys/block`
    const names = existsSync(blocks) ? readdirSync(blocks) : []
    const name = names.find(name => readTextOrNull(`${blocks}/${name}/serial`)?.trim() === serial)
    if (name !== undefined) return `${root}/dev/${name}`
    if (clock.monotonicMs() >= untilMs) return null
    await clock.sleep(pollMs)
  }
}
