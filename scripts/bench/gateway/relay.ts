// A relay with nothing of the gateway but its upstream client: Bun.serve, and the bytes passed on unread. Shows what
// the runtime itself costs. Run by gateway.bench.ts with the stub's port and the files of a certificate (JSON), or null
// for plain HTTP; writes its own port.

import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { openAttempt, UpstreamClient } from '../../../src/inference/upstream/client.ts'
import type { UpstreamTarget } from '../../../src/inference/upstream/target.ts'
import { benchModel, type PairFiles } from './wire.ts'

const [stubPort = '', pairText = 'null'] = process.argv.slice(2)
const pair: PairFiles | null = JSON.parse(pairText)
const target: UpstreamTarget = {
  name: 'stub',
  url: `http://127.0.0.1:${stubPort}/v1`,
  unixSocket: null,
  key: null,
  engine: 'openai',
  choicesMax: 1,
  contextTokens: null,
  content: [],
  remoteUrls: false,
  embeddingModels: [],
  models: [benchModel],
  weight: 1,
  concurrencyMax: 65_536,
  ca: null,
  spkiSha256: null,
}
const timeouts = { connectMs: 5_000, firstByteMs: 60_000 }
const upstream = new UpstreamClient({ deadlines: createDeadlines(systemClock), timeouts })
const headers = { 'content-type': 'application/json' }
const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  development: false,
  ...(pair === null ? {} : { tls: { cert: Bun.file(pair.certFile), key: Bun.file(pair.keyFile) } }),
  fetch: async request => {
    const body = await request.text()
    const attempt = openAttempt()
    const answer = await upstream.send(target, { path: '/chat/completions', body, stream: false, attempt })
    const chunks: Uint8Array[] = []
    for (let bytes = await answer.read(); bytes !== null; bytes = await answer.read()) chunks.push(bytes)
    return new Response(Buffer.concat(chunks), { headers })
  },
})
process.stdout.write(`${server.port}\n`)
process.on('SIGTERM', () => process.exit(0))
