// Gain of several processes on one port: requests per second and CPU of two relays with their owner, beside one
// process. Where cores are too few for all of them and the client, the rates say little; the owner's cost per request
// shows where scaling ends. Effects: starts gateways.

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
  const [alone, relayed] = ['one process', 'two relays']
  const us = (name: string, key: 'ownCpuUs' | 'cpuUs') => round(costs.median(name, key))
  return {
    processScaling2: { value: round(costs.ratio(relayed, alone, 'perSecond')), unit: '', aim: null },
    perCoreRatio: { value: round(costs.ratio(alone, relayed, 'cpuUs')), unit: '', aim: { atLeast: 0.91 } },
    ownerCpuUsPerRequest: {
      value: us(relayed, 'ownCpuUs'),
      unit: 'µs',
      aim: null,
      baseline: 'aloneCpuUsPerRequest',
    },
    aloneCpuUsPerRequest: { value: us(alone, 'cpuUs'), unit: 'µs', aim: null },
    relayedCpuUsPerRequest: { value: us(relayed, 'cpuUs'), unit: 'µs', aim: null },
    // A chunk costs the relays alone: they report to the owner once a second.
    relayedChunkCpuRatio: { value: round(costs.ratio(relayed, alone, 'chunkUs')), unit: '', aim: null },
  }
}
