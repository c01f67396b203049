// Goal: `strongroom verify instance` fails unless the one SSH key that the instance lets in is the caller's, so a host
// that claims an instance with a key of its own is caught.

import { afterAll, afterEach, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../../scripts/rigs/skip.ts'
import { until } from '../../../../scripts/rigs/until.ts'
import { identitiesOf } from '../../../../src/client/verify/keys/own-keys.ts'
import { readSshKey } from '../../../../src/verifier/ssh-key.ts'
import { startInstanceApi } from '../../../rigs/instances/instance-api.ts'
import { ed25519Line, sampleInstance, samplePublicKey } from '../../../rigs/instances/instance-attestation.ts'
import { expectUsageError, runHere } from '../../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-own-key-'))
const api = await startInstanceApi(dir)
afterAll(async () => {
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})
const known = join(dir, 'known_hosts')
afterEach(() => {
  Object.assign(api, { wanted: {}, answer: null })
  api.requests.length = 0
  rmSync(known, { force: true })
})

/** Names no key of the caller's. */
const unowned = (...more: string[]) => ['verify', 'instance', sampleInstance.hostname, '--known-hosts', known, ...more]

function file(name: string, text: string): string {
  const path = join(dir, name)
  writeFileSync(path, text)
  return path
}

const home = (name: string, files: Record<string, string>) => {
  const path = join(dir, name)
  mkdirSync(join(path, '.ssh'), { recursive: true })
  for (const [file, text] of Object.entries(files)) writeFileSync(join(path, '.ssh', file), text)
  return { HOME: path }
}
const judge = async (variables: Record<string, string>, ...more: string[]) => {
  const argv = [...unowned('--api', api.url, ...api.options, ...more), '--json']
  const { code, stdout } = await runHere(argv, { variables })
  const document = JSON.parse(stdout)
  const own = document.checks.find((check: { name: string }) => check.name === 'own-key')
  return [code, document.failed, own.result, own.reason] as const
}
const strangers = `${ed25519Line(7)} host@example`

test('goal: an instance that the host claimed with a key of its own is refused, and no line is written', async () => {
  Object.assign(api, { wanted: { publicKey: strangers } })
  const own = home('owner', { 'id_ed25519.pub': `${samplePublicKey}\n`, id_ed25519: 'secret' })
  const [code, failed, outcome, reason] = await judge(own)
  expect([code, failed, outcome]).toEqual([6, 'policy', 'FAIL'])
  expect(reason).toContain('keys of ~/.ssh/*.pub and ssh-agent count as yours; if it is yours, name it by --public-key')
  expect(existsSync(known)).toBe(false)
  // Without any key of the caller's nothing says whose it is.
  const [none, , missing, why] = await judge({})
  expect([none, missing]).toEqual([6, 'FAIL'])
  expect(why).toContain('none was found in ~/.ssh/*.pub and ssh-agent')
  expect((await judge(own, '--public-key', strangers))[0]).toBe(0)
  expect((await judge(own, '--public-key', file('host.pub', `${strangers}\n`)))[0]).toBe(0)
  expect((await judge(own, '--public-key', samplePublicKey)).slice(0, 3)).toEqual([6, 'policy', 'FAIL'])
})

test('goal: each *.pub of ~/.ssh counts, whatever else is there', async () => {
  const mixed = home('mixed', {
    'a.pub': 'no key',
    'b.pub': 'x'.repeat(100_000),
    'c.pub': `${ed25519Line(8)}\n`,
    'd.pub': `${samplePublicKey}\n`,
    known_hosts: `x ${strangers}\n`,
  })
  const [code, failed, outcome, reason] = await judge(mixed)
  expect([code, failed, outcome]).toEqual([0, null, 'PASS'])
  // The verdict names the file, so that its reader sees whether that key is to count.
  expect(reason).toMatch(/^SHA256:[A-Za-z0-9+/]{43}, /)
  expect(reason).toEndWith(`, ${join(mixed.HOME, '.ssh', 'd.pub')}`)
  expect((await judge(mixed, '--public-key', samplePublicKey))[3]).toEndWith(', named by --public-key or client.toml')
  Object.assign(api, { wanted: { publicKey: strangers } })
  expect((await judge(mixed)).slice(0, 3)).toEqual([6, 'policy', 'FAIL'])
})

