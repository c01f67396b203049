// The appliance that scenarios run on. Effects: waits for one.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance, createAppliance } from '../../test/rigs/appliance.ts'
import { until } from '../../test/rigs/until.ts'

/** Arguments of `createAppliance`: no limits that many runs would meet, no timers that blur which effect is the next. `tables` are further lines by table. */
export function calmSettings(tables: Readonly<Record<string, string>> = {}): Parameters<typeof createAppliance> {
  const calm: Record<string, string> = {
    vm: 'stop_grace_ms = 200',
    instances: 'creates_per_day_max = 1_000_000\nrecords_per_organization_max = 10_000',
    network: 'address_rest_s = 0',
  }
  for (const [table, lines] of Object.entries(tables)) calm[table] = `${calm[table] ?? ''}\n${lines}`
  return ['', 'vm', undefined, '', calm]
}

/** Resolves once the daemon has made what it makes once, some seconds after its first start. Throws when `dead` is aborted. */
export async function settledStart({ stateDir }: Appliance, dead?: AbortSignal): Promise<void> {
  await until('the simulated platform is made', 60_000, () => {
    dead?.throwIfAborted()
    return existsSync(join(stateDir, 'simulator/root.pem'))
  })
}
