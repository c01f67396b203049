// Goal: an owner puts a secret into a verified instance over a real OpenSSH; its value is in no argument, file, output
// or message on the way, and verify instance shows that it is there.

import { afterAll, afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { join } from 'node:path'
import { x25519 } from '@noble/curves/ed25519.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import { sampleKeys } from '../../../scripts/rigs/gateway/receipt-samples.ts'
import { sampleDocument } from '../../../scripts/rigs/instances/sample-claim.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { decapsulateWith } from '../../../src/attest/receipt/kem.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { orderLineBytesMax } from '../../../src/contract/vm/orders/order.ts'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { type ClaimRecord, keyDigest } from '../../../src/guest/claim-record.ts'
import { serveLines } from '../../../src/guest/line-server.ts'
import { createOrders } from '../../../src/guest/orders/orders.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { createSecretHandlers, statedSecrets } from '../../../src/guest/secrets/secrets.ts'
import { run } from '../../../src/linux/command.ts'
import { startInstanceApi } from '../../rigs/instances/instance-api.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd() && Bun.which('perl') !== null, 'needs ssh and sshd of OpenSSH, and perl')
const dir = mkdtempSync(join(tmpdir(), 'srt-secret-'))
const programs = join(dir, 'programs')
mkdirSync(programs)
const api = await startInstanceApi(dir)
const server = noSshd ? null : await startSshServer(dir, programs)
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

const value = 'ghp_0123456789abcdef'
const image = new URL('../../../guest-image/recipes/instance/root/usr/bin/strongroom-order', import.meta.url).pathname
const { hostname } = sampleInstance
const { uid, gid } = userInfo()
const { publicKeys, secretKeys } = sampleKeys()
const passedOn = join(dir, 'passed-on')
let paths = guestPaths('')
let secrets: readonly Secret[] = []
let agent: Disposable | null = null

beforeEach(() => {
  const root = mkdtempSync(join(dir, 'r-'))
  mkdirSync(join(root, 'run/strongroom/broker'), { recursive: true })
  paths = guestPaths(root)
  secrets = []
  writeFileSync(paths.authorizedKeys, `${server?.publicKey}\n`)
  const [publicKey, hostKey] = [server?.publicKey ?? '', server?.hostKey ?? '']
  const claim: ClaimRecord = {
    ...{ claimId: 'claim-1', sha256: 'ab'.repeat(32), organization: 'acme', name: sampleInstance.name, hostname },
    ...{ sshHostKeyDigest: keyDigest(hostKey), publicKeyDigest: keyDigest(publicKey) },
    document: sampleDocument({ ...sampleInstance, publicKey }),
  }
  const owner = { uid, gid }
  const reach = {
    state: () => ({ secrets }) as never,
    change: async (change: { readonly secrets?: readonly Secret[] }) => {
      secrets = change.secrets ?? []
      return { ok: true } as const
    },
  }
  const answer = createOrders({
    ...{ paths, owner, run, random: systemRandom, log: silentLogger, keygenArgv: ['ssh-keygen'] },
    claim: () => claim,
    decapsulate: decapsulateWith(publicKeys, {
      x25519: key => x25519.getSharedSecret(secretKeys.x25519, key),
      mlkem768: ciphertext => ml_kem768.decapsulate(ciphertext, secretKeys.mlkem768),
    }),
    handlers: createSecretHandlers({ paths, owner, reach, claim: () => claim }),
    clock: { sleep: async () => {} },
  })
  agent = serveLines({
    ...{ path: paths.ordersSocket, what: 'orders', requestBytesMax: orderLineBytesMax, answer, log: silentLogger },
  })
  const program = readFileSync(image, 'utf8').replace('/run/strongroom/orders.sock', paths.ordersSocket)
  writeFileSync(join(programs, 'real'), program, { mode: 0o755 })
  writeFileSync(join(programs, 'strongroom-order'), `#!/bin/sh\ntee ${passedOn} | ${join(programs, 'real')}\n`)
  chmodSync(join(programs, 'strongroom-order'), 0o755)
  api.wanted = { hostKey, publicKey }
})
afterEach(() => {
  agent?.[Symbol.dispose]()
})

const target = `${server?.user}@${hostname}`

type Given = { readonly input?: string; readonly json?: boolean; readonly ssh?: boolean }

async function command(words: readonly string[], { input = '', json = true, ssh = true }: Given = {}) {
  const home = mkdtempSync(join(dir, 'home-'))
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
  const place = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-p', `${server?.port}`, '-i', server?.userKeyFile ?? '']
  const key = ssh ? [] : ['--public-key', server?.publicKey ?? '']
  const options = ['--api', api.url, ...api.options, ...key, ...(json ? ['--json'] : [])]
  const argv = [...programArgv, ...words, ...options, ...(ssh ? ['--', ...place, '-o', 'BatchMode=yes'] : [])]
  const child = Bun.spawn(argv, { env, stdin: Buffer.from(input), stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  expect(argv.join(' ') + stdout + stderr).not.toContain(value)
  return { stdout, stderr, code }
}

describe.skipIf(noSshd)('secrets', () => {
  // Goal: the whole life of a secret, by the commands of its owner.
  test('put, ls, rm, and what verify instance shows', async () => {
    const facts = {
      name: 'GITHUB_TOKEN',
      host: 'api.github.com',
      port: 443,
      header: 'Authorization',
      method: 'GET',
      path: '/repos/',
    }
    const put = await command(
      ['secret', 'put', target, 'GITHUB_TOKEN', '--host', 'api.github.com', '--method', 'GET', '--path', '/repos/'],
      { input: `${value}\n` },
    )
    expect([put.code, put.code === 0 ? '' : put.stderr + put.stdout]).toEqual([0, ''])
    expect(JSON.parse(put.stdout)).toEqual({ hostname, secrets: [facts] })
    expect(secrets).toEqual([{ ...facts, format: 'Bearer {}', value }])
    // Programs of the agent pass it on, and have no key for it.
    expect(Object.keys(JSON.parse(readFileSync(passedOn, 'utf8')))).toEqual(['encapsulated', 'sealed'])
    expect(readFileSync(paths.sessionSecrets, 'utf8')).toContain(
      'export GITHUB_TOKEN=strongroom-placeholder-GITHUB_TOKEN\n',
    )

    api.wanted = { ...api.wanted, statement: { secrets: statedSecrets(secrets) } }
    const listed = await command(['secret', 'ls', target], { json: false, ssh: false })
    expect(listed.stdout).toBe('GITHUB_TOKEN, in Authorization of requests to api.github.com, only GET /repos/\n')
    const shown = await command(['verify', 'instance', hostname], { json: false, ssh: false })
    expect(shown.stdout).toContain('secrets     1, not readable by the agent\n')
    expect(shown.stdout).toContain('GITHUB_TOKEN, in Authorization of requests to api.github.com, only GET /repos/\n')
    const document = JSON.parse((await command(['verify', 'instance', hostname], { ssh: false })).stdout)
    expect(document.secrets).toEqual([facts])
    // A file of `secret ls --json` pins them: it passes, and fails once there is another secret.
    const file = join(dir, 'secrets.json')
    writeFileSync(file, (await command(['secret', 'ls', target], { ssh: false })).stdout)
    const pin = ['verify', 'instance', hostname, '--secrets', file]
    expect((await command(pin, { ssh: false })).code).toBe(0)
    const more = [...secrets, { ...facts, name: 'OTHER', format: '{}', value }]
    api.wanted = { ...api.wanted, statement: { secrets: statedSecrets(more) } }
    const refused = await command(pin, { json: false, ssh: false })
    expect([refused.code, refused.stdout]).toEqual([6, expect.stringContaining('you do not expect OTHER, in Author')])

    const removed = await command(['secret', 'rm', target, 'GITHUB_TOKEN'], { json: false })
    expect([removed.code, removed.stdout]).toEqual([0, 'no secrets\n'])
    expect(secrets).toEqual([])
    const again = await command(['secret', 'rm', target, 'GITHUB_TOKEN'], { json: false })
    expect([again.code, again.stderr]).toEqual([5, expect.stringContaining('no secret is called GITHUB_TOKEN')])
  }, 90_000)

  // Goal: no bad secret leaves this machine.
  test('a bad secret is refused before anything is sent, by field and remedy', async () => {
    const bad: [string[], string, RegExp][] = [
      [['GITHUB_TOKEN', '--host', 'localhost'], `${value}\n`, /--host.*must be a DNS name/],
      [['GITHUB_TOKEN', '--host', 'a.test:65536'], `${value}\n`, /--host.*must be a DNS name/],
      [['github', '--host', 'a.test'], `${value}\n`, /name.*must be the name of a variable/],
      [['PATH', '--host', 'a.test'], `${value}\n`, /name: sessions need PATH.*\n.*take another name/],
      [['T', '--host', 'a.test', '--header', 'Host'], `${value}\n`, /--header: Host frames requests/],
      [['T', '--host', 'a.test', '--format', 'Bearer'], `${value}\n`, /--format: it must have \{\}/],
      [
        ['T', '--host', 'a.test', '--path', '/a/../b'],
        `${value}\n`,
        /--path: it has .* or a segment with a dot or blank at its end\nremedy: write it plainly/,
      ],
      [['T', '--host', 'a.test'], '', /standard input has no secret/],
      [['T', '--host', 'a.test'], `${value}\r\nX-More: 1\n`, /standard input has no secret/],
      [['T', '--host', 'a.test'], `${'x'.repeat(5_000)}\n`, /more than|at most/],
    ]
    rmSync(passedOn, { force: true })
    for (const [words, input, message] of bad) {
      const { code, stderr } = await command(['secret', 'put', target, ...words], { input, json: false })
      expect([words, code, stderr]).toEqual([words, 2, expect.stringMatching(message)])
    }
    expect([secrets, await Bun.file(passedOn).exists()]).toEqual([[], false])
  }, 90_000)

  // Goal: a secret is for verified instances alone.
  test('an instance that does not verify gets no secret', async () => {
    api.wanted = { ...api.wanted, statement: { hostname: 'other.acme.agents.example' } }
    const { code } = await command(['secret', 'put', target, 'T', '--host', 'a.test'], { input: value })
    expect([code === 0, secrets]).toEqual([false, []])
  }, 30_000)
})
