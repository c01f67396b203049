// Waiting for the gateway's VMs of a whole appliance. Effects: asks the operator's socket.

import { join } from 'node:path'
import type { AdminGateways } from '../../../src/contract/admin/gateways.ts'
import { adminSocketName } from '../../../src/contract/admin/sockets.ts'
import type { Appliance } from '../appliance.ts'
import { until } from '../until.ts'

const startMs = 600_000
const pollMs = 50
const logLinesShown = 40

/** Not by the command line: its start costs what a VM needs to boot. */
export async function gatewaysOf({ stateDir }: Pick<Appliance, 'stateDir'>): Promise<AdminGateways['gateways']> {
  const response = await fetch('http://operator/inference', { unix: join(stateDir, adminSocketName) })
  if (!response.ok) throw new Error(`GET /inference: ${response.status}: ${await response.text()}`)
  return ((await response.json()) as AdminGateways).gateways
}

/** The VM that serves all models, once it differs from `other`. The error holds the last status. */
export async function servingGateway(appliance: Appliance, other: string | null = null): Promise<string> {
  let found = ''
  const isThere = async () => {
    const gateway = (await gatewaysOf(appliance)).find(({ state }) => state === 'serving')
    found = gateway?.vm ?? ''
    await Bun.sleep(pollMs)
    return found !== '' && found !== other && gateway?.problem === null
  }
  await until('a gateway VM serves', startMs, isThere).catch(async error => {
    const shown = [await appliance.cli('inference', 'show'), await appliance.cli('inference', 'logs')]
    const log = appliance.log().split('\n').slice(-logLinesShown)
    throw new Error([error.message, ...shown.map(result => result.stdout), ...log].join('\n'))
  })
  return found
}
