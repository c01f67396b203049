// Secrets of clients' keys, which an appliance neither keeps nor shows. Effects: reads its files, runs
// its command line.

import { expect } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'

/** No file of the appliance's state and no line of its log or metrics has the secret of a key. */
export async function expectNoSecret(appliance: Appliance, keys: readonly string[]): Promise<void> {
  const { metrics } = await appliance.admin<{ metrics: string }>('metrics')
  const places = new Map([
    ['log', Buffer.from(appliance.log())],
    ['metrics', Buffer.from(metrics)],
  ])
  for (const name of readdirSync(appliance.stateDir)) {
    if (name.startsWith('strongroom.db')) places.set(name, readFileSync(join(appliance.stateDir, name)))
  }
  expect([...places.keys()]).toContain('strongroom.db-wal')
  for (const key of keys) {
    const secret = key.slice(12)
    expect(secret.length).toBeGreaterThanOrEqual(16)
    const found = [...places].filter(([, bytes]) => bytes.includes(secret)).map(([name]) => name)
    expect(found).toEqual([])
  }
}
