// Starts the agent as a process of its own over a sandbox, and asks it as a host does. Effects; kills what it started.

import { expect } from 'bun:test'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { Check } from '@sinclair/typebox/value'
import type { HostEnd, PortPaths } from '../../../scripts/rigs/guest/agent-port.ts'
import type { Sandbox } from '../../../scripts/rigs/guest/root.ts'
import { AgentResponse } from '../../../src/contract/vm/agent-responses.ts'
import type { AgentProcessSettings } from './agent-program.ts'

/** Sends one request; its answer, checked against the contract. Fields are left to the caller's expectations. */
export async function ask(host: HostEnd, request: { id: string; [field: string]: unknown }) {
  host.write(`${JSON.stringify(request)}\n`)
  const answer = JSON.parse((await host.readLines(1))[0] ?? '')
  expect(Check(AgentResponse, answer)).toBe(true)
  expect(answer.id).toBe(request.id)
  return answer
}

/** `device`: with a report device (tsm-kernel.ts), or without. */
export function startAgent(sandbox: Sandbox, port: PortPaths, { device = false } = {}) {
  const { root, paths, owner, sshdArgv, gatewayArgv } = sandbox
  const settings: AgentProcessSettings = {
    root,
    system: owner,
    login: owner,
    sshdArgv,
    gatewayArgv,
    port,
    device,
  }
  const argv = [process.execPath, join(import.meta.dir, 'agent-program.ts'), JSON.stringify(settings)]
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
