// Goal: the packaged agent itself reaches the gateway over TLS by the authority of the claim, and gives that authority to nothing that it starts.

import { expect, test } from 'bun:test'
import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fetchAgent, installAgent, readAgentLock } from '../../../scripts/image/agent-lock.ts'
import { recipePaths } from '../../../scripts/image/recipe.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { planClaim } from '../../../src/guest/claim.plan.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { sessionEnvironment } from '../../../src/guest/session.plan.ts'
import { openAuthority } from '../../../src/http/authority.ts'
import { makeClaim } from '../../rigs/guest-root.ts'
import { repo } from '../../rigs/image-build.ts'

const runTimeoutMs = 120_000
const plugin = '/usr/lib/strongroom/opencode-gateway.js'

// Goal: one tool call and one response through the real agent; with another authority it refuses the server.
test('the agent trusts the authority for its gateway alone', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'strongroom-agent-'))
  try {
    const lock = await readAgentLock(recipePaths(repo, 'instance').agentLock)
    const agent = join(dir, lock.name)
    const downloads = join(process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom', 'downloads')
    await installAgent(await fetchAgent(downloads, lock), lock, agent, dir)
    const names = ['agents.internal', '127.0.0.1']
    const open = (name: string) =>
      openAuthority({ kind: 'clients', stateDir: join(dir, name), names, nowMs: Date.now, random: systemRandom })
    const [authority, other] = [await open('authority'), await open('other')]
    const gateway = startGateway(await authority.issue(names, 1))
    try {
      const run = (ca: string) => runAgent(agent, { dir, ca, baseUrl: `${gateway.url}v1` })
      expect(await run(authority.caPem)).toContain('the end')
      expect(gateway.toolResults).toEqual(['HOME=set\n'])
      const before = gateway.requestCount()
      expect(await run(other.caPem)).toMatch(/certificate/)
      expect(gateway.requestCount()).toBe(before)
    } finally {
      await gateway.stop()
    }
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}, 300_000)

/** As a claim sets it up, in a home of its own. */
async function runAgent(agent: string, { dir, ca, baseUrl }: { dir: string; ca: string; baseUrl: string }) {
  const root = await mkdtemp(join(dir, 'root-'))
  const paths = guestPaths(root)
  const inference = { baseUrl, address: null, model: 'm', ca, key: 'gw_00000000_secret' }
  const claim = makeClaim('ssh-ed25519 AAAA', { inference })
  const { directories, files } = planClaim(claim, paths, null)
  for (const path of directories) await mkdir(path, { recursive: true })
  await mkdir(join(root, 'project'))
  for (const { path, content } of files) {
    await Bun.write(path, content.replace(`file://${plugin}`, `file://${join(root, plugin)}`))
  }
  await cp(join(repo, 'guest-image/recipes/instance/root', plugin), join(root, plugin), { recursive: true })
  const text = await Bun.file(join(root, plugin)).text()
  await Bun.write(join(root, plugin), text.replace("'/run/strongroom/gateway-ca.pem'", `'${paths.gatewayCa}'`))
  const child = Bun.spawn([agent, 'run', 'hello'], {
    cwd: join(root, 'project'),
    env: { PATH: '/usr/bin:/bin', HOME: paths.loginHome, ...sessionEnvironment(claim, untrusted) },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: runTimeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return stdout + stderr
}

const untrusted = { authorityIsTrusted: false, gatewayCa: '', caBundle: '' }
const environment = 'env | grep --extended-regexp "_CA|CERT|BUN_|NODE_|^HOME=" | sed "s/^HOME=.*/HOME=set/"'

/** Asks for one tool call, then ends. */
function startGateway(pair: { readonly cert: string; readonly key: string }) {
  const toolResults: string[] = []
  let requestCount = 0
  const chunk = (delta: unknown, finish: string | null) =>
    `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`
  const call = { name: 'bash', arguments: JSON.stringify({ command: environment, description: 'environment' }) }
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls: pair,
    fetch: async request => {
      requestCount += 1
      const body = (await request.json()) as { messages: { role: string; content: string }[]; tools?: unknown[] }
      const results = body.messages.filter(({ role }) => role === 'tool').map(({ content }) => content)
      toolResults.push(...results)
      const parts =
        body.tools !== undefined && results.length === 0
          ? [
              chunk(
                { role: 'assistant', tool_calls: [{ index: 0, id: 'c1', type: 'function', function: call }] },
                null,
              ),
              chunk({}, 'tool_calls'),
            ]
          : [chunk({ role: 'assistant', content: 'the end' }, null), chunk({}, 'stop')]
      return new Response(`${parts.join('')}data: [DONE]\n\n`, { headers: { 'content-type': 'text/event-stream' } })
    },
  })
  return { url: server.url.href, toolResults, requestCount: () => requestCount, stop: () => server.stop(true) }
}
