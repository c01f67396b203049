// A gateway with 400 streams at once, in a process of its own: says how many its upstream had at the same time. Run by stream-many.test.ts.

import { ensureMaxHttpRequests } from '../../src/cli/max-http-requests.ts'
import { startGateway, target } from '../services/inference/gateway-server.ts'
import { delta, openSse, sse, startUpstream } from '../services/inference/upstream-server.ts'
import { until } from '../support/until.ts'

if (process.argv[2] === 'raised') ensureMaxHttpRequests()

const count = 400
const release = Promise.withResolvers<void>()
const upstream = await startUpstream(async response => {
  openSse(response)
  response.write(sse(delta({ content: 'x' })))
  await release.promise
  response.end(`${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
})
const slow = { firstByteTimeoutMs: 20_000, idleTimeoutMs: 20_000, queueTimeoutMs: 20_000, queueMax: 1000 }
await using gateway = startGateway([target(upstream.url)], { limits: slow })
// The clients are in this process too, and share its fetch: half of what is open is theirs, so they go by sockets.
const { connect } = await import('node:net')
const { KEY, chatBody } = await import('../services/inference/gateway-server.ts')
const body = JSON.stringify(chatBody({ stream: true }))
const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${KEY}\r\nContent-Length: ${body.length}\r\n\r\n`
let done = 0
for (let i = 0; i < count; i += 1) {
  const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(head + body))
  socket.on('data', data => {
    if (data.includes('[DONE]')) done += 1
  })
}
await until('all are there, or no more come', 3_000, () => upstream.active() === count).catch(() => {})
const atOnce = upstream.active()
release.resolve()
await until('all have ended', 10_000, () => done === count)
process.stdout.write(JSON.stringify({ atOnce, done, records: gateway.records.length }))
process.exit(0)
