// strongroom ssh with a real OpenSSH on both sides, and a stand-in for service A between them.

import { afterAll, afterEach, describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { startInstanceApi } from '../rigs/instances/instance-api.ts'
import { sampleHostKey, sampleInstance } from '../rigs/instances/instance-attestation.ts'
import { hasSshd, startSshServer } from '../rigs/instances/ssh-server.ts'
import { expectUsageError, programArgv, runHere } from '../rigs/program.ts'

const noSshd = skipUnless(hasSshd(), 'needs ssh and sshd of OpenSSH')
const dir = mkdtempSync(join(tmpdir(), 'srt-ssh-'))
const api = await startInstanceApi(dir)
const server = noSshd ? null : await startSshServer(dir)
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})
afterEach(() => {
  Object.assign(api, { wanted: {}, answer: null })
})

const { hostname } = sampleInstance
const target = `${server?.user}@${hostname}`
/** Address of the instance, whose name is not in DNS. `-F none` ignores the configuration of the test's user. */
const place = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-p', `${server?.port}`, '-i', server?.userKeyFile ?? '']
const batch = ['-o', 'BatchMode=yes', '-o', 'IdentitiesOnly=yes']

/** The program as a process of its own, in a home directory and a directory for temporary files of its own. */
async function ssh(args: readonly string[], { more = [] as string[], to = target, stdin = '' } = {}) {
  const home = mkdtempSync(join(dir, 'home-'))
  const tmp = join(home, 'tmp %h')
  mkdirSync(tmp)
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: tmp }
  const argv = [...programArgv, 'ssh', to, '--api', api.url, ...api.options, ...more, '--', ...place, ...batch]
  const child = Bun.spawn([...argv, ...args], { env, stdin: Buffer.from(stdin), stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  expect([readdirSync(tmp), existsSync(join(home, '.ssh'))]).toEqual([[], false])
  return { stdout, stderr, code }
}

const logins = () => (server?.log().match(/Accepted publickey/g) ?? []).length
const connections = () => (server?.log().match(/Connection from/g) ?? []).length

describe.skipIf(noSshd)('with the attested key', () => {
  const attested = () => Object.assign(api, { wanted: { hostKey: server?.hostKey, publicKey: server?.publicKey } })

  test('goal: it logs in, stdout and stdin are the command’s, and its exit code is ours', async () => {
    attested()
    const { stdout, stderr, code } = await ssh(['tr a-z A-Z; exit 42'], { stdin: 'hello' })
    expect([stdout, code, code === 42 ? '' : stderr + server?.log()]).toEqual(['HELLO', 42, ''])
    expect(stderr).toMatch(/^VERDICT: PASS SIMULATED, no hardware attests .*: k3v9x2ma\.acme\.agents\.example SHA256:/)
  })

  test('goal: neither the configuration nor the arguments make it take another key', async () => {
    attested()
    const open = ['-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null']
    const config = join(dir, 'config')
    writeFileSync(config, `Host *\n  StrictHostKeyChecking no\n  HostKeyAlias other\n  HostKeyAlgorithms ssh-rsa\n`)
    expect((await ssh([...open, 'true'])).code).toBe(0)
    expect((await ssh([...open, '-F', config, 'true'])).code).toBe(0)
    Object.assign(api, { wanted: { hostKey: sampleHostKey, publicKey: server?.publicKey } })
    const before = logins()
    for (const args of [open, [...open, '-F', config]]) {
      const { stdout, stderr, code } = await ssh([...args, 'echo in'])
      expect([stdout, code]).toEqual(['', 255])
      expect(stderr).toContain('Host key verification failed')
    }
    expect(logins()).toBe(before)
  })

  test('goal: what is killed is no success, and leaves nothing behind', async () => {
    attested()
    const home = mkdtempSync(join(dir, 'home-'))
    const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
    const argv = [...programArgv, 'ssh', target, '--api', api.url, ...api.options, '--', ...place, ...batch]
    const child = Bun.spawn([...argv, 'echo in; sleep 60'], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'ignore' })
    const { value } = await child.stdout.getReader().read()
    expect(new TextDecoder().decode(value)).toBe('in\n')
    child.kill('SIGTERM')
    expect(await child.exited).not.toBe(0)
    expect(readdirSync(home).filter(name => name.startsWith('strongroom-'))).toEqual([])
  })
})

describe.skipIf(noSshd)('without a good verdict', () => {
  // Goal: not even a connection is made, and the exit code says why, as that of `verify instance` does.
  test('nothing is run', async () => {
    const before = connections()
    const ours = JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8'))
    const otherPolicy = join(dir, 'other-policy.json')
    writeFileSync(otherPolicy, JSON.stringify({ ...ours, measurements: ['00'.repeat(48)] }))
    const cases = [
      { code: 1, wanted: { hostKey: server?.hostKey, statement: { sshHostKeyDigest: new Uint8Array(32) } } },
      { code: 1, wanted: { hostKey: server?.hostKey, nonce: new Uint8Array(32) } },
      { code: 6, wanted: { hostKey: server?.hostKey }, more: ['--policy', otherPolicy] },
      { code: 2, wanted: { hostKey: server?.hostKey }, more: ['--vmpl', '1'] },
      { code: 2, answer: () => Response.json({}) },
      { code: 5, answer: () => Response.json({}, { status: 409 }) },
    ]
    for (const [at, { code: expected, more = [], ...item }] of cases.entries()) {
      Object.assign(api, { wanted: {}, answer: null, ...item })
      const { stdout, code } = await ssh(['echo in'], { more })
      expect([at, stdout, code]).toEqual([at, '', expected])
      const argv = ['verify', 'instance', hostname, '--api', api.url, ...api.options, ...more, '--no-known-hosts']
      expect([at, (await runHere(argv)).code]).toEqual([at, expected])
    }
    expect(connections()).toBe(before)
  })

  test('as a document', async () => {
    // Goal: with --json a failed verdict is one document on stdout.
    api.wanted = { nonce: new Uint8Array(32) }
    const { stdout, code } = await ssh(['echo in'], { more: ['--json'] })
    expect([code, JSON.parse(stdout).ok, JSON.parse(stdout).host_key.line]).toEqual([1, false, null])
  })
})

test('goal: bad input is refused with exit code 2', async () => {
  await expectUsageError(['ssh', 'k3v9x2ma'], 'HOME is not set')
  await expectUsageError(['ssh', 'K3v9x2ma'], 'It must be a name of `strongroom ls`')
  await expectUsageError(['ssh', `-oProxyCommand=x@${hostname}`], '')
  await expectUsageError(['ssh', `a b@${hostname}`], 'no user name')
  await expectUsageError(['ssh', hostname, '-L', '1:x:2'], "unknown option '-L'")
  await expectUsageError(['ssh', hostname], 'an API key is needed')
})
