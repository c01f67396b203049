// The gateway in the host's own process with its built-in worker: one appliance, whose tests follow each other.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import OpenAI from 'openai'
import { pinGateway } from '../../scripts/lib/gateway-pins.ts'
import { type Appliance, createAppliance, executable } from '../../scripts/rigs/appliance.ts'
import {
  caOf,
  createGatewayClient,
  createModelFile,
  descendants,
  type GatewayClient,
  gatewayClient,
  gatewayTables,
  gatewayUrl,
  PRICE,
  workerModel,
  workerResponds,
} from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { type Customer, createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { killFound } from '../../scripts/rigs/kill.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { GatewayUsageRows } from '../../src/contract/http/inference.ts'
import { expectNoSecret } from '../rigs/guest/no-secret.ts'

const timeoutMs = 600_000
const stepMs = 120_000
const model = workerModel
const messages = [{ role: 'user' as const, content: 'hello the world' }]
const text = { model, prompt: 'hello the world', max_tokens: 8, temperature: 0 }
const chat = { model, messages, max_tokens: 8, temperature: 0 }

type Usage = { prompt_tokens: number; completion_tokens: number; total_tokens: number }
type Body = { usage?: Usage; error?: { code: string } }
type Spent = { prompt: number; completion: number }

const json = async (response: Response) => (await response.json()) as Body
const newNonce = () => randomBytes(32).toString('base64url')
const rootFile = (appliance: Appliance) => join(appliance.stateDir, 'simulator/root.pem')

/** The simulator's keys take seconds to make, once; until then the response is 503. */
async function freshAttestation(client: GatewayClient, nonce: string): Promise<{ status: number; body: Uint8Array }> {
  let found = { status: 0, body: new Uint8Array() }
  await until('there is evidence', 60_000, async () => {
    const response = await client.get(`/attestation?nonce=${nonce}`)
    found = { status: response.status, body: new Uint8Array(await response.arrayBuffer()) }
    return found.status !== 503
  })
  return found
}

function add(spent: Spent, usage: Usage | undefined | null): void {
  if (!usage) throw new Error('a response without usage')
  expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens)
  spent.prompt += usage.prompt_tokens
  spent.completion += usage.completion_tokens
}

/** `1.5` dollars of 1,500,000 micro-dollars, at least two decimals. */
function dollars(microUsd: number): string {
  const [whole, fraction = ''] = (microUsd / 1e6).toFixed(6).split('.')
  return `${whole}.${fraction.replace(/0{1,4}$/, '')}`
}

const listed = { context_length: 32_768, pricing: { prompt: '0.000003', completion: '0.000007' } }

async function byFetch(client: GatewayClient, spent: Spent): Promise<void> {
  expect(await (await client.get('/health')).json()).toEqual({ status: 'ok' })
  expect(await (await client.get('/v1/models')).json()).toEqual({
    object: 'list',
    data: [{ id: model, object: 'model', created: expect.any(Number), owned_by: 'strongroom', ...listed }],
  })
  const whole = await client.post('/v1/chat/completions', chat)
  expect(whole.status).toBe(200)
  expect(whole.headers.get('x-ratelimit-limit-requests')).toBe('100000')
  add(spent, (await json(whole)).usage)
  const completion = await client.post('/v1/completions', text)
  expect(completion.status).toBe(200)
  add(spent, (await json(completion)).usage)

  const stream = await client.post('/v1/chat/completions', {
    ...chat,
    stream: true,
    stream_options: { include_usage: true },
  })
  expect(stream.headers.get('content-type')).toStartWith('text/event-stream')
  const events = (await stream.text()).split('\n\n').filter(Boolean)
  expect(events.at(-1)).toBe('data: [DONE]')
  add(spent, JSON.parse(events.at(-2)?.slice('data: '.length) ?? '').usage)

  const unknown = await client.post('/v1/completions', { ...text, model: 'another' })
  expect([unknown.status, (await json(unknown)).error?.code]).toEqual([404, 'not_found'])
}

