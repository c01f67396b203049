// Goal: client.toml gives defaults and nothing else: every mistake in it is refused with its line.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isRoot } from '../../scripts/rigs/netns.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { clientConfigHelp, loadClientDefaults } from '../../src/client/client-config.ts'

const home = mkdtempSync(join(tmpdir(), 'srt-client-config-'))
afterAll(() => rmSync(home, { recursive: true }))
const folder = join(home, '.config/strongroom')
const path = join(folder, 'client.toml')
beforeEach(() => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
})

const env = { HOME: home }

async function load(text: string) {
  writeFileSync(path, text, { mode: 0o600 })
  return await loadClientDefaults(env)
}

test('goal: every field is a default, and paths are relative to the file or to the home directory', async () => {
  const text = [
    'api = "https://instances.example:8441"',
    'key_file = "~/keys/a"',
    'ca = "ca.pem"',
    'policy = "../policy.json"',
    'image = "/images/instance"',
    'public_key = "~/.ssh/id_ed25519.pub"',
    'operator_key = "operator-key.pub.pem"',
    'gateway_image = "inference/manifest.json"',
    'trust_simulated_root = "root.pem"',
    'log = "https://instances.example:8441"',
    'log_key = "a+b+c"',
    'witness = ["w+x+y", "z+x+y"]',
    'witness_quorum = 2',
    'log_age_days = 3',
    'in_log = true',
    'unwitnessed = true',
    'log_ca = "log.pem"',
    'log_state = "~/seen"',
  ]
  expect(await load(text.join('\n'))).toEqual({
    api: 'https://instances.example:8441',
    key_file: join(home, 'keys/a'),
    ca: join(folder, 'ca.pem'),
    policy: join(home, '.config/policy.json'),
    image: '/images/instance',
    public_key: join(home, '.ssh/id_ed25519.pub'),
    operator_key: join(folder, 'operator-key.pub.pem'),
    gateway_image: join(folder, 'inference/manifest.json'),
    trust_simulated_root: join(folder, 'root.pem'),
    log: 'https://instances.example:8441',
    log_key: 'a+b+c',
    witness: ['w+x+y', 'z+x+y'],
    witness_quorum: 2,
    log_age_days: 3,
    in_log: true,
    unwitnessed: true,
    log_ca: join(folder, 'log.pem'),
    log_state: join(home, 'seen'),
  })
  for (const name of text.map(line => line.split(' ')[0] ?? '')) expect(clientConfigHelp).toContain(`  ${name} = `)
})

test('goal: the digest of an operator key is no path', async () => {
  const digest = 'Ab'.repeat(48)
  expect((await load(`operator_key = "${digest}"`)).operator_key).toBe(digest)
  expect((await load(`operator_key = "${digest}0"`)).operator_key).toBe(join(folder, `${digest}0`))
})

test('goal: without the file, or without a home, there are no defaults; XDG_CONFIG_HOME goes before HOME', async () => {
  expect(await loadClientDefaults(env)).toEqual({})
  expect(await loadClientDefaults({})).toEqual({})
  await load('ca = "ca.pem"')
  expect((await loadClientDefaults({ HOME: '/nonexistent', XDG_CONFIG_HOME: join(home, '.config') })).ca).toBe(
    join(folder, 'ca.pem'),
  )
})

// Goal: a mistake in the file is refused, with its line.
test.each([
  ['any_crl = true', 'client.toml:1: any_crl: there is no such field, only api, builds, key_file'],
  ['api = "https://x"\npolicy = 1', 'client.toml:2: policy: must be a text'],
  ['policy = ""', 'client.toml:1: policy: must be a text'],
  ['policy', 'client.toml:1: '],
  ['witness = "a"', 'client.toml:1: witness: must be a list of 1 to 16 texts'],
  ['ca = "a"\nwitness = ["a", ""]', 'client.toml:2: witness: must be a list of 1 to 16 texts'],
  ['witness_quorum = 0', 'client.toml:1: witness_quorum: must be a whole number from 1 to 16'],
  ['log_age_days = 91', 'client.toml:1: log_age_days: must be a whole number from 1 to 90'],
  ['in_log = "yes"', 'client.toml:1: in_log: must be true or false'],
  ['[policy]\na = 1', 'client.toml:1: policy: must be a text'],
  ['x'.repeat(70_000), 'at most 65536 are allowed'],
])('goal: %p is refused', async (text, message) => {
  await expect(load(text)).rejects.toThrow(message)
})

test('goal: a file that others may write decides nothing', async () => {
  await load('ca = "ca.pem"')
  chmodSync(path, 0o620)
  await expect(loadClientDefaults(env)).rejects.toThrow('others may write it')
})

const noRoot = skipUnless(isRoot, 'needs root, to give a file away')

test.skipIf(noRoot)('goal: nor does one that belongs to somebody else', async () => {
  await load('ca = "ca.pem"')
  chownSync(path, 65_534, 65_534)
  await expect(loadClientDefaults(env)).rejects.toThrow('it belongs to another user')
})
