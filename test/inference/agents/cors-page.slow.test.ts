// A page of another origin in Chromium, which calls the gateway itself: no request is routed by the test.

import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { launchChromium } from '../../../scripts/rigs/chromium.ts'
import { KEY, MODEL, startHostGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'

/** In the page. */
const script = `async (url, key, model) => {
  const read = async (path, init) => {
    try {
      const answer = await fetch(url + path, init)
      return [answer.status, answer.headers.get('x-request-id') !== null, (await answer.text()).slice(-16)]
    } catch (error) {
      return String(error)
    }
  }
  const headers = { authorization: 'Bearer ' + key, 'content-type': 'application/json', 'x-stainless-lang': 'js' }
  const body = JSON.stringify({ model, stream: true, messages: [{ role: 'user', content: 'Hello' }] })
  return {
    health: await read('/health'),
    evidence: await read('/attestation', { headers: { 'x-attestation-nonce': 'x' } }),
    chat: await read('/v1/chat/completions', { method: 'POST', headers, body }),
    stranger: await read('/v1/models', { headers: { authorization: 'Bearer x' } }),
    credentials: await read('/v1/models', { headers, credentials: 'include' }),
  }
}`

// Goal: a page of an origin that the operator names streams with its key and reads refusals; another page reads the
// evidence alone.
test('pages', async () => {
  await using undo = new AsyncDisposableStack()
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  const serve = () => {
    const server = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: () => new Response('<!doctype html>', { headers: { 'content-type': 'text/html' } }),
    })
    undo.defer(() => server.stop(true))
    return `http://127.0.0.1:${server.port}`
  }
  const [named, other] = [serve(), serve()]
  const gateway = undo.use(startHostGateway([target(upstream.url)], { limits: { corsOrigins: [named] } }))
  const profile = mkdtempSync(join(tmpdir(), 'srt-chromium-'))
  undo.defer(() => rmSync(profile, { recursive: true, force: true }))
  const context = await launchChromium(profile)
  undo.defer(() => context.close())
  const seenBy = async (origin: string) => {
    const page = await context.newPage()
    await page.goto(origin, { timeout: 60_000 })
    const call = `(${script})(${[gateway.url, KEY, MODEL].map(text => JSON.stringify(text)).join()})`
    return (await page.evaluate(call)) as Record<string, unknown>
  }
  const failed = 'TypeError: Failed to fetch'
  expect(await seenBy(named)).toMatchObject({
    health: [200, true, '{"status":"ok"}'],
    evidence: [503, true, expect.any(String)],
    chat: [200, true, expect.stringContaining('data: [DONE]')],
    stranger: [401, true, expect.any(String)],
    credentials: failed,
  })
  expect(await seenBy(other)).toMatchObject({
    health: [200, true, '{"status":"ok"}'],
    evidence: [503, true, expect.any(String)],
    chat: failed,
    stranger: failed,
    credentials: failed,
  })
}, 120_000)
