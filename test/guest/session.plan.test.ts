import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { attestedGateway, gatewayCa, makeClaim } from '../../scripts/rigs/guest/root.ts'
import { messageOfTheDay, sessionEnvironment, sshdEnvironment } from '../../src/guest/session.plan.ts'

const publicKey = 'ssh-ed25519 AAAA'
const claim = makeClaim(publicKey)
const without = makeClaim(publicKey, {
  inference: { baseUrl: '', model: '', address: null, gateway: { kind: 'none' }, drawsKey: false },
})

// Goal: every variable, by name; none of the gateway without one.
test('the environment', () => {
  expect(sessionEnvironment(claim, 'gw_0a1b2c3d_key')).toEqual({
    OPENAI_BASE_URL: 'http://127.0.0.1:18442/v1',
    OPENAI_API_KEY: 'gw_0a1b2c3d_key',
    ANTHROPIC_BASE_URL: 'http://127.0.0.1:18442',
    ANTHROPIC_API_KEY: 'gw_0a1b2c3d_key',
    OPENCODE_DISABLE_AUTOUPDATE: '1',
    OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
    OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
    OPENCODE_DISABLE_MODELS_FETCH: '1',
  })
  const names = Object.keys(sessionEnvironment(without, null))
  expect(names.filter(name => !name.startsWith('OPENCODE_'))).toEqual([])
})

// Goal: sshd reads back the exact value for any visible characters of a key, and takes no second directive from it.
test('values that sshd might misread', () => {
  const awkward = { A: `a"b\\c'd #e`, B: '%h= $x "', C: '\\' }
  const dir = mkdtempSync(join(tmpdir(), 'srt-session-'))
  const key = join(dir, 'key')
  const config = join(dir, 'config')
  Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key])
  writeFileSync(config, sshdEnvironment(awkward))
  const { exitCode, stdout, stderr } = Bun.spawnSync(['/usr/sbin/sshd', '-T', '-f', config, '-h', key])
  rmSync(dir, { recursive: true })
  expect([exitCode, stderr.toString()]).toEqual([0, ''])
  const set = stdout
    .toString()
    .split('\n')
    .filter(line => line.startsWith('setenv '))
  expect(set).toEqual(Object.entries(awkward).map(([name, value]) => `setenv ${name}=${value}`))
  expect(sshdEnvironment({})).toBe('')
})

// Goal: the message fits a terminal and names all that a newcomer needs; without a gateway it does not speak of one.
test('the message of the day', () => {
  const message = messageOfTheDay(claim)
  for (const line of message.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
  for (const word of [claim.hostname, 'strongroom-verify', `strongroom verify instance ${claim.hostname}`]) {
    expect(message).toContain(word)
  }
  for (const word of [
    'opencode run',
    'strongroom-agents install',
    'private-root apt-get',
    'GET /v1/usage',
    'ends with this VM',
    'vendor/model-1',
  ]) {
    expect(message).toContain(word)
  }
  expect(message).not.toContain('gw_')
  expect(message).not.toContain(gatewayCa)
  const bare = messageOfTheDay(without)
  expect(bare).not.toContain('OPENAI')
  expect(bare).toContain('No gateway is configured')
  expect(bare).not.toContain('strongroom-gateway')
  expect(message).toContain('NOT ATTESTED: its operator can read your prompts')
  const { inference } = claim
  const attested = { ...attestedGateway, outside: ['elsewhere-1'] }
  const proved = messageOfTheDay(makeClaim(publicKey, { inference: { ...inference, gateway: attested } }))
  expect(proved).toContain('proves with its evidence what it runs before it receives a prompt')
  expect(proved).toContain('OUTSIDE of its VM prompts may go to: elsewhere-1')
  for (const line of proved.split('\n')) expect(line.length).toBeLessThanOrEqual(80)
})

// Goal: the owner reads why the gateway is not attested, and what to do.
test.each([
  ['host', "It runs in the host's own process, outside of any measured VM."],
  ['no-worker', 'Its VM has no worker of its own: prompts go to upstreams outside.'],
  ['elsewhere', 'Its operator runs it elsewhere, and whether it has evidence is unknown.'],
] as const)('a gateway that is not attested: %s', (why, words) => {
  const gateway = { kind: 'unattested', why, ca: null } as const
  const message = messageOfTheDay(makeClaim(publicKey, { inference: { ...claim.inference, gateway } }))
  for (const line of ['NOT ATTESTED: its operator can read your prompts.', words]) expect(message).toContain(line)
  expect(message).toContain('To require evidence of it: strongroom-gateway set')
})
