// How much longer the requests of one key take while another fills the upstream and its queue. Effects: two servers on
// free ports.

import { Fault } from '../../../src/base/fault.ts'
import { CALLER, chatBody, startHostGateway, target } from './server.ts'
import { startUpstream, wellBehaved } from './upstream-server.ts'

export type Neighbours = {
  /** Requests that the other key has under way, all the time. */
  readonly held: number
  /** Places of the upstream. */
  readonly places: number
  readonly sameOrganization: boolean
}

const serviceMs = 60
const asked = 21

/** Medians in milliseconds of requests one after the other: alone, and beside the neighbour. */
export async function measureNeighbours({ held, places, sameOrganization }: Neighbours): Promise<{
  readonly aloneMs: number
  readonly besideMs: number
}> {
  const upstream = await startUpstream(async (response, seen, gone) => {
    await Bun.sleep(serviceMs)
    await wellBehaved(response, seen, gone)
  })
  await using gateway = startHostGateway([target(upstream.url, { concurrencyMax: places })], {
    host: {
      authenticate: headers => {
        const keyPrefix = headers.get('authorization')?.replace('Bearer ', '') ?? ''
        if (keyPrefix !== 'neighbor' && keyPrefix !== 'observer') throw new Fault('unauthenticated', 'No such key.')
        const organizationId = sameOrganization ? 'o1' : keyPrefix
        return { ...CALLER, keyPrefix, organizationId, requestsPerMinute: 1_000_000, tokensPerMinute: 1_000_000_000 }
      },
    },
  })
  const ask = async (key: string) => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const init = { method: 'POST', headers, body: JSON.stringify(chatBody()) }
    const response = await fetch(`${gateway.url}/v1/chat/completions`, init)
    await response.arrayBuffer()
    if (response.status !== 200) throw new Error(`a request of ${key} got ${response.status}`)
  }
  const median = async () => {
    const times: number[] = []
    for (let count = 0; count < asked; count += 1) {
      const startedMs = performance.now()
      await ask('observer')
      times.push(performance.now() - startedMs)
    }
    return times.sort((a, b) => a - b)[(asked - 1) / 2] ?? Number.NaN
  }
  let isOver = false
  const neighbour = async () => {
    while (!isOver) await ask('neighbor')
  }
  try {
    const aloneMs = await median()
    const all = Array.from({ length: held }, neighbour)
    await Bun.sleep(2 * serviceMs)
    const besideMs = await median()
    isOver = true
    await Promise.all(all)
    return { aloneMs, besideMs }
  } finally {
    isOver = true
    await upstream.stop()
  }
}
