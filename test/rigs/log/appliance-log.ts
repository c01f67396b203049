// The transparency log of a real appliance, as a client with its key asks it. Effects: runs the command line.

import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'

/** Options of `verify`; visits are remembered beside the appliance. */
export async function logOptions(appliance: Appliance): Promise<string[]> {
  const { key } = await appliance.admin<{ key: string }>('log', 'status')
  const memory = ['--log-state', join(appliance.directory, 'log-memory')]
  return ['--log', appliance.url, '--log-ca', join(appliance.stateDir, 'ca/ca.pem'), '--log-key', key, ...memory]
}

/** Kinds of all entries, in their order. */
export async function loggedKinds(appliance: Appliance): Promise<string[]> {
  const { entries } = await appliance.admin<{ entries: { entry: string }[] }>(
    ...['log', 'show', '--from', '0', '--limit', '256'],
  )
  return entries.map(({ entry }) => JSON.parse(entry).kind)
}
