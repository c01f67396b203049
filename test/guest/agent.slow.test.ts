import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { Check } from '@sinclair/typebox/value'
import { AgentResponse } from '../../src/contract/agent.ts'
import { type HostEnd, makeHostEnd, makePortPaths, type PortPaths } from '../rigs/agent-port.ts'
import type { AgentProcessSettings } from '../rigs/guest-agent-process.ts'
import { makeClaim, makeCustomerKey, makeSandbox, type Sandbox, seal, sshArgv, succeed } from '../rigs/guest-root.ts'

describe('the agent', () => {
  // Goal: over the wire, in a process of its own: every op is answered as the schema says, and nonsense does not end it.
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
    const claimed = { claimId: claim.claimId, sshHostKey: hello.sshHostKey }
    expect(await ask(host, { id: 'c1', op: 'claim', sealed: seal(claim, hello.boxKey) })).toEqual({
      id: 'c1',
      ok: true,
      claimed,
    })
    expect((await ask(host, { id: 'h2', op: 'hello' })).hello).toEqual({ ...hello, claimId: claim.claimId })
    const other = seal({ ...claim, claimId: 'claim-2' }, hello.boxKey)
    expect(await ask(host, { id: 'c2', op: 'claim', sealed: other })).toMatchObject({ ok: false, code: 'claimed' })

    expect(await ask(host, { id: 's1', op: 'shutdown' })).toEqual({ id: 's1', ok: true })
    expect(await agent.exited()).toBe(0)
    expect(await agent.console()).toBe('agent started, version 0.0.0-test\nagent ready\n')
    expect(fs.statSync(sandbox.paths.logDir).mode & 0o777).toBe(0o700)
    const log = agent.log()
    expect(log[0]).toMatchObject({ level: 'info', unit: 'agent', message: 'agent started', version: '0.0.0-test' })
    expect(log[1]).toMatchObject({ message: 'agent ready' })
    for (const secret of [claim.inference.key ?? '', claim.organization, publicKey])
      expect(JSON.stringify(log)).not.toContain(secret)
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
    for (const request of claims) host.write(`${JSON.stringify(request)}\n`)
    host.write('{"id":"h2","op":"hello"}\n')
    const answers = (await host.readLines(5)).map(text => JSON.parse(text))
    expect(answers[0]).toMatchObject({ id: 'h2', hello: { claimId: null } })
    expect(answers.slice(1)).toMatchObject([
      { id: 'c0', ok: true, claimed: { claimId: 'claim-0' } },
      ...['c1', 'c2', 'c3'].map(id => ({ id, ok: false, code: 'claimed' })),
    ])
    expect(agent.pid).toBeGreaterThan(0)
  })

  // Goal: kill -9 of a claimed agent drops no session; its successor says the claim, and the customer gets in as before.
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
    expect(succeed(sshArgv(sandbox, { ...login, command: 'echo in' }))).toBe('in\n')
    session.stdin.write('still here\n')
    session.stdin.end()
    expect(Buffer.from((await output.read()).value ?? []).toString()).toBe('still here\n')
    expect(second.pid).not.toBe(first.pid)
  })
})

/** Sends one request; its answer, checked against the contract. Fields are left to the caller's expectations. */
async function ask(host: HostEnd, request: { id: string; [field: string]: unknown }) {
  host.write(`${JSON.stringify(request)}\n`)
  const answer = JSON.parse((await host.readLines(1))[0] ?? '')
  expect(Check(AgentResponse, answer)).toBe(true)
  expect(answer.id).toBe(request.id)
  return answer
}

function startAgent({ root, paths, owner, sshdArgv, sshPort }: Sandbox, port: PortPaths, { device = false } = {}) {
  const settings: AgentProcessSettings = { root, system: owner, login: owner, sshdArgv, sshPort, port, device }
  const argv = [process.execPath, join(import.meta.dir, '../rigs/guest-agent-process.ts'), JSON.stringify(settings)]
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' })
  return {
    pid: child.pid,
    exited: () => child.exited,
    /** Lines of its own log. */
    log: () =>
      fs
        .readFileSync(join(paths.logDir, 'agent.log'), 'utf8')
        .trim()
        .split('\n')
        .map(text => JSON.parse(text)),
    /** All that it printed, once it has ended. */
    console: () => child.stdout.text(),
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}
