// The four programs of load.alone.test.ts, each a process: `upstream`, `gateway URL http|https`, `clients URL KEY CA`,
// `stalled URL KEY CA`. CA is "" for http. Each prints JSON lines: first its readiness, last its results.

import { connect } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { selfSigned } from '../../../scripts/rigs/gateway/raw-upstream.ts'
import { chatBody, target } from '../../../scripts/rigs/gateway/server.ts'
import { isEnclave, viewOf } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { readPair } from '../../../src/http/pair.ts'
import { serveTls } from '../../../src/http/serve.ts'
import { EVENTS, INTERVAL_MS, STALLED_BYTES, STREAMS } from './load-plan.ts'
import { type RealGateway, startRealGateway, startRealHostGateway } from './real-gateway.ts'
import { trustedCa } from './socket.ts'

const say = (line: unknown) => process.stdout.write(`${JSON.stringify(line)}\n`)
const event = (content: string) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`
const end = `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}\n\ndata: [DONE]\n\n`
const [mode, url = '', key = '', ca = ''] = process.argv.slice(2)

if (mode === 'upstream') upstream()
// Said last: whoever reads it ends this process.
if (mode === 'gateway') say(await gateway())
if (mode === 'clients') await clients()
if (mode === 'stalled') await stalled()

/** Begins every stream, and goes on when all are there. One stream is as fast as its reader, 64 KiB an event. */
function upstream(): void {
  let paced = 0
  let stalledBytes = 0
  const all = Promise.withResolvers<void>()
  const encoder = new TextEncoder()
  const large = encoder.encode(event('x'.repeat(65_536)))
  async function* pace() {
    yield encoder.encode(event(`t${Date.now()} `))
    paced += 1
    if (paced === STREAMS) {
      say({ atOnce: paced })
      all.resolve()
    }
    await all.promise
    for (let count = 1; count < EVENTS; count += 1) {
      await Bun.sleep(INTERVAL_MS)
      yield encoder.encode(event(`t${Date.now()} `))
    }
    yield encoder.encode(end)
  }
  const flood = () =>
    new ReadableStream({
      type: 'bytes',
      pull: controller => {
        if (stalledBytes >= STALLED_BYTES) return controller.close()
        stalledBytes += large.length
        controller.enqueue(large.slice())
      },
    })
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 120,
    fetch: async request => {
      if (new URL(request.url).pathname === '/stalled-bytes') return Response.json({ stalledBytes })
      const body = (await request.json()) as { user: string }
      const headers = { 'content-type': 'text/event-stream' }
      return new Response(body.user === 'stalled' ? flood() : streamOf(pace()), { headers })
    },
  })
  say({ url: `http://127.0.0.1:${server.port}/v1` })
}

function streamOf(pieces: AsyncGenerator<Uint8Array>): ReadableStream {
  return new ReadableStream({
    pull: async controller => {
      const { done, value } = await pieces.next()
      if (done) controller.close()
      else controller.enqueue(value)
    },
  })
}

/** Results when its input ends; it leaves nothing behind. */
async function gateway(): Promise<unknown> {
  const slow = { firstByteTimeoutMs: 60_000, idleTimeoutMs: 60_000, queueTimeoutMs: 60_000, connectTimeoutMs: 20_000 }
  const upstreams = [target(url, { concurrencyMax: STREAMS + 1 })]
  await using gateway = isEnclave ? await startRealGateway(upstreams, slow) : startRealHostGateway(upstreams, slow)
  const front = key === 'https' ? await secured(gateway) : { url: gateway.url, ca: '' }
  say({ ...front, key: await gateway.addKey(), pid: gateway.pid })
  await new Response(Bun.stdin.stream()).text()
  const running = async () => (await viewOf(gateway)).running
  await until('all have ended', 10_000, async () => (await running()) === 0).catch(() => {})
  const { requests, completionTokens } = await gateway.usage()
  return {
    requests,
    completionTokens: Number(completionTokens),
    running: await running(),
    log: (await gateway.log()).slice(0, 5),
  }
}

/** In front of the same gateway, as the appliance serves it; one in a VM has this in front of it already. */
async function secured(
  item: RealGateway | ReturnType<typeof startRealHostGateway>,
): Promise<{ url: string; ca: string }> {
  if (!('gateway' in item)) return { url: item.url, ca: trustedCa() }
  const { gateway } = item
  const { cert, key: privateKey } = await selfSigned('127.0.0.1')
  const verdict = readPair(cert, privateKey)
  if (!verdict.ok) throw new Error(verdict.reason)
  const { pair } = verdict
  const server = serveTls((request, bun) => gateway.fetch(request, () => bun.requestIP(request)?.address ?? ''), {
    hostname: '127.0.0.1',
    port: 0,
    tls: { current: () => pair, guestCertificate: () => pair.cert, onChange: () => {} },
    idleTimeoutSeconds: 120,
    requestBodyBytesMax: 1_048_576,
    log: silentLogger,
  })
  return { url: `https://127.0.0.1:${server.port}`, ca: cert }
}

function rawRequest(user: string): string {
  const body = JSON.stringify(chatBody({ stream: true, user }))
  return [
    'POST /v1/chat/completions HTTP/1.1',
    'Host: gateway',
    `Authorization: Bearer ${key}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    '',
    body,
  ].join('\r\n')
}

/** By sockets: fetch of this runtime would be what is measured. */
async function clients(): Promise<void> {
  const delaysMs: number[] = []
  let done = 0
  let closedEarly = 0
  let events = 0
  const port = Number(new URL(url).port)
  for (let index = 0; index < STREAMS; index += 1) {
    let tail = ''
    let isDone = false
    const begin = () => void socket.write(rawRequest(String(index)))
    const socket = ca === '' ? connect(port, '127.0.0.1', begin) : connectTls({ port, host: '127.0.0.1', ca }, begin)
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      const lines = (tail + text).split('\n')
      tail = lines.pop() ?? ''
      for (const line of lines) {
        const [, sentMs] = /"content":"t(\d+) "/.exec(line) ?? []
        if (sentMs !== undefined) {
          events += 1
          delaysMs.push(Date.now() - Number(sentMs))
        } else if (line === 'data: [DONE]') {
          isDone = true
          done += 1
          socket.destroy()
        }
      }
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      closedEarly += isDone ? 0 : 1
    })
    // As fast as they are taken: the kernel's queue of new connections is short.
    if (index % 50 === 49) await Bun.sleep(5)
  }
  await until('all have ended', 50_000, () => done + closedEarly === STREAMS).catch(() => {})
  delaysMs.sort((a, b) => a - b)
  const at = (share: number) => delaysMs[Math.min(delaysMs.length - 1, Math.floor(delaysMs.length * share))]
  say({ done, closedEarly, events, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1) })
  process.exit(0)
}

/** Reads one piece, and never again. Blocked, so that nothing of it reads on. */
async function stalled(): Promise<void> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody({ stream: true, user: 'stalled' })),
    ...(ca === '' ? {} : { tls: { ca } }),
  })
  await response.body?.getReader().read()
  say({ status: response.status })
  Bun.sleepSync(120_000)
}
