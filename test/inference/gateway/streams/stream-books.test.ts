// Goal: whatever ends a stream, its client has the end only when the usage is in the books, however long they take.

import { expect, test } from 'bun:test'
import { IMPATIENT, startGateway, target } from '../../../../scripts/rigs/gateway/server.ts'
import { needsHost } from '../../../../scripts/rigs/gateway/test-gateway.ts'
import { type Behaviour, delta, openSse, sse, startUpstream } from '../../../../scripts/rigs/gateway/upstream-server.ts'

const ENDS: readonly (readonly [string, Behaviour])[] = [
  ['its end', response => void response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)],
  ['an event of no kind', response => void response.end(sse(delta({}, 'of no kind')))],
  ['a cut', response => void response.socket?.destroy()],
  ['silence', () => {}],
]

// Goal: the books come first.
test.skipIf(needsHost('its books are slow')).each(ENDS)('goal: %s', async (name, end) => {
  const upstream = await startUpstream((response, seen, gone) => {
    openSse(response)
    response.write(sse(delta({ content: 'word' })))
    return end(response, seen, gone)
  })
  const order: string[] = []
  const recordUsage = async () => {
    await Bun.sleep(100)
    order.push('booked')
  }
  await using gateway = await startGateway([target(upstream.url)], {
    host: { recordUsage },
    limits: name === 'silence' ? IMPATIENT : {},
  })
  const answer = await gateway.chat({ stream: true })
  expect(await answer.text()).toContain(answer.status === 200 ? 'word' : 'upstream_failed')
  order.push('ended')
  expect(order).toEqual(['booked', 'ended'])
  await upstream.stop()
})
