// strongroom connect as a process, before gateways in enclaves: SDKs of OpenAI and Anthropic, the next VM, endings.

import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test'
import { type AddressInfo, createServer } from 'node:net'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { serverAuthority } from '../../../scripts/rigs/gateway/attested-gateway.ts'
import {
  delta,
  openSse,
  sse,
  startUpstream,
  type TestUpstream,
  wellBehaved,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import {
  benchOptions,
  type Connected,
  type PolicyFiles,
  policyFiles,
  spawnConnect,
  startConnect,
} from '../../rigs/connect/process.ts'
import { httpResponse, newCertificate, type Relay, startRecorder, startRelay } from '../../rigs/tls-peers.ts'

const testMs = 120_000
const canary = 'canary-of-the-prompt'
const messages = [{ role: 'user' as const, content: canary }]
const answer = 'Grüße 👋 you'

let upstream: TestUpstream
let bench: EnclaveBench
let files: PolicyFiles
let relay: Relay
let key: string
let options: string[]
let vmId: string
const portOf = (url: string) => Number(new URL(url).port)

beforeAll(async () => {
  upstream = await startUpstream()
  bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
  files = policyFiles()
  key = bench.addKey()
  vmId = (await bench.serve()).vmId
  options = benchOptions(bench, vmId, files)
  relay = await startRelay(portOf(bench.url(vmId)))
}, testMs)
afterAll(async () => {
  await relay[Symbol.asyncDispose]()
  files[Symbol.dispose]()
  await bench[Symbol.asyncDispose]()
  await upstream.stop()
})

const openai = ({ ready }: Connected) => new OpenAI({ apiKey: key, baseURL: ready.openai_base_url, maxRetries: 0 })
const anthropic = ({ ready }: Connected) =>
  new Anthropic({ authToken: key, apiKey: null, baseURL: ready.anthropic_base_url, maxRetries: 0 })
const chat = async (of: Connected) =>
  (await openai(of).chat.completions.create({ model: 'm', messages })).choices[0]?.message.content
const post = (of: Connected, headers: Record<string, string> = {}) =>
  fetch(`${of.ready.openai_base_url}/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: 'm', messages }),
  })
/** A connection that ends under a request is a 502, which clients repeat: the gateway may have carried it out. */
async function settled(of: Connected): Promise<Response> {
  let response = await post(of)
  await until('the old connections have ended', 30_000, async () => {
    if (response.status === 502) response = await post(of)
    return response.status !== 502
  })
  return response
}
const leadBack = () => relay.lead(portOf(bench.url(vmId)))
beforeEach(leadBack)

// Goal: the line of JSON says what was proved and what to set, and clients of both APIs work with it, streams included.
test(
  'the SDKs',
  async () => {
    await using connected = await startConnect(relay.url, options)
    const { ready } = connected
    expect(ready).toMatchObject({
      gateway: relay.url,
      openai_base_url: `${ready.anthropic_base_url}/v1`,
      verdict: { ok: true, simulated: true, image: { measurement: launchMeasurement } },
      model: 'w',
    })
    expect(connected.stdout().trimEnd().split('\n')).toHaveLength(1)
    expect(ready.anthropic_base_url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
    expect(await chat(connected)).toBe(answer)
    let text = ''
    for await (const part of await openai(connected).chat.completions.create({ model: 'm', messages, stream: true })) {
      text += part.choices[0]?.delta.content ?? ''
    }
    expect(text).toBe(answer)
    expect((await openai(connected).responses.create({ model: 'm', input: canary })).output_text).toBe(answer)
    expect((await openai(connected).models.list()).data.map(({ id }) => id)).toContain('m')
    const message = await anthropic(connected).messages.create({ model: 'm', max_tokens: 16, messages })
    expect(message.content).toContainEqual(expect.objectContaining({ type: 'text', text: answer }))
    const stream = anthropic(connected).messages.stream({ model: 'm', max_tokens: 16, messages })
    expect(await stream.finalText()).toBe(answer)
    const { input_tokens } = await anthropic(connected).messages.countTokens({ model: 'm', messages })
    expect(input_tokens).toBeGreaterThan(0)
    // The gateway's own refusal of a foreign key comes through unchanged.
    const refused = await post(connected, { authorization: `Bearer gw_aaaaaaaa_${'b'.repeat(32)}` })
    expect(refused.status).toBe(401)
    // Neither prompts nor keys are printed.
    expect([connected.stdout(), connected.stderr()].join('')).not.toMatch(new RegExp(`${canary}|${key}|gw_aaaaaaaa`))
  },
  testMs,
)

// Goal: the first token reaches the client before the second is there.
test(
  'a stream is not buffered, and a client that goes away frees the upstream',
  async () => {
    await using connected = await startConnect(relay.url, options)
    const next = Promise.withResolvers<void>()
    let isLeft = false
    upstream.behave = async (response, _, gone) => {
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: 'one' })))
      void gone.then(() => {
        isLeft = true
        next.resolve()
      })
      await next.promise
    }
    try {
      const leaving = new AbortController()
      const stream = await openai(connected).chat.completions.create(
        { model: 'm', messages, stream: true },
        { signal: leaving.signal },
      )
      const parts = stream[Symbol.asyncIterator]()
      let text = ''
      while (text === '') text += (await parts.next()).value?.choices[0]?.delta.content ?? ''
      expect([text, isLeft]).toEqual(['one', false])
      leaving.abort()
      await until('the upstream is left', 30_000, () => isLeft)
    } finally {
      next.resolve()
      upstream.behave = wellBehaved
    }
  },
  testMs,
)

// Goal: the VM is replaced by its successor: the next request verifies it first and arrives. An impostor and a
// dead address get no byte of a prompt, and the client's API says why and what to do.
test(
  'the gateway is replaced',
  async () => {
    const { caPem } = await serverAuthority()
    const ca = files.file('both-ca.pem', `${bench.caPem}${caPem}`)
    await using connected = await startConnect(relay.url, [...options, '--ca', ca])
    await using careful = await startConnect(relay.url, options)
    expect(await chat(connected)).toBe(answer)
    const second = await bench.serve()
    relay.lead(portOf(bench.url(second.vmId)))
    expect((await settled(connected)).status).toBe(200)
    expect(await chat(connected)).toBe(answer)
    expect(connected.stderr()).toContain(`another VM verified: VERDICT: PASS SIMULATED`)
    vmId = second.vmId

    const seen = upstream.seen.length
    // Its certificate is as good as the gateway's, so that only its evidence can tell.
    await using impostor = await startRecorder(await newCertificate(), () => httpResponse('{}'))
    relay.lead(impostor.port)
    const response = await settled(connected)
    const { error } = (await response.json()) as { error: { message: string; code: string } }
    expect([response.status, response.headers.get('x-should-retry'), error.code]).toEqual([
      424,
      'false',
      'gateway_key_changed',
    ])
    expect(error.message).toStartWith(
      `Your prompt was not sent: the server at ${new URL(relay.url).host} has another key`,
    )
    expect(error.message).toContain(`What to do: run strongroom verify gateway ${relay.url} with the options of`)
    const anthropicError = await anthropic(connected)
      .messages.create({ model: 'm', max_tokens: 16, messages })
      .then(
        () => null,
        (thrown: unknown) => thrown,
      )
    expect(anthropicError).toBeInstanceOf(Anthropic.APIError)
    expect(String(anthropicError)).toContain('Your prompt was not sent: ')
    expect(impostor.text()).not.toBe('')
    expect(impostor.text()).not.toMatch(new RegExp(`${canary}|${key}`))
    // With another authority's certificate it does not even get a handshake.
    const unsent = (await settled(careful)).clone()
    expect([unsent.status, await unsent.text()]).toEqual([503, expect.stringContaining('Your prompt was not sent: ')])
    relay.lead(9)
    const dead = await settled(connected)
    expect([dead.status, await dead.text()]).toEqual([503, expect.stringContaining('Your prompt was not sent: ')])
    expect(upstream.seen.length).toBe(seen)

    leadBack()
    expect((await settled(connected)).status).toBe(200)
    expect(connected.stderr()).not.toMatch(new RegExp(`${canary}|${key}`))
  },
  testMs,
)

// Goal: a gateway of another measurement ends the command with the verdict and the exit code of `verify gateway`.
test(
  'a gateway that does not verify',
  async () => {
    const other = options.map(option => option)
    const at = other.indexOf('--policy') + 1
    const policy = JSON.parse(await Bun.file(other[at] ?? '').text())
    other[at] = files.file('other.json', JSON.stringify({ ...policy, measurements: ['11'.repeat(48)] }))
    const child = spawnConnect(relay.url, other)
    const [stdout, code] = await Promise.all([child.stdout.text(), child.exited])
    expect([code, stdout]).toEqual([6, expect.stringMatching(/^FAIL [\s\S]*measurement[\s\S]*\nVERDICT: FAIL/)])
    const document = spawnConnect(relay.url, [...other, '--json'])
    const [json, exit] = await Promise.all([document.stdout.text(), document.exited])
    expect([exit, JSON.parse(json)]).toMatchObject([6, { ready: false, ok: false, failed: 'policy' }])
    // An upstream outside is refused with the flag that would accept it.
    const strict = spawnConnect(
      relay.url,
      options.filter((_, index) => index < options.indexOf('--allow-outside')),
    )
    expect([await strict.exited, await strict.stdout.text()]).toEqual([
      6,
      expect.stringContaining(`--allow-outside far=${new URL(upstream.url).origin}`),
    ])
    const dead = spawnConnect('https://127.0.0.1:9', options)
    expect([await dead.exited, await dead.stderr.text()]).toEqual([3, expect.stringMatching(/remedy: check address/)])
  },
  testMs,
)

// Goal: people get a line with the verdict, and a block for each client.
test(
  'the text for people',
  async () => {
    const child = spawnConnect(relay.url, options, { http_proxy: 'http://127.0.0.1:9' })
    let text = ''
    const decoder = new TextDecoder()
    for await (const bytes of child.stdout) {
      text += decoder.decode(bytes, { stream: true })
      if (text.includes('Cursor')) break
    }
    child.kill('SIGTERM')
    expect([await child.exited, await child.stderr.text()]).toEqual([0, ''])
    const [verdict = '', serving = ''] = text.split('\n')
    expect(verdict).toMatch(
      /^VERDICT: PASS SIMULATED, .*: 127\.0\.0\.1:\d+ runs image .* with measurement [0-9a-f]{96}; /,
    )
    expect(verdict).toContain(`prompts for m go OUTSIDE to `)
    const [, origin] =
      /^Serving clients of this machine at (http:\/\/127\.0\.0\.1:\d+) until Ctrl-C\./.exec(serving) ?? []
    expect(text).toContain('\nhttp_proxy is set: agents would send prompts and keys to that proxy unencrypted.')
    expect(text).toContain(`Claude Code\n  export ANTHROPIC_BASE_URL=${origin}\n`)
    expect(text).toContain(`  export OPENAI_BASE_URL=${origin}/v1\n`)
  },
  testMs,
)

// Goal: a signal before the gateway is verified is no success, for programs that wait for the end.
test(
  'a signal before it is ready',
  async () => {
    const asked = Promise.withResolvers<void>()
    const silent = createServer(() => asked.resolve())
    await new Promise<void>(resolve => silent.listen(0, '127.0.0.1', resolve))
    const child = spawnConnect(`https://127.0.0.1:${(silent.address() as AddressInfo).port}`, options)
    await asked.promise
    child.kill('SIGTERM')
    const found = [await child.exited, await child.stdout.text(), await child.stderr.text()]
    silent.close()
    expect(found).toEqual([1, '', 'ended by a signal before the gateway was verified\n'])
  },
  testMs,
)

