// A host that turns against a claimed guest, over the wire and with the real agent process.

import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { type HostEnd, makeHostEnd, makePortPaths } from '../../scripts/rigs/guest/agent-port.ts'
import { listTree, makeClaim, makeCustomerKey, makeSandbox, type Sandbox, seal } from '../../scripts/rigs/guest/root.ts'
import { decodeStatement } from '../../src/attest/receipt/statement.ts'
import { fromBase64Url, toBase64Url } from '../../src/base/bytes.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { agentLineBytesMax } from '../../src/contract/vm/agent.ts'
import { ask, startAgent } from '../rigs/guest/agent-process.ts'

const network = { address: '10.9.0.7', gateway: '10.9.0.1', mtuBytes: 1420, resolvers: ['10.9.0.1'] }
const freshNonce = () => toBase64Url(systemRandom(32))
const launch = { measurement: '5a'.repeat(48), operatorKey: '6b'.repeat(48) }

/** A claimed agent that has been given addresses. */
async function claimed(options: { device?: boolean } = {}) {
  const sandbox = await makeSandbox()
  const { publicKey } = makeCustomerKey(sandbox)
  fs.writeFileSync(sandbox.paths.networkRecord, JSON.stringify(network))
  fs.writeFileSync(sandbox.paths.resolvConf, 'nameserver 10.9.0.1\n')
  const port = makePortPaths(sandbox)
  const agent = startAgent(sandbox, port, options)
  const host = await makeHostEnd(port)
  const { hello } = await ask(host, { id: 'h', op: 'hello' })
  const claim = makeClaim(publicKey)
  const sealed = seal(claim, hello.boxKey)
  expect(await ask(host, { id: 'c', op: 'claim', sealed })).toMatchObject({ ok: true })
  return {
    sandbox,
    agent,
    host,
    hello,
    claim,
    sealed,
    publicKey,
    [Symbol.asyncDispose]: async () => {
      host[Symbol.dispose]()
      await agent[Symbol.asyncDispose]()
      await sandbox[Symbol.asyncDispose]()
    },
  }
}

/** Everything of the guest but its logs. */
function treeOf(sandbox: Sandbox): string[] {
  return listTree(sandbox.root).filter(line => !/^(run\/strongroom\/log|sshd\.log)/.test(line))
}

async function stillThere(host: HostEnd, id = 'still'): Promise<void> {
  host.write('\n')
  expect(await ask(host, { id, op: 'hello' })).toMatchObject({ ok: true })
}

describe('after the claim', () => {
  // Goal: no message, in any order, changes a file, an address, a resolver, a key or the host name; the host learns
  // nothing new.
  test('nothing changes any more', async () => {
    await using guest = await claimed()
    const { host, sandbox, hello, claim, publicKey } = guest
    const before = treeOf(sandbox)
    const refused = async (request: { op: string; [field: string]: unknown }, code: string) => {
      expect(await ask(host, { id: 'x', ...request })).toMatchObject({ ok: false, code })
      expect(treeOf(sandbox)).toEqual(before)
    }
    for (const change of [
      { resolvers: ['10.9.0.66'] },
      { resolvers: [] },
      { gateway: '10.9.0.66' },
      { address: '10.9.0.66' },
      { mtuBytes: 576 },
    ]) {
      await refused({ op: 'network', network: { ...network, ...change } }, 'claimed')
    }
    expect(await ask(host, { id: 'same', op: 'network', network })).toEqual({ id: 'same', ok: true })
    const other = { ...claim, claimId: 'claim-2', publicKey: `${publicKey} other` }
    await refused({ op: 'claim', sealed: seal(other, hello.boxKey) }, 'claimed')
    await refused({ op: 'claim', sealed: seal({ ...claim, publicKey: other.publicKey }, hello.boxKey) }, 'claimed')
    const box = guest.sealed.box.replace(/./, first => (first === 'A' ? 'B' : 'A'))
    await refused({ op: 'claim', sealed: { ...guest.sealed, box } }, 'bad_claim')
    await refused({ op: 'receipt', receipt: '{}' }, 'unclaimed')
    for (const op of ['exec', 'read', 'write', 'files', 'sshd', 'unclaim', 'reset', 'keys']) {
      await refused({ op, path: sandbox.paths.sshHostKey }, 'bad_request')
    }
    // The claim that is in force says itself again, and changes nothing either.
    expect(await ask(host, { id: 'again', op: 'claim', sealed: guest.sealed })).toMatchObject({ ok: true })
    expect(treeOf(sandbox)).toEqual(before)
    expect((await ask(host, { id: 'h2', op: 'hello' })).hello).toEqual({ ...hello, claimId: claim.claimId })
  })

  // Goal: for any nonce and other input of the host, the guest signs its own claim over that nonce.
  test('nothing but the claim is ever signed', async () => {
    await using guest = await claimed()
    const { host, claim } = guest
    const nonces = [freshNonce(), toBase64Url(new Uint8Array(32)), toBase64Url(new Uint8Array(32).fill(0xff))]
    for (const nonce of nonces) {
      const { evidence } = await ask(host, { id: 'e', op: 'evidence', nonce, simulated: launch })
      const { organization, name, hostname } = claim
      expect(decodeStatement(fromBase64Url(evidence.statement) ?? new Uint8Array(0))).toMatchObject({
        kind: 'claim',
        scope: 'claim-only',
        organization,
        name,
        hostname,
        nonce: fromBase64Url(nonce),
      })
    }
    for (const bad of [
      { nonce: nonces[0], simulated: null },
      { nonce: nonces[0] },
      { nonce: '', simulated: launch },
      { nonce: `${'A'.repeat(42)}B`, simulated: launch },
      { nonce: 'A'.repeat(86), simulated: launch },
      { nonce: nonces[0], simulated: { ...launch, measurement: 'zz' } },
      { nonce: nonces[0], simulated: launch, kind: 'workload' },
      { nonce: nonces[0], simulated: { ...launch, organization: 'other' } },
    ]) {
      expect(await ask(host, { id: 'b', op: 'evidence', ...bad })).toMatchObject({ ok: false, code: 'bad_request' })
    }
  })

  // Goal: the same with a report device: reports are over this guest's own statements alone, and the host's measurement
  // is refused.
  test('the device reports nothing else', async () => {
    await using guest = await claimed({ device: true })
    const { host, hello } = guest
    expect(hello.platform).toBe('snp')
    const nonce = freshNonce()
    const simulated = await ask(host, { id: 'e1', op: 'evidence', nonce, simulated: launch })
    expect(simulated).toMatchObject({ ok: false, code: 'bad_request' })
    const { evidence } = await ask(host, { id: 'e2', op: 'evidence', nonce, simulated: null })
    expect(fromBase64Url(evidence.report)).toHaveLength(1184)
  })
})

