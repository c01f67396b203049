// The appliance that scenarios run on. Effects: its configuration file, waits for it.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance, createAppliance } from '../rigs/appliance.ts'
import { until } from '../rigs/until.ts'

/** Lines by table: no limits that many runs would meet, no graces that runs would wait for; with those of `tables`. */
export function calmLines(tables: Readonly<Record<string, string>> = {}): Record<string, string> {
  const calm: Record<string, string> = {
    vm: 'stop_grace_ms = 200',
    instances: 'creates_per_day_max = 1_000_000\nrecords_per_organization_max = 10_000',
    network: 'address_rest_s = 0',
  }
  for (const [table, lines] of Object.entries(tables)) calm[table] = `${calm[table] ?? ''}\n${lines}`
  return calm
}

/** Arguments of `createAppliance` for an appliance with these lines. */
export function calmSettings(
  tables: Readonly<Record<string, string>> = {},
  more = '',
): Parameters<typeof createAppliance> {
  return ['', 'vm', undefined, more, calmLines(tables)]
}

/** For the next start. */
export function configure({ directory }: Appliance, from: string, to: string): void {
  const path = join(directory, 'strongroom.toml')
  writeFileSync(path, readFileSync(path, 'utf8').replace(from, to))
}

/**
 * Resolves once the daemon records a VM's console, its first act with a running QEMU. Throws when `dead` is aborted.
 */
export async function untilAttached({ stateDir }: Appliance, dead?: AbortSignal): Promise<void> {
  const vms = join(stateDir, 'vms')
  await until('the daemon has connected to QEMU', 60_000, () => {
    dead?.throwIfAborted()
    return readdirSync(vms).some(id => existsSync(join(vms, id, 'console.log')))
  })
}

/** Resolves once the daemon has finished the work of a first start. Throws when `dead` is aborted. */
export async function settledStart({ stateDir }: Appliance, dead?: AbortSignal): Promise<void> {
  await until('the simulated platform is made', 60_000, () => {
    dead?.throwIfAborted()
    return existsSync(join(stateDir, 'simulator/root.pem'))
  })
}
