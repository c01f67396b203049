// The cost of a request, for a client that asks for it.

import { expect, test } from 'bun:test'
import { startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'

// Goal: whoever asks learns exactly what the ledger charges; nobody else gets the header, nor does a stream, whose cost
// is not known when its headers leave, or a request that no upstream was asked for.
test('with a whole response, on request', async () => {
  const upstream = await startUpstream()
  await using gateway = startHostGateway([target(upstream.url)])
  const costOf = async (body: Record<string, unknown>, headers: Record<string, string>) => {
    const response = await gateway.chat(body, { headers })
    await response.text()
    return [response.status, response.headers.get('x-strongroom-cost-usd')]
  }
  const asks = { 'x-strongroom-cost': '1' }
  // The price of these tests: 7 nano-dollars.
  expect(await costOf({}, asks)).toEqual([200, '0.000000007'])
  expect(await costOf({}, {})).toEqual([200, null])
  expect(await costOf({}, { 'x-strongroom-cost': '0' })).toEqual([200, null])
  expect(await costOf({ stream: true }, asks)).toEqual([200, null])
  expect(await costOf({ model: 'other' }, asks)).toEqual([404, null])
  await upstream.stop()
})
