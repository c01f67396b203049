// The stock EHBP client against the whole gateway over HTTPS, in Bun and in Node: chats, streams, tools, errors,
// changed keys.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { ehbpKeys } from '../../../scripts/rigs/gateway/ehbp.ts'
import { target } from '../../../scripts/rigs/gateway/server.ts'
import { isEnclave } from '../../../scripts/rigs/gateway/test-gateway.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { type RealGateway, startRealGateway, startRealHostGateway } from '../../rigs/gateway/real-gateway.ts'
import { nodeMajor } from '../../rigs/portable/runtimes.ts'

const program = resolve(import.meta.dir, '../../rigs/gateway/stock-ehbp-client.mjs')
const timeoutMs = 120_000

const stack = new AsyncDisposableStack()
let gateway: RealGateway
let url = ''
let caFile = ''

beforeAll(async () => {
  const folder = mkdtempSync(join(tmpdir(), 'srt-ehbp-'))
  stack.defer(() => rmSync(folder, { recursive: true, force: true }))
  const upstream = await startUpstream()
  stack.defer(upstream.stop)
  if (isEnclave) {
    gateway = stack.use(await startRealGateway([target(upstream.url)]))
    caFile = process.env.NODE_EXTRA_CA_CERTS ?? ''
    url = gateway.url
    return
  }
  const host = stack.use(startRealHostGateway([target(upstream.url)]))
  gateway = host
  const names = ['localhost']
  const authority = await openAuthority({
    kind: 'clients',
    stateDir: folder,
    names,
    nowMs: systemClock.nowMs,
    random: systemRandom,
  })
  caFile = join(folder, 'ca-for-clients.pem')
  writeFileSync(caFile, authority.caPem)
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: await authority.issue(['127.0.0.1'], 1),
    fetch: (request, bun) => host.gateway.fetch(request, () => bun.requestIP(request)?.address ?? ''),
  })
  stack.defer(() => server.stop(true))
  url = `https://127.0.0.1:${server.port}`
})
afterAll(() => stack.disposeAsync())

async function resultsIn(command: string): Promise<unknown> {
  const child = Bun.spawn([command, program, url, await gateway.addKey(), toHex(ehbpKeys.publicKeys.x25519)], {
    env: { ...process.env, NODE_EXTRA_CA_CERTS: caFile },
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: timeoutMs,
  })
  const [output, errors] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (child.exitCode !== 0) throw new Error(`${command}: exit status ${child.exitCode}: ${errors}`)
  return JSON.parse(output)
}

const TEXT = 'Grüße 👋 you'
const EXPECTED = {
  whole: [200, TEXT],
  streamed: [200, true, true],
  badJson: [400, 'invalid_request'],
  badModel: [404, 'not_found'],
  badKey: [401, 'unauthenticated'],
  tooLarge: [413, 'body_too_large'],
  otherKeys: true,
  openai: [TEXT, 14],
  openaiTools: ['weather', '{"city":"Oslo"}'],
  openaiError: ['NotFoundError', 404, 'not_found'],
  openaiText: TEXT,
}

async function judge(command: string): Promise<void> {
  const before = await gateway.usage()
  expect(await resultsIn(command)).toEqual({ ...EXPECTED, models: [...gateway.models] })
  // Whole, streamed, OpenAI's whole, tools and text: each metered once, and nothing else.
  const after = await gateway.usage()
  expect([
    after.requests - before.requests,
    after.promptTokens - before.promptTokens,
    after.completionTokens - before.completionTokens,
  ]).toEqual([5, 55n, 15n])
}

test('goal: in Bun it does all that it does with any server', () => judge(process.execPath), timeoutMs)

const noNode = skipUnless(nodeMajor() >= 20, 'needs Node 20 or later')
test.skipIf(noNode)('goal: and in Node', () => judge('node'), timeoutMs)

test('goal: the encrypted requests are counted, and no prompt or answer is in the log', async () => {
  expect(await gateway.metrics()).toMatch(/encrypted_requests_total\{suite="x25519",outcome="decrypted"\} [1-9]/)
  for (const word of ['Hello', 'Grüße', 'Oslo']) expect((await gateway.log()).join('\n')).not.toContain(word)
})
