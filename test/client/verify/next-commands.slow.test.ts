// Goal: a command of `try next` that a person pastes into a shell does what the verdict of FAIL promises.

import { afterAll, afterEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sampleDocument, sampleGateway } from '../../../scripts/rigs/instances/sample-claim.ts'
import { startInstanceApi } from '../../rigs/instances/instance-api.ts'
import { sampleInstance, samplePublicKey } from '../../rigs/instances/instance-attestation.ts'
import { commandsIn, pastedWords, runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-next-commands-'))
const api = await startInstanceApi(dir)
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})
afterEach(() => {
  Object.assign(api, { wanted: {} })
})

const line = (...more: string[]) => [
  ...['verify', 'instance', sampleInstance.hostname, '--no-known-hosts', '--public-key', samplePublicKey],
  ...more,
]
const online = () => line('--api', api.url, ...api.options)

test('goal: the command that FAIL prints first is whole, and accepts what it names and nothing else', async () => {
  const outside = ['mock=http://21.0.0.1:8000', `it's "$(x)"=https://far.example`, 'known']
  const gateway: typeof sampleGateway = { ...sampleGateway, outside, allow: ['usage-labels', 'traces'] }
  Object.assign(api, {
    wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
  })
  const home = join(dir, 'of-outside')
  mkdirSync(join(home, 'strongroom'), { recursive: true })
  const defaults = 'allow_outside = "known"\nallow = "traces"\n'
  writeFileSync(join(home, 'strongroom/client.toml'), defaults, { mode: 0o600 })
  const run = (argv: readonly string[]) => runHere(argv, { variables: { XDG_CONFIG_HOME: home } })
  const refused = await run(online())
  const argv = pastedWords(commandsIn(refused.stdout)[0])
  expect([refused.code, argv]).toEqual([
    6,
    [
      ...online(),
      ...['--allow-outside', 'known', '--allow-outside', outside[0] ?? '', '--allow-outside', outside[1] ?? ''],
      ...['--allow', 'traces', '--allow', 'usage-labels'],
    ],
  ])
  const { code, stdout } = await run(argv)
  expect([code, stdout.match(/OUTSIDE: /g)?.length]).toEqual([0, 3])
  // Another gateway than the expected one is not there to be accepted.
  const other = { ...gateway, measurements: ['c9'.repeat(48)] }
  Object.assign(api, { wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, other) } })
  const strange = await run(online())
  expect([strange.code, strange.stdout.includes('--allow-outside known')]).toEqual([6, false])
  expect(pastedWords(commandsIn(strange.stdout)[0])).toEqual([...online(), '--verbose'])
})

test('goal: an image that is not the expected one is not there to be used with what it asks for', async () => {
  const gateway = { ...sampleGateway, outside: ['far'] }
  Object.assign(api, {
    wanted: { claim: sampleDocument({ ...sampleInstance, publicKey: samplePublicKey }, gateway) },
  })
  const policy = JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8'))
  const other = join(dir, 'other-policy.json')
  writeFileSync(other, JSON.stringify({ ...policy, measurements: ['ab'.repeat(48)] }))
  const argv = [...online(), '--policy', other]
  const { code, stdout } = await runHere(argv)
  expect([code, commandsIn(stdout).map(pastedWords)]).toEqual([6, [[...argv, '--verbose']]])
  expect(stdout).toContain('another image runs there than you expect (measurement: ')
})

test('goal: without any expectation FAIL prints how to make a policy, and the command that takes it', async () => {
  const bare = line('--api', api.url, ...api.options.filter((_, at) => at < 2 || at > 5))
  const { code, stdout } = await runHere(bare)
  const [example, gatewayExample, last] = commandsIn(stdout)
  expect(code).toBe(6)
  expect(example).toBe(
    'strongroom verify policy-example --image manifest.json --operator-key operator-key.pub.pem > policy.json',
  )
  expect(gatewayExample).toBe(
    'strongroom verify policy-example --image gateway-manifest.json --operator-key operator-key.pub.pem > gateway.json',
  )
  expect(last).toEndWith(' --policy policy.json --gateway-policy gateway.json')
})