// Goal: a stream that runs at the signal ends whole, new requests are refused, and the program then exits with 0. A
// second signal does not wait.
test(
  'signals',
  async () => {
    const held = () => {
      const go = Promise.withResolvers<void>()
      upstream.behave = async (response, _, gone) => {
        openSse(response)
        response.write(sse(delta({ role: 'assistant', content: 'one' })))
        await Promise.race([go.promise, gone])
        response.end(`${sse(delta({ content: ' two' }))}${sse(delta({}, 'stop'))}data: [DONE]\n\n`)
      }
      return go
    }
    const begin = async (connected: Connected) => {
      const stream = await openai(connected).chat.completions.create({ model: 'm', messages, stream: true })
      const parts = stream[Symbol.asyncIterator]()
      let text = ''
      while (text === '') text += (await parts.next()).value?.choices[0]?.delta.content ?? ''
      return { parts, text }
    }
    try {
      await using connected = await startConnect(relay.url, options)
      const go = held()
      const { parts } = await begin(connected)
      connected.signal('SIGTERM')
      await until('it accepts no request any more', 30_000, async () => {
        const status = await post(connected).then(
          ({ status }) => status,
          () => 0,
        )
        return status === 0 || status === 503
      })
      go.resolve()
      let rest = ''
      for (let next = await parts.next(); next.done !== true; next = await parts.next()) {
        rest += next.value.choices[0]?.delta.content ?? ''
      }
      expect(rest).toBe(' two')
      expect(await connected.exited).toBe(0)

      await using hurried = await startConnect(relay.url, options)
      held()
      const running = await begin(hurried)
      const startedMs = performance.now()
      hurried.signal('SIGINT')
      hurried.signal('SIGTERM')
      expect(await hurried.exited).toBe(0)
      // The first signal alone would wait for 30 seconds.
      expect(performance.now() - startedMs).toBeLessThan(25_000)
      expect(
        await running.parts.next().then(
          () => 'whole',
          () => 'broken',
        ),
      ).toBe('broken')
    } finally {
      upstream.behave = wellBehaved
    }
  },
  testMs,
)