async function byOpenAi(appliance: Appliance, client: GatewayClient, spent: Spent): Promise<void> {
  const tls = { ca: caOf(appliance) }
  const openai = new OpenAI({
    apiKey: client.key,
    baseURL: `${gatewayUrl}/v1`,
    fetch: (url, init) => fetch(url, { ...init, tls } as RequestInit),
  })
  expect((await openai.models.list()).data.map(model => model.id)).toEqual([model])
  const whole = await openai.chat.completions.create(chat)
  add(spent, whole.usage)
  add(spent, (await openai.completions.create(text)).usage)
  const stream = await openai.chat.completions.create({
    ...chat,
    stream: true,
    stream_options: { include_usage: true },
  })
  let streamed = ''
  for await (const chunk of stream) {
    streamed += chunk.choices[0]?.delta.content ?? ''
    if (chunk.usage) add(spent, chunk.usage)
  }
  // No sampling: the same text, streamed or not.
  expect(streamed).toBe(whole.choices[0]?.message.content ?? '')
  const wrong = new OpenAI({
    apiKey: `${client.key.slice(0, -1)}${client.key.endsWith('a') ? 'b' : 'a'}`,
    baseURL: `${gatewayUrl}/v1`,
    maxRetries: 0,
    fetch: (url, init) => fetch(url, { ...init, tls } as RequestInit),
  })
  const refused: unknown = await wrong.models.list().then(
    () => null,
    error => error,
  )
  expect(refused).toBeInstanceOf(OpenAI.AuthenticationError)
}

/** Clients that do not trust the authority or send no key get nothing. */
async function refusals(appliance: Appliance, client: GatewayClient): Promise<void> {
  await expect(fetch(`${gatewayUrl}/health`)).rejects.toThrow()
  for (const key of ['', 'gw_abcdefgh_0123456789abcdefghijklmnopqrstuv']) {
    const response = await gatewayClient(appliance, key).post('/v1/completions', text)
    expect([response.status, (await json(response)).error?.code]).toEqual([401, 'unauthenticated'])
  }
  // Service A's key is no key here, nor the other way round.
  expect((await appliance.http('GET', '/v1/usage', { key: client.key })).status).toBe(401)
}

/** From what was built, and not from the gateway's word. */
function pinsOf(appliance: Appliance): Promise<string[]> {
  const configFile = join(appliance.directory, 'strongroom.toml')
  return pinGateway({ daemon: [executable, 'serve'], configFile, directory: appliance.directory })
}

async function attested(appliance: Appliance, client: GatewayClient): Promise<string> {
  const nonce = newNonce()
  expect((await freshAttestation(client, nonce)).status).toBe(200)
  expect((await client.get(`/attestation?nonce=${nonce}`)).status).toBe(409)
  expect((await client.get('/attestation', { 'x-attestation-nonce': nonce })).status).toBe(409)
  const argv = [
    'verify',
    'gateway',
    gatewayUrl,
    '--ca',
    join(appliance.stateDir, 'ca/ca.pem'),
    ...(await pinsOf(appliance)),
  ]
  const good = await appliance.cli(...argv, '--trust-simulated-root', rootFile(appliance))
  expect(good.stdout).toContain('VERDICT: PASS SIMULATED')
  expect(good.exitCode).toBe(0)
  const distrusted = await appliance.cli(...argv)
  expect(distrusted.exitCode).toBe(1)
  expect(distrusted.stdout).toContain('VERDICT: FAIL')
  const unpinned = await appliance.cli(...argv.slice(0, 5), '--trust-simulated-root', rootFile(appliance))
  expect([
    unpinned.exitCode,
    unpinned.stdout.includes('you named no expected image (no measurement is expected'),
  ]).toEqual([6, true])
  const { stdout } = await appliance.cli(...argv, '--trust-simulated-root', rootFile(appliance), '--json')
  const { receipts } = JSON.parse(stdout) as { receipts: { target: string }[] }
  expect(receipts.map(receipt => receipt.target)).toEqual([
    ...['gateway', 'inference-router', 'inference-worker', 'metrics-collector', 'cluster-state-metrics'],
  ])
  return nonce
}

