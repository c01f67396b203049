// Codex, unchanged out of the registry, whose provider is named OpenAI: it has the gateway compact its session.

import { expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { installAgent } from '../../../scripts/rigs/agents/cli.ts'
import { KEY, MODEL, startGateway, target } from '../../../scripts/rigs/gateway/server.ts'
import { chunk, delta, openSse, sse, startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'

/** More tokens than the session may have before it is compacted. */
const USAGE = { prompt_tokens: 5_000, completion_tokens: 3, total_tokens: 5_003 }
const turnMs = 360_000

function config(url: string): string {
  return `model = "${MODEL}"
model_provider = "gateway"
model_auto_compact_token_limit = 1000
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.gateway]
name = "OpenAI"
base_url = "${url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
`
}

// Goal: a session that is too long goes on with the summary, and without the answers that it stands for.
test(
  'a session that is compacted',
  async () => {
    const installed = await installAgent('codex')
    if (skipUnless('path' in installed, `codex: ${'problem' in installed ? installed.problem : ''}`)) return
    if (!('path' in installed)) return
    await using undo = new AsyncDisposableStack()
    let answers = 0
    const upstream = await startUpstream(response => {
      answers += 1
      openSse(response)
      response.write(sse(delta({ role: 'assistant', content: `answer ${answers}` })))
      response.write(sse(delta({}, 'stop')))
      response.write(sse(chunk([], { usage: USAGE })))
      response.end('data: [DONE]\n\n')
    })
    undo.defer(upstream.stop)
    const gateway = undo.use(await startGateway([target(upstream.url)], { limits: { bodyBytesMax: 4_194_304 } }))
    const home = mkdtempSync(join(tmpdir(), 'srt-agent-'))
    undo.defer(() => rmSync(home, { recursive: true, force: true }))
    mkdirSync(join(home, '.codex'))
    writeFileSync(join(home, '.codex/config.toml'), config(gateway.url))
    const certificate = process.env.NODE_EXTRA_CA_CERTS
    const trust = certificate === undefined ? {} : { SSL_CERT_FILE: certificate, CODEX_CA_CERTIFICATE: certificate }
    const env = { PATH: process.env.PATH ?? '', HOME: home, GATEWAY_KEY: KEY, ...trust }
    const turn = async (...argv: string[]) => {
      const child = Bun.spawn([installed.path, 'exec', '--skip-git-repo-check', ...argv], {
        ...{ cwd: home, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
        timeout: turnMs,
        killSignal: 'SIGKILL',
      })
      const [out, err] = await Promise.all([child.stdout.text(), child.stderr.text()])
      return { exit: await child.exited, out: out.trim(), err }
    }
    expect(await turn('first question')).toMatchObject({ exit: 0, out: 'answer 1' })
    const second = await turn('resume', '--last', 'second question')
    expect(second).toMatchObject({ exit: 0, out: 'answer 3', err: expect.stringContaining('context compacted') })
    const prompts = upstream.seen.map(({ body }) => JSON.stringify(body.messages))
    expect(prompts).toHaveLength(3)
    expect(prompts[1]).toContain('Write a summary of this conversation')
    expect(prompts[2]).toContain('Summary of the conversation up to here:\\n\\nanswer 2')
    expect(prompts[2]).not.toContain('answer 1')
  },
  3 * turnMs,
)
