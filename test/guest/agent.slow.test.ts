import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { uptime } from 'node:os'
import { join } from 'node:path'
import { makeHostEnd, makePortPaths } from '../../scripts/rigs/guest/agent-port.ts'
import {
  makeClaim,
  makeCustomerKey,
  makeSandbox,
  seal,
  sshArgv,
  sshdListens,
  succeed,
} from '../../scripts/rigs/guest/root.ts'
import { decodeStatement } from '../../src/attest/receipt/statement.ts'
import { fromBase64Url, toBase64Url } from '../../src/base/bytes.ts'
import { ask, startAgent } from '../rigs/guest/agent-process.ts'

describe('the agent', () => {
  // Goal: over the wire, in its own process: every op gets a response of the schema, and nonsense does not end the
  // agent.
  test('answers every op', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const port = makePortPaths(sandbox)
    await using agent = startAgent(sandbox, port)
    using host = await makeHostEnd(port)
    host.write('\n')

    const { hello } = await ask(host, { id: 'h1', op: 'hello' })
    expect(hello).toMatchObject({ protocol: 2, version: '0.0.0-test', claimId: null })
    expect(hello.sshHostKey).toMatch(/^ssh-ed25519 [A-Za-z0-9+/]{68}$/)

    host.write(`{"broken\n7\n{"op":"hello"}\n`)
    expect(await ask(host, { id: 'b1', op: 'exec', argv: ['id'] })).toMatchObject({ ok: false, code: 'bad_request' })
    expect(await ask(host, { id: 'b2', op: 'hello', more: true })).toMatchObject({ ok: false, code: 'bad_request' })
    const network = { address: '999.9.9.9', gateway: '192.0.2.1', mtuBytes: 1500, resolvers: [] }
    expect(await ask(host, { id: 'n1', op: 'network', network })).toMatchObject({ ok: false, code: 'bad_request' })
    const reachable = { ...network, address: '192.0.2.2' }
    expect(await ask(host, { id: 'n2', op: 'network', network: reachable })).toEqual({
      id: 'n2',
      ok: false,
      code: 'failed',
      message: 'network: no interface',
    })

    const claim = makeClaim(publicKey)
    const answer = await ask(host, { id: 'c1', op: 'claim', sealed: seal(claim, hello.boxKey) })
    const key = fs.readFileSync(sandbox.paths.gatewayKey, 'utf8').trim()
    const [, prefix = '', secret = ''] = key.split('_')
    const drawn = { prefix, secretSha256: new Bun.CryptoHasher('sha256').update(secret).digest('hex') }
    const claimed = { claimId: claim.claimId, sshHostKey: hello.sshHostKey, key: drawn }
    expect(answer).toEqual({ id: 'c1', ok: true, claimed })
    expect((await ask(host, { id: 'h2', op: 'hello' })).hello).toEqual({ ...hello, claimId: claim.claimId })
    const other = seal({ ...claim, claimId: 'claim-2' }, hello.boxKey)
    expect(await ask(host, { id: 'c2', op: 'claim', sealed: other })).toMatchObject({ ok: false, code: 'claimed' })

    const egress = { usedBytes: 4_000_000_000, limitBytes: 5_000_000_000 }
    expect(await ask(host, { id: 'e1', op: 'egress', egress })).toEqual({ id: 'e1', ok: true })
    expect(JSON.parse(fs.readFileSync(sandbox.paths.egress, 'utf8'))).toEqual(egress)
    for (const bad of [
      { usedBytes: -1, limitBytes: 1 },
      { usedBytes: 0, limitBytes: 0 },
      { ...egress, more: '\u001b' },
    ]) {
      expect(await ask(host, { id: 'e2', op: 'egress', egress: bad })).toMatchObject({ ok: false, code: 'bad_request' })
    }

    expect(await ask(host, { id: 's1', op: 'shutdown' })).toEqual({ id: 's1', ok: true })
    expect(await agent.exited()).toBe(0)
    expect(await agent.console()).toBe('agent started, version 0.0.0-test\nagent ready\n')
    expect(fs.statSync(sandbox.paths.logDir).mode & 0o777).toBe(0o700)
    const log = agent.log()
    expect(log[0]).toMatchObject({ level: 'info', unit: 'agent', message: 'agent started', version: '0.0.0-test' })
    expect(log[1]).toMatchObject({ message: 'agent ready' })
    for (const text of [secret, claim.organization, publicKey]) expect(JSON.stringify(log)).not.toContain(text)
  })

  // Goal: claims that arrive together are made one after the other: one wins, and hello is answered meanwhile.
  test('takes one of many claims', async () => {
    await using sandbox = await makeSandbox()
    const { publicKey } = makeCustomerKey(sandbox)
    const port = makePortPaths(sandbox)
    await using agent = startAgent(sandbox, port)
    using host = await makeHostEnd(port)
    const { hello } = await ask(host, { id: 'h1', op: 'hello' })
    const claims = Array.from({ length: 4 }, (_, at) => {
      const sealed = seal(makeClaim(publicKey, { claimId: `claim-${at}` }), hello.boxKey)
      return { id: `c${at}`, op: 'claim', sealed }
    })
    const [first, ...others] = claims
    const asked = [first, { id: 'h2', op: 'hello' }, ...others]
    // At once: the first claim would be over while a busy machine lets this process wait between two writes.
    host.write(asked.map(request => `${JSON.stringify(request)}\n`).join(''))
    const answers = (await host.readLines(5)).map(text => JSON.parse(text))
    expect(answers[0]).toMatchObject({ id: 'h2', hello: { claimId: null } })
    expect(answers.slice(1)).toMatchObject([
      { id: 'c0', ok: true, claimed: { claimId: 'claim-0' } },
      ...['c1', 'c2', 'c3'].map(id => ({ id, ok: false, code: 'claimed' })),
    ])
    expect(agent.pid).toBeGreaterThan(0)
  })

  // Goal: kill -9 of a claimed agent drops no session; the next agent reports and states the claim, and the customer
  // gets in as before.
  test('dies without a trace in sessions', async () => {
    await using sandbox = await makeSandbox()
    const customer = makeCustomerKey(sandbox)
    const port = makePortPaths(sandbox)
    await using first = startAgent(sandbox, port)
    using host = await makeHostEnd(port)
    const { hello } = await ask(host, { id: 'h1', op: 'hello' })
    const claim = makeClaim(customer.publicKey)
    await ask(host, { id: 'c1', op: 'claim', sealed: seal(claim, hello.boxKey) })

    const login = { keyPath: customer.path, hostKey: hello.sshHostKey, command: 'echo in; read line; echo "$line"' }
    await sshdListens(sandbox)
    await using session = Bun.spawn(sshArgv(sandbox, login), { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' })
    const output = session.stdout.getReader()
    expect(Buffer.from((await output.read()).value ?? []).toString()).toBe('in\n')
    process.kill(first.pid, 'SIGKILL')
    await first.exited()

    await using second = startAgent(sandbox, port)
    using reconnected = await makeHostEnd(port)
    reconnected.write('\n')
    const successor = (await ask(reconnected, { id: 'h2', op: 'hello' })).hello
    expect(successor).toEqual({ ...hello, claimId: claim.claimId, boxKey: successor.boxKey })
    expect(successor.boxKey).not.toBe(hello.boxKey)
    const again = await ask(reconnected, { id: 'c2', op: 'claim', sealed: seal(claim, successor.boxKey) })
    expect(again).toMatchObject({ ok: true, claimed: { claimId: claim.claimId } })
    const nonce = toBase64Url(new Uint8Array(32).fill(3))
    const simulated = { measurement: '5a'.repeat(48), operatorKey: '6b'.repeat(48) }
    const { evidence } = await ask(reconnected, { id: 'e1', op: 'evidence', nonce, simulated })
    const digestOf = (line: string) => succeed(['sh', '-c', `echo '${line}' | ssh-keygen -l -f -`]).split(' ')[1] ?? ''
    const statement = decodeStatement(fromBase64Url(evidence.statement) ?? new Uint8Array(0))
    if (statement.kind !== 'claim') throw new Error('a claim is stated')
    expect(statement).toMatchObject({ organization: 'acme', name: claim.name, hostname: claim.hostname })
    const fingerprints = [statement.sshHostKeyDigest, statement.publicKeyDigest].map(
      digest => `SHA256:${digest.toBase64({ omitPadding: true })}`,
    )
    expect(fingerprints).toEqual([digestOf(hello.sshHostKey), digestOf(customer.publicKey)])
    expect(succeed(sshArgv(sandbox, { ...login, command: 'echo in' }))).toBe('in\n')
    session.stdin.write('still here\n')
    session.stdin.end()
    expect(Buffer.from((await output.read()).value ?? []).toString()).toBe('still here\n')
    expect(second.pid).not.toBe(first.pid)
    // As after the owner's order for a schedule of snapshots, and without one.
    const poll = (id: string, lost = {}) => ask(reconnected, { id, op: 'idle', minutes: null, ...lost })
    fs.mkdirSync(sandbox.paths.ordersDir)
    fs.writeFileSync(join(sandbox.paths.ordersDir, 'snapshot-every'), '15')
    expect(await poll('i1')).toEqual({ id: 'i1', ok: true, isIdle: false, isSnapshotDue: true })
    // Taken now, by what the VM knows.
    fs.writeFileSync(join(sandbox.paths.ordersDir, 'snapshot-taken'), String(uptime()))
    expect(await poll('i2')).toEqual({ id: 'i2', ok: true, isIdle: false })
    expect(await poll('i3', { isSnapshotLost: true })).toMatchObject({ id: 'i3', isSnapshotDue: true })
    fs.writeFileSync(join(sandbox.paths.ordersDir, 'snapshot-every'), 'off')
    expect(await poll('i4', { isSnapshotLost: true })).toEqual({ id: 'i4', ok: true, isIdle: false })
  })
})