// Goal: the keys of an agent are the caller's, as for ssh.
test.skipIf(skipUnless(Bun.which('ssh-agent') !== null, 'needs ssh-agent of OpenSSH'))(
  'a key of ssh-agent counts, and an agent that is gone has none',
  async () => {
    const key = join(dir, 'agent-key')
    const socket = join(dir, 'agent.sock')
    Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key])
    const agent = Bun.spawn(['ssh-agent', '-D', '-a', socket], { stdout: 'ignore', stderr: 'ignore' })
    try {
      await until('the agent listens', 60_000, () => existsSync(socket))
      const env = { PATH: process.env.PATH ?? '', SSH_AUTH_SOCK: socket }
      expect(Bun.spawnSync(['ssh-add', '-q', key], { env }).exitCode).toBe(0)
      Object.assign(api, { wanted: { publicKey: readFileSync(`${key}.pub`, 'utf8').trim() } })
      const [code, failed, outcome, reason] = await judge({ SSH_AUTH_SOCK: socket })
      expect([code, failed, outcome]).toEqual([0, null, 'PASS'])
      expect(reason).toEndWith(', ssh-agent')
    } finally {
      agent.kill('SIGTERM')
      await agent.exited
    }
    expect((await judge({ SSH_AUTH_SOCK: socket })).slice(0, 3)).toEqual([6, 'policy', 'FAIL'])
  },
)

// Goal: keys that signed orders have set are named, accepted by default, and refused where all are pinned.
test('an added key is shown, and fails only where it is not expected', async () => {
  const [first, added] = [readSshKey(samplePublicKey).fingerprint, readSshKey(ed25519Line(3)).fingerprint]
  Object.assign(api, { wanted: { statement: { loginKeys: [first, added] } } })
  const argv = (...more: string[]) =>
    unowned('--api', api.url, ...api.options, '--public-key', samplePublicKey, ...more)
  const shown = await runHere(argv())
  expect(shown.code).toBe(0)
  expect(shown.stdout).toContain(`it lets in your SSH key: ${first}`)
  expect(shown.stdout).toContain(`it lets in ${added} too, by a signed order`)
  const listed = JSON.parse((await runHere([...argv(), '--json'])).stdout)
  expect(listed.login_keys).toEqual([first, added])
  const both = file('both.txt', `# the team\n${samplePublicKey}\n\n${ed25519Line(3)}\n`)
  expect((await runHere(argv('--login-keys', both))).code).toBe(0)
  const refused = await runHere([...argv('--login-keys', file('one.txt', `${samplePublicKey}\n`)), '--json'])
  const failed = JSON.parse(refused.stdout).checks.find((check: { name: string }) => check.name === 'login-keys')
  expect([refused.code, failed.result]).toEqual([6, 'FAIL'])
  expect(failed.reason).toContain(added)
  // The added key is an owner's too; the removed one is none any more.
  Object.assign(api, { wanted: { statement: { loginKeys: [added] } } })
  expect((await judge({}, '--public-key', ed25519Line(3)))[0]).toBe(0)
  expect((await judge({}, '--public-key', samplePublicKey))[0]).toBe(6)
  for (const text of ['', 'no key\n']) {
    await expectUsageError(argv('--login-keys', file('bad.txt', text)), '--login-keys')
  }
})

// Goal: only files that ssh would take as identities count, and no argument of the remote command.
test.each<readonly [string[], string[]]>([
  [
    ['-i', 'a', '-ib', '-p', '22', '-vi', 'c', 'rm -i', '-i', 'd'],
    ['a', 'b', 'c'],
  ],
  [['-F', '-i', '-L', '1:x:2', '-Ai', 'a'], ['a']],
  [['-o', 'x', '--', '-i', 'a'], []],
  [['uname', '-i', 'a'], []],
  [[], []],
])('identities of ssh %p', (args, files) => {
  expect(identitiesOf(args)).toEqual(files)
})

test('goal: a --public-key that is none is refused before anything is asked', async () => {
  await expectUsageError(unowned('--public-key', 'ssh-ed25519 AAAA'), '--public-key')
  await expectUsageError(unowned('--public-key', file('none.pub', 'no key')), '--public-key')
  await expectUsageError(unowned('--public-key', '/nonexistent'), '--public-key /nonexistent')
  expect(api.requests).toEqual([])
})