/** A sealed response, whole and streamed, verifies offline; with one byte changed it does not. */
async function sealed(appliance: Appliance, client: GatewayClient, spent: Spent): Promise<void> {
  const file = (name: string, content: string | Uint8Array) => {
    const path = join(appliance.directory, name)
    writeFileSync(path, content)
    return path
  }
  const nonce = newNonce()
  const attestation = file('attestation.json', (await freshAttestation(client, nonce)).body)
  const trust = [
    ...['--attestation', attestation, '--nonce', nonce, '--trust-simulated-root', rootFile(appliance)],
    ...(await pinsOf(appliance)),
  ]
  const handedOut = readFileSync(join(appliance.stateDir, 'gateway-configuration.json'), 'utf8')
  expect(readFileSync(join(appliance.directory, 'configuration.json'), 'utf8')).toBe(handedOut)
  for (const isStream of [false, true]) {
    const request = JSON.stringify({
      ...chat,
      ...(isStream ? { stream: true, stream_options: { include_usage: true } } : {}),
    })
    const response = await client.post('/v1/chat/completions', request, { headers: { 'x-strongroom-receipt': '1' } })
    const receipt = response.headers.get('x-strongroom-receipt')
    expect(receipt !== null).toBe(!isStream)
    const body = new Uint8Array(await response.arrayBuffer())
    const text = new TextDecoder().decode(body)
    const claimed = isStream
      ? text
          .split('\n\n')
          .find(event => event.includes('"usage":{'))
          ?.slice(6)
      : text
    const { usage } = JSON.parse(claimed ?? '') as { usage: Usage }
    add(spent, usage)
    const verify = (name: string, bytes: Uint8Array) =>
      appliance.cli(
        ...['verify', 'response', '--request', file('request.json', request), '--response', file(name, bytes)],
        ...(receipt === null ? [] : ['--receipt', file('receipt.txt', receipt)]),
        ...[...trust, '--json'],
      )
    const good = await verify('response.txt', body)
    expect({ exitCode: good.exitCode, ...JSON.parse(good.stdout) }).toMatchObject({
      exitCode: 0,
      ok: true,
      simulated: true,
      response: { model, upstream: 'built-in', coverage: 'inside' },
    })
    expect(JSON.parse(good.stdout).response).toMatchObject({
      prompt_tokens: usage.prompt_tokens,
      completion_tokens: usage.completion_tokens,
    })
    const changed = body.slice()
    const at = text.indexOf('"role"') + 1
    changed[at] = (changed[at] ?? 0) ^ 1
    const bad = await verify('changed.txt', changed)
    expect([bad.exitCode, JSON.parse(bad.stdout).ok]).toEqual([1, false])
  }
}