describe('nonsense', () => {
  // Goal: lines that are malformed, nested without end, too long, not UTF-8 or cut off end nothing and are distinct
  // from requests.
  test('does not end the agent', async () => {
    await using guest = await claimed()
    const { host, sandbox } = guest
    const before = treeOf(sandbox)
    const bytes = (text: string) => new TextEncoder().encode(text)
    for (const line of [
      '['.repeat(agentLineBytesMax),
      `${'{"a":'.repeat(20_000)}1`,
      'x'.repeat(3 * agentLineBytesMax),
      '{"id":"a","op":"hello"',
      '{"id":{"id":"a"},"op":"hello"}',
      '{"__proto__":{"id":"p","op":"hello"}}',
      `{"id":"${'i'.repeat(65)}","op":"hello"}`,
      '{"id":"a\\u0000b"}x',
      '\u0000\u0001\u0002',
      '1e999',
    ]) {
      await host.writeAll(bytes(`${line}\n`))
    }
    await host.writeAll(Uint8Array.of(0xff, 0xfe, 0x0a, 0xc3, 0x0a))
    await stillThere(host)
    // An own member of that name is an unknown field, as any other.
    expect(await ask(host, { id: 'b', op: 'hello', constructor: {} })).toMatchObject({ code: 'bad_request' })
    host.write('{"id":"half","op":"shut')
    await stillThere(host, 'after half')
    expect(treeOf(sandbox)).toEqual(before)
  })
})

describe('floods', () => {
  // Goal: a host that sends and never reads costs bounded memory, and requests are answered again when it reads.
  test('are bounded', async () => {
    await using guest = await claimed()
    const { host, agent } = guest
    const rssMiB = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${agent.pid}/status`, 'utf8'))?.[1]) / 1024
    const beforeMiB = rssMiB()
    const evidence = JSON.stringify({ id: 'e', op: 'evidence', nonce: freshNonce(), simulated: launch })
    const lines = new TextEncoder().encode(`{"id":"h","op":"hello"}\n${evidence}\n`.repeat(500))
    for (let round = 0; round < 20; round += 1) await host.writeAll(lines)
    expect(rssMiB() - beforeMiB).toBeLessThan(120)
    // The agent dropped the unread responses; after the empty line the wire is whole again.
    await stillAnswers(host)
    const refusals = agent.log().filter(line => line.reason === 'too many requests at once')
    expect(refusals.length).toBeGreaterThan(0)
    for (const name of fs.readdirSync(guest.sandbox.paths.logDir)) {
      expect(fs.statSync(`${guest.sandbox.paths.logDir}/${name}`).size).toBeLessThanOrEqual(256 * 1024)
    }
  })

  // Goal: requests that arrive together are handled in order: evidence is refused before the claim and given after it.
  test('keep their order', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const port = makePortPaths(sandbox)
    await using _agent = startAgent(sandbox, port)
    using host = await makeHostEnd(port)
    const { hello } = await ask(host, { id: 'h', op: 'hello' })
    const evidence = { op: 'evidence', nonce: freshNonce(), simulated: launch }
    const requests = [
      { id: 'early', ...evidence },
      { id: 'claim', op: 'claim', sealed: seal(makeClaim(publicKey), hello.boxKey) },
      { id: 'late', ...evidence },
      { id: 'other', op: 'claim', sealed: seal(makeClaim(publicKey, { claimId: 'claim-2' }), hello.boxKey) },
    ]
    host.write(requests.map(request => `${JSON.stringify(request)}\n`).join(''))
    const answers = (await host.readLines(4)).map(text => JSON.parse(text))
    expect(answers).toMatchObject([
      { id: 'early', ok: false, code: 'unclaimed' },
      { id: 'claim', ok: true },
      { id: 'late', ok: true },
      { id: 'other', ok: false, code: 'claimed' },
    ])
  })
})

/** Reads away whatever is left of the flood until a hello of this name comes. */
async function stillAnswers(host: HostEnd): Promise<void> {
  const untilMs = performance.now() + 60_000
  for (let at = 0; performance.now() < untilMs; at += 1) {
    await host.writeAll(new TextEncoder().encode(`\n{"id":"after-${at}","op":"hello"}\n`))
    try {
      for (;;) if ((await host.readLines(1, 4_000))[0]?.includes(`"id":"after-${at}","ok":true`)) return
    } catch {
      // Nothing more to read: this one was dropped too.
    }
  }
  throw new Error('the agent does not answer any more')
}
