// Goal: the packaged agent itself reaches the gateway through the endpoint of its instance, after the gateway has
// proved itself; when it does not, the agent says so in plain words, at once, and nothing of the prompt has left.

import { expect, test } from 'bun:test'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fetchPackage, installAgent, readAgentLock } from '../../../scripts/image/agent-lock.ts'
import { recipePaths } from '../../../scripts/image/recipe.ts'
import { repo } from '../../../scripts/rigs/build/image-build.ts'
import { EnclaveBench } from '../../../scripts/rigs/enclave/enclave.ts'
import { launchMeasurement } from '../../../scripts/rigs/enclave/workload.ts'
import { type Behaviour, delta, openSse, sse, startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { makeClaim } from '../../../scripts/rigs/guest/root.ts'
import { startEndpoint } from '../../../scripts/rigs/instances/instance-endpoint.ts'
import { toHex } from '../../../src/base/bytes.ts'
import type { AttestedGateway } from '../../../src/contract/vm/inference-gateway.ts'
import { planClaim } from '../../../src/guest/claim.plan.ts'
import { endpointOrigin } from '../../../src/guest/gateway/address.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { sessionEnvironment } from '../../../src/guest/session.plan.ts'

const runTimeoutMs = 400_000
const prompt = 'a-prompt-that-is-nobody-elses'
const environment = 'env | grep --extended-regexp "_CA|CERT|BUN_|NODE_|^HOME=" | sed "s/^HOME=.*/HOME=set/"'

/** Asks for one tool call, then ends. */
const scripted: Behaviour = (response, { body }) => {
  openSse(response)
  const messages = body.messages as { role: string }[]
  const call = JSON.stringify({ command: environment, description: 'environment' })
  const called = { index: 0, id: 'c1', type: 'function', function: { name: 'bash', arguments: call } }
  const isFirst = body.tools !== undefined && !messages.some(({ role }) => role === 'tool')
  const events = isFirst
    ? [delta({ role: 'assistant', tool_calls: [called] }), delta({}, 'tool_calls')]
    : [delta({ role: 'assistant', content: 'the end' }), delta({}, 'stop')]
  for (const event of events) response.write(sse(event))
  response.end('data: [DONE]\n\n')
}

// Goal: one tool call and one response through the real agent; with another measurement it learns why it failed.
test('the agent speaks with an attested gateway alone', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'strongroom-agent-'))
  try {
    const lock = await readAgentLock(recipePaths(repo, 'instance').agentLock)
    const agent = join(dir, lock.name)
    const downloads = join(process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom', 'downloads')
    await installAgent(await fetchPackage(downloads, lock), lock, agent, dir)
    const upstream = await startUpstream(scripted)
    try {
      await using bench = await EnclaveBench.start({ upstreams: [{ url: upstream.url }] })
      const key = bench.addKey()
      const { vmId } = await bench.serve()
      const honest: AttestedGateway = {
        kind: 'attested',
        measurements: [launchMeasurement],
        operatorKey: toHex(bench.host.operatorKey),
        outside: bench.workload.upstreams.map(({ name }) => name),
        simulatedRoot: bench.host.rootPem,
      }
      const run = async (gateway: AttestedGateway) => {
        const baseUrl = `${bench.url(vmId)}/v1`
        await using endpoint = await startEndpoint({ baseUrl, gateway, key })
        const inference = { baseUrl, address: null, model: 'm', gateway, drawsKey: true }
        return await runAgent(agent, { dir, inference, key, endpoint: endpoint.url })
      }
      expect(await run(honest)).toContain('the end')
      const results = () => upstream.seen.flatMap(({ body }) => (body.messages as Message[]).filter(isOfTool))
      expect(results().map(({ content }) => content)).toEqual(['HOME=set\n'])
      const before = upstream.seen.length
      const startedMs = performance.now()
      const refused = await run({ ...honest, measurements: ['11'.repeat(48)] })
      expect(refused).toContain('Your prompt was not sent: the gateway at 127.0.0.1:')
      expect(refused).toContain('strongroom-verify')
      expect(performance.now() - startedMs).toBeLessThan(runTimeoutMs / 2)
      expect(upstream.seen.length).toBe(before)
    } finally {
      await upstream.stop()
    }
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}, 1_000_000)

type Message = { readonly role: string; readonly content: string }
const isOfTool = ({ role }: Message) => role === 'tool'

type Running = {
  readonly dir: string
  readonly inference: ReturnType<typeof makeClaim>['inference']
  readonly key: string
  /** In the place of the port that the endpoint has in an instance. */
  readonly endpoint: string
}

/** As a claim sets it up, in a home of its own. */
async function runAgent(agent: string, { dir, inference, key, endpoint }: Running): Promise<string> {
  const root = await mkdtemp(join(dir, 'root-'))
  const paths = guestPaths(root)
  const claim = makeClaim('ssh-ed25519 AAAA', { inference })
  const { directories, files } = planClaim(claim, { paths, platform: 'none', key })
  for (const { path } of directories) await mkdir(path, { recursive: true })
  await mkdir(join(root, 'project'))
  for (const { path, content } of files) await Bun.write(path, content.replaceAll(endpointOrigin, endpoint))
  const variables = Object.entries(sessionEnvironment(claim, key)).map(([name, value]) => [
    name,
    value.replace(endpointOrigin, endpoint),
  ])
  const child = Bun.spawn([agent, 'run', prompt], {
    cwd: join(root, 'project'),
    env: { PATH: '/usr/bin:/bin', HOME: paths.loginHome, ...Object.fromEntries(variables) },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: runTimeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return stdout + stderr
}
