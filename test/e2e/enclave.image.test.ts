// The gateway in a measured VM, for its clients, its operator and a hostile host: a whole appliance with real VMs.

import { expect, test } from 'bun:test'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { pinGatewayVm } from '../../scripts/lib/gateway-pins.ts'
import { type Appliance, createAppliance } from '../../scripts/rigs/appliance.ts'
import {
  caOf,
  createGatewayClient,
  createModelFile,
  type GatewayClient,
  gatewayTables,
  gatewayUrl,
  workerModel as model,
} from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { gatewaysOf, servingGateway } from '../../scripts/rigs/gateway/serving-gateway.ts'
import { qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { failure, until } from '../../scripts/rigs/until.ts'
import type { AdminStatus } from '../../src/contract/admin/admin.ts'
import { startTdxUpstream } from '../rigs/gateway/tdx-upstream.ts'
import { loggedKinds, logOptions } from '../rigs/log/appliance-log.ts'
import { memoryHolds } from '../rigs/process-memory.ts'

const testMs = 600_000
const messages = [{ role: 'user' as const, content: 'hello the world' }]
const chat = { model, messages, max_tokens: 8, temperature: 0 }

const openaiOf = (appliance: Appliance, { key }: GatewayClient) =>
  new OpenAI({
    apiKey: key,
    baseURL: `${gatewayUrl}/v1`,
    fetch: (url, init) => fetch(url, { ...init, tls: { ca: caOf(appliance) } } as RequestInit),
  })

/** Hardware also encrypts the VM's memory. Software does not, so the search would find a prompt there. */
async function expectPromptsInVmAlone(appliance: Appliance, openai: OpenAI): Promise<void> {
  const prompt = `prompt-canary-${crypto.randomUUID()}`
  await openai.chat.completions.create({ ...chat, messages: [{ role: 'user', content: prompt }] })
  const refused = openai.chat.completions.create({ ...chat, messages: [{ role: 'user', content: prompt }], top_p: -1 })
  expect(await failure(refused)).toMatchObject({ status: 400 })
  const [qemu = 0] = qemuProcesses(appliance.stateDir)
  const held = [memoryHolds(qemu, prompt), memoryHolds(appliance.pid(), prompt), appliance.log().includes(prompt)]
  expect(held).toEqual([true, false, false])
  const files = [...new Bun.Glob('**/*').scanSync({ cwd: appliance.stateDir, dot: true })]
  expect(files).toContain('strongroom.db')
  const holding = files.filter(file => readFileSync(join(appliance.stateDir, file)).includes(prompt))
  expect(holding).toEqual([])
}

/** At this host's address on the network of VMs: they reach no other of its own, and a test has no world. */
async function attestedUpstream() {
  const address = '169.254.88.1'
  const directory = mkdtempSync(join(tmpdir(), 'srt-attested-'))
  const file = (name: string, content: string) => {
    writeFileSync(join(directory, name), content)
    return JSON.stringify(join(directory, name))
  }
  const upstream = await startTdxUpstream(address)
  const { attestation, ca, url } = upstream
  const table = [
    ...['[[inference.upstreams]]', `name = "${outsideName}"`, `url = "${url}"`, `models = ["${outsideModel}"]`],
    ...[`ca_file = ${file('ca.pem', ca)}`, 'attestation = "tdx"'],
    `attestation_policy = ${file('policy.json', attestation.policy)}`,
    `attestation_simulated_root = ${file('root.pem', attestation.simulatedRoot ?? '')}`,
    '',
  ].join('\n')
  const close = async () => {
    await upstream[Symbol.asyncDispose]()
    rmSync(directory, { recursive: true })
  }
  return { upstream, table, [Symbol.asyncDispose]: close }
}

const outsideName = 'far'
const outsideModel = 'far-1'

/** The attested upstream as the operator sees it, in status and metrics. */
async function attestedState(appliance: Appliance) {
  const { gateway } = await appliance.admin<AdminStatus>('status')
  const text = (await appliance.cli('metrics')).stdout
  const metric = new RegExp(`^strongroom_upstream_attested\\{.*upstream="${outsideName}".*\\} (\\d)$`, 'm').exec(
    text,
  )?.[1]
  return { status: gateway.attested_upstreams.map(({ name, attested }) => ({ name, attested })), metric }
}

const usageRows = async (appliance: Appliance) => {
  const text = (await appliance.cli('metrics')).stdout
  return Number(/^strongroom_usage_records_total (\d+)$/m.exec(text)?.[1] ?? 0)
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'goal: clients are served by a VM that they verify, whatever becomes of daemon and VM',
      async () => {
        using file = createModelFile()
        await using outside = await attestedUpstream()
        const { upstream } = outside
        const tables = (await gatewayTables(file.path, 'vm')) + outside.table
        await using appliance = await createAppliance('', 'vm', undefined, tables)
        await appliance.start()
        await appliance.admin('org', 'create', 'acme')
        const client = await createGatewayClient(appliance, 'acme')
        const first = await servingGateway(appliance)
        const openai = openaiOf(appliance, client)
        const whole = await openai.chat.completions.create(chat)
        expect(whole.usage?.completion_tokens).toBe(8)
        await expectPromptsInVmAlone(appliance, openai)

        // An upstream outside gets a prompt once the VM has verified it, and the operator sees that.
        const askOutside = async () =>
          (await client.post('/v1/chat/completions', { ...chat, model: outsideModel })).status
        await until('the upstream outside is attested', 60_000, async () => (await askOutside()) === 200).catch(
          async error => {
            throw new Error([error.message, (await appliance.cli('inference', 'logs')).stdout].join('\n'))
          },
        )
        expect([upstream.seen.nonces > 0, upstream.seen.prompts.length]).toEqual([true, 1])
        await until('the operator sees it', 60_000, async () => (await attestedState(appliance)).metric === '1')
        expect((await attestedState(appliance)).status).toEqual([{ name: outsideName, attested: true }])
        // From now on its evidence is wrong: the next VM will not take it.
        upstream.answer = response => void response.end('{}')

        // Anybody verifies it: the measured image, this operator's key, this very connection.
        const pins = await pinGatewayVm({
          operatorKey: (await appliance.admin<{ digest: string }>('operator-key')).digest,
          configFile: join(appliance.directory, 'strongroom.toml'),
          directory: appliance.directory,
        })
        const argv = ['verify', 'gateway', gatewayUrl, '--ca', join(appliance.stateDir, 'ca/ca.pem'), ...pins]
        const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
        const verdict = await appliance.cli(...argv, ...root, '--verbose')
        expect(verdict.stdout).toContain('VERDICT: PASS SIMULATED')
        expect(verdict.stdout).toContain(`inside the measured VM: ${model}, file `)
        expect(verdict.stdout).toContain('OUTSIDE, attested by tdx, or SIMULATED under policy ')

        // Or by the transparency log in the place of every hash: this start is an entry, and no other start is.
        // The log says nothing of an upstream outside: only pins name it, or the client.
        const byLog = async (more = ['--allow-outside', outsideName]) => {
          const log = await logOptions(appliance)
          // The appliance of this test has no witness.
          const asked = ['--in-log', '--unwitnessed']
          const found = await appliance.cli(...argv.slice(0, 5), ...root, ...log, ...asked, '--json', ...more)
          const { checks } = JSON.parse(found.stdout) as { checks: { name: string; outcome: string }[] }
          const consistent = checks.find(({ name }) => name === 'log-consistent')?.outcome
          return [
            found.exitCode,
            consistent,
            (await loggedKinds(appliance)).filter(kind => kind === 'gateway-start').length,
          ]
        }
        expect(await byLog()).toEqual([0, 'not-checked', 1])
        expect((await byLog([]))[0]).toBe(6)

        // A daemon that dies takes no stream with it.
        const stream = await openai.chat.completions.create({ ...chat, max_tokens: 64, stream: true })
        let chunks = 0
        for await (const _ of stream) {
          chunks += 1
          if (chunks === 2) await appliance.kill()
        }
        expect(chunks).toBeGreaterThan(32)
        await appliance.start()
        expect(await servingGateway(appliance)).toBe(first)
        expect(await byLog()).toEqual([0, 'pass', 1])
        await until('the usage of both is booked', 60_000, async () => (await usageRows(appliance)) >= 1)

        // An update is without a gap.
        let failed = 0
        let asked = 0
        const stopping = new AbortController()
        const load = (async () => {
          while (!stopping.signal.aborted) {
            asked += 1
            const { status } = await client.post('/v1/chat/completions', { ...chat, max_tokens: 1 })
            if (status !== 200) failed += 1
          }
        })()
        expect((await appliance.cli('inference', 'update')).exitCode).toBe(0)
        const second = await servingGateway(appliance, first)
        await until('the old VM is gone', 60_000, async () =>
          (await gatewaysOf(appliance)).every(({ vm, state }) => vm !== first || state === 'gone'),
        )
        stopping.abort()
        await load
        expect([failed, asked > 5]).toEqual([0, true])
        expect(await byLog()).toEqual([0, 'pass', 2])

        // It has no good evidence for this VM: no prompt, and the operator sees why.
        expect([await askOutside(), upstream.seen.prompts.length]).toEqual([503, 1])
        await until('the operator sees it', 60_000, async () => (await attestedState(appliance)).metric === '0')
        expect((await attestedState(appliance)).status).toEqual([{ name: outsideName, attested: false }])
        upstream.answer = null

        // Clients of a VM that dies learn it at once, also those that only wait; it is replaced.
        const silent = connect({ host: '127.0.0.1', port: Number(new URL(gatewayUrl).port) })
        await once(silent, 'connect')
        const ended = Promise.withResolvers<string>()
        silent
          .on('error', (error: NodeJS.ErrnoException) => ended.resolve(error.code ?? ''))
          .on('end', () => ended.resolve('end'))
        setTimeout(() => ended.resolve('silence'), 90_000).unref()
        const reset = ended.promise.then(code => ({ code, atMs: performance.now() }))
        const [pid] = qemuProcesses(appliance.stateDir)
        const killedMs = performance.now()
        process.kill(pid ?? 0, 'SIGKILL')
        const { code, atMs } = await reset
        process.stderr.write(`clients of the VM were reset after ${Math.round(atMs - killedMs)} ms\n`)
        expect(code, code === 'ECONNRESET' ? '' : appliance.log().slice(-6_000)).toBe('ECONNRESET')
        // A second on a quiet machine (`bench gateway`); untold it would wait for ever.
        expect(atMs - killedMs).toBeLessThan(30_000)
        const third = await servingGateway(appliance, second)
        expect((await openai.chat.completions.create(chat)).usage?.completion_tokens).toBe(8)
        expect(third).not.toBe(second)
        await until('the upstream outside is attested again', 60_000, async () => (await askOutside()) === 200)
        expect((await appliance.cli(...argv, ...root)).stdout).toContain('VERDICT: PASS SIMULATED')
        await appliance.stop()
      },
      testMs,
    )
  },
  { timeoutMs: testMs + 60_000 },
)
