// Goal: the end of a process that signs or logs in gives Ctrl-C back: what the command does next can be interrupted.

import { afterAll, expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runSsh } from '../../../src/client/instances/openssh.ts'
import type { VerifiedInstance } from '../../../src/client/instances/verified.ts'
import { signOrder } from '../../../src/client/orders/sign.ts'
import type { Run } from '../../../src/terminal/command.ts'

const dir = mkdtempSync(join(tmpdir(), 'strongroom-sign-'))
afterAll(() => rmSync(dir, { recursive: true }))

function program(name: string, text: string): void {
  writeFileSync(join(dir, name), `#!/bin/sh\n${text}\n`)
  chmodSync(join(dir, name), 0o755)
}

const listeners = new Set<() => void>()
let seen = 0
const run = {
  io: {
    env: { PATH: `${dir}:${process.env.PATH}` },
    onSignal: (_: string, listener: () => void) => {
      listeners.add(listener)
      seen += 1
      return () => listeners.delete(listener)
    },
  },
} as unknown as Run
const instance = {
  identity: '/nowhere/key',
  user: 'agent',
  address: null,
  args: [],
  knownHost: { hostname: 'abcd2345.acme.test', line: 'x' },
  judged: { ownKey: null },
} as unknown as VerifiedInstance

test('goal: after a signature, and after one that fails', async () => {
  program('ssh-keygen', 'for file; do :; done; echo signed >"$file.sig"')
  expect(await signOrder(run, new Uint8Array(1), instance)).toBe('signed\n')
  program('ssh-keygen', 'exit 3')
  await expect(signOrder(run, new Uint8Array(1), instance)).rejects.toMatchObject({ code: 'host.command_failed' })
  expect([seen, listeners.size]).toEqual([2, 0])
})

test('goal: after a login', async () => {
  program('ssh', 'exit 7')
  expect(await runSsh(run, instance)).toBe(7)
  expect([seen > 2, listeners.size]).toEqual([true, 0])
})
