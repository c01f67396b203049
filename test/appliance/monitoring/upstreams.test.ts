// Goal: the watch reports what an upstream answered its probe with, and the file of the key that it did not accept.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createUpstreamWatch } from '../../../src/appliance/monitoring/upstreams.ts'
import type { Clock } from '../../../src/base/clock.ts'
import { parseConfig } from '../../../src/config/parse.ts'

// Goal: 200 is no problem; any other status is one by its number, and the upstream still gets requests.
test.each([
  [200, 'openai', null],
  [401, 'openai', '/v1/models'],
  [503, 'openai', '/v1/models'],
  [404, 'text-embeddings-inference', '/health'],
] as const)('an answer of %d by %s', async (status, engine, path) => {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-upstreams-'))
  const keyFile = join(dir, 'key')
  writeFileSync(keyFile, 'an-old-key\n')
  const asked: string[] = []
  await using server = Bun.serve({
    ...{ hostname: '127.0.0.1', port: 0 },
    fetch: request => {
      asked.push(`${new URL(request.url).pathname} ${request.headers.get('authorization')}`)
      return new Response('{}', { status, headers: { 'content-type': 'application/json' } })
    },
  })
  const round = Promise.withResolvers<void>()
  const clock = clockOfOneRound(round.resolve)
  const stop = new AbortController()
  let gatewayMetrics = ''
  const gateway = { workload: 'metrics-collector', render: () => gatewayMetrics } as const
  try {
    const base = engine === 'openai' ? '/v1' : ''
    const url = `http://127.0.0.1:${server.port}${base}`
    const watch = createUpstreamWatch({
      config: configOf({ url, engine, keyFile }),
      clock,
      workerProblem: () => null,
      collectors: [gateway],
    })
    const running = watch.run(stop.signal)
    await round.promise
    const [seen] = watch.view()
    if (path === null) expect(seen).toMatchObject({ problem: null, isDown: false })
    else
      expect(seen).toMatchObject({
        problem: `it answers GET http://127.0.0.1:${server.port}${path} with ${status}`,
        ...{ isDown: false, refusal: { status, keyFile } },
      })
    // The gateway ejects an upstream that refuses prompts as well: the status is still the cause.
    gatewayMetrics = '# TYPE strongroom_upstream_healthy gauge\nstrongroom_upstream_healthy{upstream="u"} 0\n'
    const [ejected] = watch.view()
    expect(ejected).toMatchObject({ isDown: true, ...(path === null ? {} : { refusal: { status, keyFile } }) })
    expect(ejected?.problem).toMatch(
      path === null ? /^several requests/ : / with \d+, and several requests in a row failed$/,
    )
    expect(new Set(asked)).toEqual(new Set([`${path ?? '/v1/models'} Bearer an-old-key`]))
    stop.abort()
    await running
  } finally {
    stop.abort()
    rmSync(dir, { recursive: true })
  }
})

/** The pauses of the watch end at once until the round is over; deadlines, which sleep without a signal, never end. */
function clockOfOneRound(onRound: () => void): Clock {
  const forever = (signal: AbortSignal) =>
    new Promise<void>((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  const sleep = (ms: number, signal?: AbortSignal) => {
    if (signal === undefined) return new Promise<void>(() => {})
    if (ms < 60_000) return Promise.resolve()
    onRound()
    return forever(signal)
  }
  return { nowMs: () => 0, monotonicMs: () => 0, sleep }
}

function configOf({ url, engine, keyFile }: { url: string; engine: string; keyFile: string }) {
  const uses = engine === 'openai' ? '' : 'embedding_models = ["m"]'
  const verdict = parseConfig(
    `[listen]
inference = "127.0.0.1:0"
[inference]
placement = "host"
[[inference.upstreams]]
name = "u"
url = "${url}"
models = ["m"]
engine = "${engine}"
key_file = "${keyFile}"
${uses}
`,
    'f',
  )
  if (!verdict.ok) throw new Error(JSON.stringify(verdict))
  return verdict.config
}
