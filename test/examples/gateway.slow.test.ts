// Goal: the programs in examples/ do what their headers say, against a gateway that verifies and against nothing else.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runCommand } from '../../scripts/lib/command.ts'
import { clearRig } from '../../scripts/rigs/gateway/attestation.ts'
import {
  type AttestedGateway,
  attestedOptions,
  startAttestedGateway,
} from '../../scripts/rigs/gateway/attested-gateway.ts'
import { KEY, MODEL } from '../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { root } from '../meta/tree.ts'

const work = mkdtempSync(join(tmpdir(), 'strongroom-examples-'))
const files = {
  STRONGROOM_CA: join(work, 'ca.pem'),
  STRONGROOM_SIMULATED_ROOT: join(work, 'root.pem'),
  STRONGROOM_GATEWAY_POLICY: join(work, 'gateway.json'),
}
const text = 'Grüße 👋 you'
const undo = new AsyncDisposableStack()
let gateway: AttestedGateway

beforeAll(async () => {
  undo.defer(() => rmSync(work, { recursive: true, force: true }))
  undo.defer(clearRig)
  const upstream = await startUpstream()
  undo.defer(upstream.stop)
  gateway = undo.use(await startAttestedGateway(upstream))
  const { ca, simulatedRoot, policy } = await attestedOptions()
  writeFileSync(files.STRONGROOM_CA, ca)
  writeFileSync(files.STRONGROOM_SIMULATED_ROOT, simulatedRoot)
  writeFileSync(files.STRONGROOM_GATEWAY_POLICY, JSON.stringify(policy))
})
afterAll(() => undo.disposeAsync())

async function example(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const settings = { STRONGROOM_GATEWAY: gateway.url, STRONGROOM_GATEWAY_KEY: KEY, ...files, ...env }
  return await runCommand(argv, { timeoutMs: 60_000, cwd: root, env: settings })
}

const programs = [['openai'], ['anthropic']] as const

describe.each(programs)('%s', name => {
  const argv = [process.execPath, `examples/${name}.ts`, 'Hello']

  // Goal: the text streams out, and the request came encrypted.
  test('a verified gateway', async () => {
    const before = gateway.encryptedCount()
    const { exitCode, output } = await example(argv)
    expect([exitCode, output]).toEqual([0, expect.stringContaining(text)])
    expect(gateway.encryptedCount()).toBe(before + 1)
  })

  // Goal: a gateway that the policy does not name gets no prompt.
  test('another measurement', async () => {
    const { records } = gateway.gateway
    const policy = join(work, 'other.json')
    const { policy: expected } = await attestedOptions()
    writeFileSync(policy, JSON.stringify({ ...expected, measurements: ['00'.repeat(48)] }))
    const count = (await records()).length
    const { exitCode, output } = await example(argv, { STRONGROOM_GATEWAY_POLICY: policy, STRONGROOM_MODEL: MODEL })
    expect([exitCode, output]).toEqual([1, expect.stringContaining('measurement')])
    expect((await records()).length).toBe(count)
  })
})

describe('curl.sh', () => {
  // Goal: a stream is printed as text, and an error as the gateway says it, with an exit status.
  test.skipIf(skipUnless(Bun.which('jq') !== null, 'needs jq'))('gateway', async () => {
    const good = await example(['examples/curl.sh', 'gateway', 'Hello'], { STRONGROOM_MODEL: MODEL })
    expect([good.exitCode, good.output]).toEqual([0, text])
    const bad = await example(['examples/curl.sh', 'gateway', 'Hello'], { STRONGROOM_MODEL: 'nope' })
    expect(bad.exitCode).not.toBe(0)
  })

  // Goal: without a service it prints how to call it.
  test('usage', async () => {
    const { exitCode, output } = await example(['examples/curl.sh'])
    expect([exitCode, output]).toEqual([2, expect.stringContaining('STRONGROOM_GATEWAY_KEY')])
  })
})

// Goal: the build line in the page's header makes one page without imports, with the types of a browser checked.
test('verify-page', async () => {
  const out = join(work, 'page')
  const built = await example([process.execPath, 'build', 'examples/verify-page/index.html', '--outdir', out])
  expect([built.exitCode, built.output]).toEqual([0, expect.stringContaining('index.html')])
  const scripts = [...new Bun.Glob('*.js').scanSync({ cwd: out })]
  expect(scripts).toHaveLength(1)
  expect(await Bun.file(join(out, scripts[0] ?? '')).text()).not.toMatch(/^import /m)
  const tsc = [process.execPath, 'node_modules/typescript/bin/tsc', '--pretty', 'false', '--project']
  expect(await example([...tsc, 'examples/verify-page'])).toMatchObject({ exitCode: 0, output: '' })
}, 120_000)
