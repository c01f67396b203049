// Goal: revoking a key leaves its running stream whole, as `help operators` promises, and admits nothing more.

import { expect, test } from 'bun:test'
import { chatBody, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream, wellBehaved } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { startRealGateway } from '../../rigs/gateway/real-gateway.ts'

test('goal: a stream that runs when its key is revoked ends normally; the next request is 401', async () => {
  const revoked = Promise.withResolvers<void>()
  const upstream = await startUpstream(async (response, seen, gone) => {
    await revoked.promise
    await wellBehaved(response, seen, gone)
  })
  await using gateway = await startRealGateway([target(upstream.url)])
  const key = await gateway.addKey()
  const stream = gateway.post('/v1/chat/completions', chatBody({ stream: true }), { key })
  const { status, body } = await stream
  // The headers are there while the upstream has sent nothing: the request was admitted.
  expect(status).toBe(200)
  await gateway.revokeKey(key)
  const next = await gateway.post('/v1/chat/completions', chatBody({}), { key })
  expect([next.status, upstream.seen.length]).toEqual([401, 1])
  revoked.resolve()
  const text = await new Response(body).text()
  expect(text).toEndWith('data: [DONE]\n\n')
  expect(text).toContain('"finish_reason":"stop"')
  await upstream.stop()
})
