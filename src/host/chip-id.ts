// The chip of this host, as CHIP_ID in its reports: from the newest certificate stored for its reports, or that of the
// simulated platform. Effects: reads files of the state directory.

import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fromHex, toHex } from '../base/bytes.ts'
import { resultOr } from '../base/result-or.ts'
import type { Platform } from '../config/schema.ts'
import { kdsDirName } from './kds/kept.ts'
import { simulatedChipId } from './simulated-host.ts'

const chipIdBytes = 64

/** Returns CHIP_ID in hexadecimal; null before the first report. Never throws. */
export function hostChipId(stateDir: string, platform: Platform): string | null {
  if (platform !== 'snp') return resultOr(() => simulatedChipId(stateDir), null)
  const directory = join(stateDir, kdsDirName)
  // A VCEK is stored only after it has verified a report of this host. A board that was replaced has a newer one.
  const newest = resultOr(() => readdirSync(directory), [])
    .flatMap(name => {
      const hwId = fromHex(/^vcek-[a-z]+-([0-9a-f]+)-[0-9.]+\.der$/.exec(name)?.[1] ?? '')
      const mtimeMs = resultOr(() => statSync(join(directory, name)).mtimeMs, 0)
      return hwId === null || hwId.length === 0 || hwId.length > chipIdBytes ? [] : [{ hwId, mtimeMs }]
    })
    .toSorted((a, b) => b.mtimeMs - a.mtimeMs)[0]
  // Turin's hwID is the first 8 bytes of CHIP_ID; the others are zero.
  return newest === undefined ? null : toHex(newest.hwId).padEnd(2 * chipIdBytes, '0')
}
