// Goal: an idle connection to the gateway is closed soon, for every client; slow responses and streams with pauses
// are not cut.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { gatewaySettings } from '../../src/appliance/inference.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { listenAddress } from '../../src/config/listen.ts'
import { parseConfig } from '../../src/config/parse.ts'
import { openAuthority } from '../../src/http/authority.ts'
import { gatewayHandler } from '../../src/inference/gateway/handler.ts'
import { listenWith } from '../../src/inference/relay/listen.ts'

/** Well above the idle time of 1 s, which Bun rounds up to its timer's 4 s. */
const slowMs = 14_000
/** After it the test leaves by itself. */
const leaveMs = 60_000

const stateDir = mkdtempSync(join(tmpdir(), 'strongroom-idle-'))
afterAll(() => rmSync(stateDir, { recursive: true }))
const authority = await openAuthority({
  kind: 'clients',
  stateDir,
  nowMs: Date.now,
  names: ['a.test'],
  random: systemRandom,
})
const issued = await authority.issue(['a.test'], 30)
const pair = { ...issued, notBeforeMs: 0, notAfterMs: 0, fingerprint: '', names: '' }

const ANSWERS: Record<string, () => Promise<Response>> = {
  '/refused': async () => new Response('no', { status: 401 }),
  '/health': async () => new Response('ok'),
  '/slow': async () => {
    await Bun.sleep(slowMs)
    return new Response('slow ok')
  },
  '/stream': async () => {
    const body = new ReadableStream({
      start: async controller => {
        controller.enqueue(Buffer.from('first'))
        await Bun.sleep(slowMs)
        controller.enqueue(Buffer.from('stream ok'))
        controller.close()
      },
    })
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } })
  },
}

test('goal: connections that wait, and connections that work', async () => {
  const toml = '[listen]\ninference = "127.0.0.1:0"\n[http]\nidle_timeout_s = 1\n[inference]\nplacement = "host"\n'
  const verdict = parseConfig(toml, 'f')
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  const settings = gatewaySettings(verdict.config)
  const handler = gatewayHandler(
    {
      fetch: async request => (await ANSWERS[new URL(request.url).pathname]?.()) ?? new Response(null, { status: 404 }),
      isDraining: () => false,
    },
    settings,
  )
  const server = listenWith(handler, {
    listen: listenAddress(verdict.config.listen.inference),
    tls: { current: () => pair, guestCertificate: () => pair.cert, onChange: () => {} },
    guestName: 'b.test',
    isShared: false,
    settings,
    log: silentLogger,
  })
  try {
    const ask = (path: string | null) => {
      const { promise, resolve } = Promise.withResolvers<{ text: string; closedMs: number }>()
      const sinceMs = performance.now()
      let text = ''
      const socket = connect(
        { host: '127.0.0.1', port: server.port, ca: authority.caPem, servername: 'a.test' },
        () => {
          if (path !== null) socket.write(`GET ${path} HTTP/1.1\r\nHost: a.test\r\n\r\n`)
        },
      )
      socket.on('data', (chunk: Buffer) => {
        text += chunk.toString()
        if (text.includes('slow ok') || text.includes('stream ok')) socket.destroy()
      })
      socket.on('error', () => {})
      socket.on('close', () => resolve({ text, closedMs: performance.now() - sinceMs }))
      setTimeout(() => socket.destroy(), leaveMs).unref()
      return promise
    }
    const [silent, refused, health, slow, stream] = await Promise.all([null, ...Object.keys(ANSWERS)].map(ask))
    // Soon: while the slow response is still to come, however long the machine takes for all of them.
    for (const waiting of [refused, health]) expect(waiting?.closedMs).toBeLessThan(slow?.closedMs ?? 0)
    // Bun closes a connection without a request after about 12 s, whatever its settings.
    expect(silent?.closedMs).toBeLessThan(leaveMs)
    expect(refused?.text).toStartWith('HTTP/1.1 401 ')
    expect(slow?.text).toContain('slow ok')
    expect(stream?.text).toContain('stream ok')
  } finally {
    await server.stop(false)
  }
}, 120_000)
