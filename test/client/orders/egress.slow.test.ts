// Goal: `strongroom egress` sets, shows and logs what programs of an instance reach, by orders over a real OpenSSH; the
// client believes no other policy than the one that the VM confirms.

import { afterAll, beforeEach, describe, expect, test } from 'bun:test'
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
import { createEgressRing, serveLog } from '../../../src/broker/log.ts'
import { egressPolicyText } from '../../../src/contract/http/egress-policy.ts'
import { orderLineBytesMax } from '../../../src/contract/vm/orders/order.ts'
import { type ClaimRecord, keyDigest } from '../../../src/guest/claim-record.ts'
import { serveLines } from '../../../src/guest/line-server.ts'
import { createOrders } from '../../../src/guest/orders/orders.ts'
import { reachOrders } from '../../../src/guest/orders/reach.ts'
import { guestPaths } from '../../../src/guest/paths.ts'
import type { Reach } from '../../../src/guest/reach/reach.ts'
import { run } from '../../../src/linux/command.ts'
import { startInstanceApi } from '../../rigs/instances/instance-api.ts'
import { sampleInstance } from '../../rigs/instances/instance-attestation.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd() && Bun.which('perl') !== null, 'needs ssh and sshd of OpenSSH, and perl')
const dir = mkdtempSync(join(tmpdir(), 'srt-egress-'))
const programs = join(dir, 'programs')
mkdirSync(programs)
const api = await startInstanceApi(dir)
const server = noSshd ? null : await startSshServer(dir, programs)
const ending = new DisposableStack()
afterAll(async () => {
  ending.dispose()
  await server?.[Symbol.asyncDispose]()
  await api[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

const image = new URL('../../../guest-image/recipes/instance/root/usr/bin/strongroom-order', import.meta.url).pathname
const { hostname } = sampleInstance
const { uid, gid } = userInfo()
const { publicKeys, secretKeys } = sampleKeys()
const root = mkdtempSync(join(dir, 'r-'))
const paths = guestPaths(root)
const publicKey = server?.publicKey ?? ''
const claim: ClaimRecord = {
  ...{ claimId: 'claim-1', sha256: 'ab'.repeat(32), organization: 'acme', name: sampleInstance.name, hostname },
  ...{
    sshHostKeyDigest: keyDigest(server?.hostKey ?? 'ssh-ed25519 AAAA'),
    publicKeyDigest: keyDigest('ssh-ed25519 AAAA'),
  },
  document: sampleDocument({ ...sampleInstance, publicKey }),
}
const ring = createEgressRing(() => Date.UTC(2026, 10, 30))

/** The last policy that the VM has taken. */
let taken: unknown = null
let confirms: string | null | 'the same' = 'the same'
const reach: Reach = {
  state: () => null,
  policyText: () => (confirms === 'the same' ? textOf(taken) : confirms),
  change: async ({ policy }) => {
    taken = policy
    return { ok: true }
  },
  restore: async () => {},
  reset: async () => {},
}
const textOf = (policy: unknown) => egressPolicyText(policy as Parameters<typeof egressPolicyText>[0])

if (!noSshd) {
  mkdirSync(join(paths.runDir, 'broker'), { recursive: true })
  writeFileSync(paths.authorizedKeys, `${publicKey}\n`)
  const answer = createOrders({
    ...{ paths, owner: { uid, gid }, run, random: systemRandom, log: silentLogger, keygenArgv: ['ssh-keygen'] },
    claim: () => claim,
    decapsulate: decapsulateWith(publicKeys, {
      x25519: key => x25519.getSharedSecret(secretKeys.x25519, key),
      mlkem768: ciphertext => ml_kem768.decapsulate(ciphertext, secretKeys.mlkem768),
    }),
    handlers: reachOrders({ reach, paths, claim: () => claim }),
    clock: { sleep: async () => {} },
  })
  const socket = { path: paths.ordersSocket, what: 'orders', requestBytesMax: orderLineBytesMax }
  ending.use(serveLines({ ...socket, answer, log: silentLogger }))
  const program = join(programs, 'strongroom-order')
  writeFileSync(program, readFileSync(image, 'utf8').replace('/run/strongroom/orders.sock', paths.ordersSocket))
  chmodSync(program, 0o755)
}

beforeEach(() => {
  api.wanted = { hostKey: server?.hostKey ?? '', publicKey }
  taken = null
  confirms = 'the same'
})

async function egress(words: readonly string[], { json = true, ssh = true } = {}) {
  const home = mkdtempSync(join(dir, 'home-'))
  const key = server?.userKeyFile ?? ''
  const place = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-p', `${server?.port}`, '-i', key]
  const options = ['--api', api.url, ...api.options, ...(json ? ['--json'] : [])]
  const more = ssh ? ['--', ...place, '-o', 'BatchMode=yes'] : ['--public-key', `${key}.pub`]
  const argv = [...programArgv, 'egress', ...words, ...options, ...more]
  const env = { PATH: process.env.PATH ?? '', HOME: home }
  const child = Bun.spawn(argv, { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { stdout, stderr, code }
}

const target = `${server?.user}@${hostname}`
const wanted = {
  default: 'refuse' as const,
  allow: [
    { host: 'github.com', port: 443 },
    { host: '*.example.org', port: 8443 },
  ],
}

describe.skipIf(noSshd)('egress', () => {
  // Goal: the VM gets the policy as the owner named it, and its statement pins.
  test('a policy is set, shown, and a file that pins it', async () => {
    const set = await egress(['set', target, '--reach', 'GitHub.com', '--reach', '*.example.org:8443'], { json: false })
    expect([set.stdout, set.code]).toEqual([`${hostname}: programs reach only *.example.org:8443, github.com\n`, 0])
    expect(taken).toEqual(wanted)
    api.wanted = { ...api.wanted, statement: { egressPolicy: textOf(wanted) } }
    const show = await egress(['show', target], { ssh: false })
    expect(textOf(JSON.parse(show.stdout))).toBe(textOf(wanted))
    const file = join(dir, 'reach.json')
    writeFileSync(file, show.stdout)
    const pinned = await egress(['show', target, '--egress-policy', file], { ssh: false })
    expect(pinned.code).toBe(0)
    api.wanted = { ...api.wanted, statement: { egressPolicy: null } }
    const missing = await egress(['show', target, '--egress-policy', file], { ssh: false, json: false })
    expect([missing.code === 0, missing.stderr]).toEqual([false, expect.stringContaining('any destination, not only')])
  }, 60_000)

  // Goal: an open policy lists nothing.
  test('an open policy removes the restriction', async () => {
    confirms = null
    const open = await egress(['set', target, '--default', 'allow'], { json: false })
    expect([open.stdout, open.code]).toEqual([`${hostname}: programs reach any destination\n`, 0])
    expect(taken).toEqual({ default: 'allow', allow: [] })
    const both = await egress(['set', target, '--default', 'allow', '--reach', 'github.com'])
    expect([both.code, both.stdout]).toEqual([2, expect.stringContaining('lists no destinations')])
  }, 60_000)

  // Goal: the command succeeds only if the VM enforces what was asked.
  test('a VM that confirms another policy is no success', async () => {
    confirms = null
    const other = await egress(['set', target, '--reach', 'github.com'])
    expect([other.code === 0, other.stdout]).toEqual([false, expect.stringContaining('another policy')])
  }, 60_000)

  // Goal: an order's answer has the broker's rows within its bound.
  test('the log comes from the broker, without one it is empty, and only the newest rows fit', async () => {
    expect(JSON.parse((await egress(['log', target])).stdout)).toEqual({ rows: [] })
    const served = await serveLog(paths.brokerLog, 0o600, ring)
    ending.defer(() => void served.close())
    ring.add({ verdict: 'refused', host: 'evil.example', port: 0, reason: 'the policy does not list this name' })
    for (let times = 0; times < 2; times += 1)
      ring.add({ verdict: 'allowed', host: 'github.com', port: 443, reason: null })
    const shown = await egress(['log', target], { json: false })
    expect(shown.stdout).toMatch(/refused +evil\.example \(looked up\) +1 +the policy does not list this name/)
    expect(shown.stdout).toMatch(/allowed +github\.com:443 +2/)
    for (let at = 0; at < 1_100; at += 1)
      ring.add({ verdict: 'refused', host: `${at}.${'a'.repeat(200)}`, port: 1, reason: 'x' })
    const { rows } = JSON.parse((await egress(['log', target])).stdout)
    expect([rows.length > 100, rows.length < 400, rows.at(-1).host.split('.')[0]]).toEqual([true, true, '1099'])
  }, 60_000)
})
