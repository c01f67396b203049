// What several processes on one port bring: requests per second and CPU of two relays with their owner, beside one process. On a machine with fewer cores
// than all of them and the client need, the rates say little; what one request costs the owner says where scaling ends. Effects: starts gateways.

import { present } from '../../../src/base/assert.ts'
import type { Figures } from '../bench-report.ts'
import { type CostRig, costsInTurns, round } from './cost.ts'
import { startOurs } from './processes.ts'

export async function measureRelays(rig: CostRig): Promise<Figures> {
  await using ours = await startOurs(rig.folder, rig.stub, { processes: 1, pair: null })
  await using two = await startOurs(rig.folder, rig.stub, { processes: 2, pair: null })
  const costs = await costsInTurns(rig, [
    { name: 'one process', forRequests: ours, forChunks: ours },
    { name: 'two relays', forRequests: two, forChunks: two },
  ])
  const alone = present(costs.get('one process'), 'it was measured')
  const relayed = present(costs.get('two relays'), 'they were measured')
  return {
    processScaling2: { value: round(relayed.perSecond / alone.perSecond), unit: '', aim: null },
    ownerCpuUsPerRequest: { value: round(relayed.ownCpuUs), unit: 'µs', aim: null, baseline: 'aloneCpuUsPerRequest' },
    aloneCpuUsPerRequest: { value: round(alone.cpuUs), unit: 'µs', aim: null },
    relayedCpuUsPerRequest: { value: round(relayed.cpuUs), unit: 'µs', aim: null },
    // What a chunk costs is the relays' alone: the owner is told of it once a second.
    relayedChunkCpuRatio: { value: round(relayed.chunkUs / alone.chunkUs), unit: '', aim: null },
  }
}