inOwnNetns(
  import.meta.path,
  () => {
    const ending = new AsyncDisposableStack()
    let appliance: Appliance
    let modelFile: string
    let acme: Customer
    let client: GatewayClient

    beforeAll(async () => {
      modelFile = ending.use(createModelFile()).path
      renameSync(modelFile, `${modelFile}.later`)
      appliance = ending.use(await createAppliance('', 'vm', undefined, await gatewayTables(modelFile)))
      await appliance.start()
      acme = await createCustomer(appliance, 'acme')
      client = await createGatewayClient(appliance, 'acme')
    }, timeoutMs)
    afterAll(() => ending.disposeAsync())

    test(
      'a worker without a model file',
      async () => {
        // Goal: without its model the appliance runs, says why and responds with 502 at once; with it, it serves.
        for (const body of [text, { ...text, stream: true }]) {
          const askedMs = performance.now()
          const response = await client.post('/v1/completions', body)
          expect([response.status, (await json(response)).error?.code]).toEqual([502, 'upstream_failed'])
          expect(performance.now() - askedMs).toBeLessThan(20_000)
        }
        expect((await client.get('/health')).status).toBe(200)
        expect((await client.get('/v1/models')).status).toBe(200)
        // Once its image is unpacked.
        const reason = `model ${modelFile}: no such file`
        await until('the log says why', stepMs, () => appliance.log().includes(reason))
        expect((await client.post('/v1/completions', text)).status).toBe(502)
        expect(await appliance.stop()).toBe(0)
        renameSync(`${modelFile}.later`, modelFile)
        await appliance.start()
        await workerResponds(client)
      },
      timeoutMs,
    )

    test(
      'clients, attestation, receipts and books of the gateway with its built-in worker',
      async () => {
        // Goal: clients' responses over HTTPS, their verification, and exact billing; a restart forgets nothing.
        const payer = await createCustomer(appliance, 'payer')
        const spender = await createGatewayClient(appliance, 'payer')
        const spent: Spent = { prompt: 0, completion: 0 }

        await byFetch(spender, spent)
        await byOpenAi(appliance, spender, spent)
        await refusals(appliance, spender)
        const nonce = await attested(appliance, client)
        await sealed(appliance, spender, spent)

        expect(spent.completion).toBeGreaterThan(8)
        const cost = dollars(spent.prompt * PRICE.prompt + spent.completion * PRICE.completion)
        const costOf = async () => (await payer.usage()).usage.inference_cost_usd
        await until('the last of it is booked', stepMs, async () => (await costOf()) === cost)
        expect((await acme.usage()).usage.inference_cost_usd).not.toBe(cost)
        const byModel = (await (await spender.get('/v1/usage?by=model')).json()) as GatewayUsageRows
        expect(byModel.rows).toEqual([{ day: null, key: null, model, ...byModel.total }])
        expect(byModel.total).toMatchObject({ prompt_tokens: spent.prompt, completion_tokens: spent.completion })
        const { metrics } = await appliance.admin<{ metrics: string }>('metrics')
        const counted = (type: string) =>
          [...metrics.matchAll(new RegExp(`^gen_ai_client_token_usage_sum\\{.*"${type}".*\\} (\\d+)$`, 'gm'))]
            .map(([, count]) => Number(count))
            .reduce((sum, count) => sum + count, 0)
        expect(counted('output')).toBeGreaterThanOrEqual(spent.completion)
        expect(counted('input')).toBeGreaterThanOrEqual(spent.prompt)

        expect(await appliance.stop()).toBe(0)
        await appliance.start()
        await workerResponds(client)
        expect((await freshAttestation(client, nonce)).status).toBe(409)
        expect((await freshAttestation(client, newNonce())).status).toBe(200)
        expect((await payer.usage()).usage.inference_cost_usd).toBe(cost)
        await expectNoSecret(appliance, [client.key, spender.key, payer.key])
      },
      timeoutMs,
    )

    test(
      'a worker that is killed, and an appliance that ends',
      async () => {
        // Goal: a killed worker restarts; no worker outlives the appliance, however that ends.
        const servers = () => descendants(appliance.pid()).filter(descendant => descendant.name === 'llama-server')
        const [killed] = servers()
        expect(servers().length).toBe(1)
        killFound(killed?.pid)
        await until('the second life', stepMs, () => servers().some(server => server.pid !== killed?.pid))
        await workerResponds(client)
        expect(servers().length).toBe(1)

        for (const end of [appliance.kill, appliance.stop]) {
          const [last] = servers()
          await end()
          await until('no worker is left', stepMs, () => !existsSync(`/proc/${last?.pid}`))
          // The next one has its own.
          await appliance.start()
          await workerResponds(client)
        }
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
