// Waiting for the gateway's VMs of a whole appliance. Effects: asks the operator's socket.

import { join } from 'node:path'
import type { AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import { adminSocketName } from '../../../src/contract/admin/sockets.ts'
import type { Appliance } from '../appliance.ts'
import { until } from '../until.ts'

const startMs = 600_000
const pollMs = 50
const logLinesShown = 40

/** Not by the command line: its start costs what a VM needs to boot. */
export async function listGatewayVms({ stateDir }: Pick<Appliance, 'stateDir'>): Promise<AdminGatewayVms['gateways']> {
  const response = await fetch('http://operator/inference', { unix: join(stateDir, adminSocketName) })
  if (!response.ok) throw new Error(`GET /inference: ${response.status}: ${await response.text()}`)
  return ((await response.json()) as AdminGatewayVms).gateways
}

/** The VM that serves all models, once it differs from `other`. The error holds the last status. */
export async function servingGatewayVm(appliance: Appliance, other: string | null = null): Promise<string> {
  let found = ''
  const isThere = async () => {
    const gatewayVm = (await listGatewayVms(appliance)).find(({ state }) => state === 'serving')
    found = gatewayVm?.vm ?? ''
    await Bun.sleep(pollMs)
    return found !== '' && found !== other && gatewayVm?.problem === null
  }
  await until('a gateway VM serves', startMs, isThere).catch(async error => {
    const shown = [await appliance.cli('inference', 'show'), await appliance.cli('inference', 'logs')]
    const log = appliance.log().split('\n').slice(-logLinesShown)
    throw new Error([error.message, ...shown.map(result => result.stdout), ...log].join('\n'))
  })
  return found
}
