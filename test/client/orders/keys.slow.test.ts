// Goal: an owner's command signs an order that the VM carries out, over a real OpenSSH and the image's own
// strongroom-order; nothing between them can make the command say what the VM has not said.

import { afterAll, afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
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
import { type ClaimRecord, keyDigest } from '../../../src/guest/claim-record.ts'
import { serveLines } from '../../../src/guest/line-server.ts'
import { createIdle } from '../../../src/guest/orders/idle.ts'
import { createKeysHandler, loginKeys } from '../../../src/guest/orders/keys.ts'
import { createOrders } from '../../../src/guest/orders/orders.ts'
import { createPublishing, type Publishing } from '../../../src/guest/orders/publish.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import { run } from '../../../src/linux/command.ts'
import { newOwnerKey } from '../../rigs/guest/signed-order.ts'
import { startInstanceApi } from '../../rigs/instances/instance-api.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'
import { startSshAgent } from '../../rigs/instances/ssh-agent.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd() && Bun.which('perl') !== null, 'needs ssh and sshd of OpenSSH, and perl')
const dir = mkdtempSync(join(tmpdir(), 'srt-orders-'))
const programs = join(dir, 'programs')
mkdirSync(programs)
const api = await startInstanceApi(dir)
const server = noSshd ? null : await startSshServer(dir, programs)
const second = newOwnerKey(dir, 'second')
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

const image = new URL('../../../guest-image/recipes/instance/root/usr/bin/strongroom-order', import.meta.url).pathname
const { hostname } = sampleInstance
const { uid, gid } = userInfo()
const { publicKeys, secretKeys } = sampleKeys()
let paths = guestPaths('')
let agent: Disposable | null = null
let publishing: Publishing

/** Puts a program in the place of strongroom-order in the instance. */
function inInstance(text: string): void {
  writeFileSync(join(programs, 'strongroom-order'), text)
  chmodSync(join(programs, 'strongroom-order'), 0o755)
}

beforeEach(() => {
  const root = mkdtempSync(join(dir, 'r-'))
  mkdirSync(join(root, 'run/strongroom'), { recursive: true })
  mkdirSync(join(root, 'proc'))
  writeFileSync(join(root, 'proc/uptime'), '60.00 1.00\n')
  paths = guestPaths(root)
  writeFileSync(paths.authorizedKeys, `${server?.publicKey}\n`)
  const publicKey = server?.publicKey ?? ''
  const claim: ClaimRecord = {
    ...{ claimId: 'claim-1', sha256: 'ab'.repeat(32), organization: 'acme', name: sampleInstance.name, hostname },
    sshHostKeyDigest: keyDigest(server?.hostKey ?? ''),
    publicKeyDigest: keyDigest(publicKey),
    document: sampleDocument({ ...sampleInstance, publicKey }),
  }
  const owner = { uid, gid }
  const daemon = { start: async () => {}, stop: async () => {}, signal: () => false }
  publishing = createPublishing({ paths, system: owner, publishedGid: gid, daemon, claim: () => claim })
  const answer = createOrders({
    ...{ paths, owner, run, random: systemRandom, log: silentLogger, keygenArgv: ['ssh-keygen'] },
    claim: () => claim,
    decapsulate: decapsulateWith(publicKeys, {
      x25519: key => x25519.getSharedSecret(secretKeys.x25519, key),
      mlkem768: ciphertext => ml_kem768.decapsulate(ciphertext, secretKeys.mlkem768),
    }),
    handlers: {
      keys: createKeysHandler({ paths, owner }),
      ...createIdle({ paths, owner }).handlers,
      publish: publishing.publish,
    },
    clock: { sleep: async () => {} },
  })
  agent = serveLines({
    ...{ path: paths.ordersSocket, what: 'orders', requestBytesMax: orderLineBytesMax, answer, log: silentLogger },
  })
  inInstance(readFileSync(image, 'utf8').replace('/run/strongroom/orders.sock', paths.ordersSocket))
  api.wanted = { hostKey: server?.hostKey ?? '', publicKey: server?.publicKey ?? '' }
})
afterEach(() => {
  agent?.[Symbol.dispose]()
})

/** `strongroom COMMAND TARGET WORDS`, as a process of its own. */
async function command(words: readonly string[], { json = true, more = [] as string[], ssh = true, agent = '' } = {}) {
  const home = mkdtempSync(join(dir, 'home-'))
  const tmp = join(home, 'tmp')
  mkdirSync(tmp)
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: home,
    TMPDIR: tmp,
    ...(agent === '' ? {} : { SSH_AUTH_SOCK: agent }),
  }
  const identity = agent === '' ? ['-i', server?.userKeyFile ?? ''] : []
  const place = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-p', `${server?.port}`, ...identity]
  const options = ['--api', api.url, ...api.options, ...(json ? ['--json'] : []), ...more]
  const argv = [...programArgv, ...words, ...options, ...(ssh ? ['--', ...place, '-o', 'BatchMode=yes'] : [])]
  const child = Bun.spawn(argv, { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  expect(readdirSync(tmp)).toEqual([])
  return { stdout, stderr, code }
}

const target = `${server?.user}@${hostname}`

describe.skipIf(noSshd)('orders', () => {
  test('goal: a key is added, listed and removed, never the last one', async () => {
    const added = await command(['keys', 'add', target, `${second.file}.pub`])
    expect([added.code, added.code === 0 ? '' : added.stderr + added.stdout]).toEqual([0, ''])
    const [first] = loginKeys(paths) ?? []
    expect(JSON.parse(added.stdout)).toEqual({ hostname, keys: [first, second.fingerprint], own_key: first })
    api.wanted = { ...api.wanted, statement: { loginKeys: loginKeys(paths) } }
    const listed = await command(['keys', 'ls', target], {
      json: false,
      more: ['--public-key', `${second.file}.pub`],
      ssh: false,
    })
    expect(listed.stdout).toBe(`${first}\n${second.fingerprint}  yours, named by --public-key or client.toml\n`)
    expect((await command(['keys', 'rm', target, second.fingerprint])).code).toBe(0)
    const last = await command(['keys', 'rm', target, first ?? ''])
    expect([last.code, last.stdout]).toEqual([5, expect.stringContaining('remove: the last key stays')])
    expect(loginKeys(paths)).toEqual([first ?? ''])
  }, 60_000)

  test('goal: the idle time is set and postponed', async () => {
    const idle = await command(['idle', target, '2h'], { json: false })
    expect([idle.stdout, idle.code]).toEqual(['idle end: after 120 minutes without use\n', 0])
    const kept = await command(['keep', target, '1d'], { json: false })
    expect([kept.stdout, kept.code]).toEqual(['idle end: after 120 minutes without use, not within 1440 minutes\n', 0])
    expect((await command(['idle', target, '0h'])).code).toBe(2)
    const every = await command(['snapshot', target, '--every', '6h'], { json: false })
    expect([every.stderr, every.stdout]).toEqual([
      every.stderr,
      'idle end: after 120 minutes without use, not within 1440 minutes\nsnapshots: every 360 minutes, if files have changed\n',
    ])
    const again = await command(['idle', target, 'off'])
    expect(JSON.parse(again.stdout)).toMatchObject({ idle: 'off', snapshot_every: 360 })
    const off = await command(['snapshot', target, '--every', 'off'], { json: false })
    expect(off.stdout).toBe('idle end: never by itself, not within 1440 minutes\nsnapshots: by command alone\n')
    for (const time of ['14m', '31d', '6']) expect((await command(['snapshot', target, '--every', time])).code).toBe(2)
  }, 60_000)

  test('goal: a key that only ssh-agent has signs', async () => {
    const directory = mkdtempSync(join(dir, 'agent-'))
    using _agent = await startSshAgent(directory, server?.userKeyFile ?? '')
    const added = await command(['keys', 'add', target, `${second.file}.pub`], { agent: join(directory, 'agent.sock') })
    expect([added.code, added.code === 0 ? '' : added.stdout]).toEqual([0, ''])
    expect(loginKeys(paths)).toContain(second.fingerprint)
  }, 60_000)

  test('goal: an answer that the VM did not seal is none', async () => {
    const unanswered = /no answer to the order/
    const made: [string, RegExp][] = [
      ['#!/bin/sh\ncat >/dev/null\necho \'{"ok":true,"result":{"keys":[]}}\'\n', unanswered],
      ['#!/bin/sh\ncat >/dev/null\necho \'{"sealed":"AAAA"}\'\n', unanswered],
      ['#!/bin/sh\ncat >/dev/null\nexit 3\n', /exit code 3/],
      ['#!/bin/sh\nexit 127\n', /takes no orders/],
      ['#!/bin/sh\ncat >/dev/null\necho \'{"refused":"go away"}\'\n', /go away .*does not prove/],
      ['#!/bin/sh\ncat >/dev/null\nhead -c 9000000 /dev/zero\n', /more than \d+ bytes/],
    ]
    for (const [text, words] of made) {
      inInstance(text)
      const { code, stdout } = await command(['keys', 'add', target, `${second.file}.pub`])
      expect([code === 0, stdout]).toEqual([false, expect.stringMatching(words)])
    }
    inInstance('#!/bin/sh\ncat >/dev/null\nexit 3\n')
    const plain = await command(['keys', 'add', target, `${second.file}.pub`], { json: false })
    expect(`${plain.stdout}${plain.stderr}`.replace(/\s+/g, ' ')).toContain('hold an order back and deliver it later')
    expect(loginKeys(paths)).toBeNull()
  }, 60_000)

  test('goal: a port is published with what its key is and why it is not reached yet, and unpublished', async () => {
    const said = async (words: readonly string[], more: string[] = []) => {
      const { stdout, stderr, code } = await command(words, { json: false, more })
      return code === 0 ? stdout : stderr.replace(/\s+/g, ' ')
    }
    const line = /^https:\/\/api\.\S+ → port 3000, by the key sha256:([0-9a-f]{64})$/m
    const first = await said(['publish', target, '3000'], ['--name', 'api', '--no-wait'])
    expect(first).toMatch(line)
    expect(first).toContain('not reached yet: it serves no certificate yet')
    const more = ['--name', 'api', '--no-wait']
    const second = await command(['publish', target, '3000'], { more: [...more, '--egress', '1GiB'] })
    const [published] = JSON.parse(second.stdout).published
    const expected = { name: 'api', host: `api.${hostname}`, port: 3_000, certified: false, problem: null }
    expect(published).toMatchObject({ ...expected, egress_bytes: 2 ** 30 })
    expect(published.key_sha256).toBe(line.exec(first)?.[1])
    await publishing.take({ name: 'api', chain: null, problem: 'no room\n\u001b[2Jyou may log in' })
    const again = await said(['publish', target, '4000'], ['--no-wait'])
    expect(again).toContain('not reached yet: no room')
    expect(again.split('\n')).toHaveLength(5)
    expect(again).not.toContain('\u001b')
    expect(await said(['unpublish', target])).toMatch(line)
    expect(await said(['publish', target, '18442'])).toContain('anyone could use your key')
    expect(await said(['publish', target, '80'])).toContain('a port from 1024 to 65535')
    expect(await said(['publish', target, '3000'], ['--name', 'a.b'])).toContain('a lowercase letter')
    expect(await said(['unpublish', target])).toContain('web is not published')
    expect(await said(['unpublish', target], ['--name', 'api'])).toBe('no published ports\n')
    expect(publishing.stated()).toBeNull()
  }, 240_000)

  test('goal: who pins the reach of programs is told of the port to accept before the order, and can unpublish', async () => {
    const egress = { allow: [{ host: 'api.github.com', port: 443 }], default: 'refuse' }
    const file = join(mkdtempSync(join(dir, 'reach-')), 'reach.json')
    writeFileSync(file, JSON.stringify(egress))
    const more = ['--egress-policy', file]
    api.wanted = { ...api.wanted, statement: { egressPolicy: JSON.stringify(egress) } }
    const early = await command(['publish', target, '3000'], { json: false, more: [...more, '--no-wait'] })
    expect([early.code, early.stderr]).toEqual([
      2,
      expect.stringContaining('add {"name":"web","port":3000} to "published"'),
    ])
    expect(publishing.stated()).toBeNull()
    const policy = join(dir, 'published.json')
    const stated = { ...JSON.parse(readFileSync(join(dir, 'policy.json'), 'utf8')), egress }
    writeFileSync(policy, JSON.stringify({ ...stated, published: [{ name: 'web', port: 3_000 }] }))
    // The VM lacks it still.
    const named = await command(['publish', target, '3000'], { more: ['--policy', policy, '--no-wait'] })
    expect([named.code, named.code === 0 ? '' : named.stdout]).toEqual([0, ''])
    const published = publishing.stated() ?? []
    api.wanted = { ...api.wanted, statement: { egressPolicy: JSON.stringify(egress), published } }
    const other = await command(['keys', 'ls', target], { json: false, more, ssh: false })
    expect([other.code, other.stderr]).toEqual([6, expect.stringContaining('unpublish it, or name it')])
    expect((await command(['unpublish', target], { more })).code).toBe(0)
    expect(publishing.stated()).toBeNull()
  }, 120_000)

  test('goal: the order and its signature are not readable on the way', async () => {
    const seen = join(dir, 'seen')
    inInstance(`#!/bin/sh\ntee ${seen} | ${join(programs, 'real')}\n`)
    writeFileSync(
      join(programs, 'real'),
      readFileSync(image, 'utf8').replace('/run/strongroom/orders.sock', paths.ordersSocket),
      { mode: 0o755 },
    )
    expect((await command(['keys', 'add', target, `${second.file}.pub`])).code).toBe(0)
    const line = readFileSync(seen, 'utf8')
    expect(Object.keys(JSON.parse(line))).toEqual(['encapsulated', 'sealed'])
    // Passed on once more, it changes nothing.
    expect((await command(['keys', 'rm', target, second.fingerprint])).code).toBe(0)
    const again = Bun.spawn([join(programs, 'real')], { stdin: Buffer.from(line), stdout: 'pipe' })
    expect(Object.keys(JSON.parse(await again.stdout.text()))).toEqual(['sealed'])
    expect(loginKeys(paths)).toHaveLength(1)
  }, 60_000)

  test('goal: an instance that does not verify gets no order', async () => {
    api.wanted = { ...api.wanted, statement: { hostname: 'other.acme.agents.example' } }
    const { code } = await command(['keys', 'add', target, `${second.file}.pub`])
    expect(code).not.toBe(0)
    expect(loginKeys(paths)).toBeNull()
  })
})
