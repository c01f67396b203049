// Changes of a whole appliance's configuration in end-to-end tests. Effects: writes its file.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'

/** For the next start: each pair is text that the file holds, and what replaces it. */
export function reconfigure({ directory }: Appliance, ...changes: readonly (readonly [string, string])[]): void {
  const path = join(directory, 'strongroom.toml')
  let text = readFileSync(path, 'utf8')
  for (const [from, to] of changes) {
    if (!text.includes(from)) throw new Error(`${path} holds no ${from}`)
    text = text.replace(from, to)
  }
  writeFileSync(path, text)
}

/** Stops the daemon, changes its configuration, and starts it. */
export async function restartWith(
  appliance: Appliance,
  ...changes: Parameters<typeof reconfigure>[1][]
): Promise<void> {
  await appliance.stop()
  reconfigure(appliance, ...changes)
  await appliance.start()
}
