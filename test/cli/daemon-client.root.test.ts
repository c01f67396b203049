// The daemon's client without permission for the socket: root alone has it.

import { expect, test } from 'bun:test'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { adminSocketName } from '../../src/contract/admin/sockets.ts'
import { listenAdmin } from '../../src/operator/access/socket.ts'
import { egressAdmin } from '../rigs/instances/egress-admin.ts'
import { main } from '../rigs/program.ts'

// Goal: who may not use the socket learns that, not that no daemon answers: the daemon is not to be started again.
test('a user who is not root', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'strongroom-client-'))
  chmodSync(dir, 0o711)
  const server = await listenAdmin(join(dir, adminSocketName), egressAdmin().admin)
  const ask = async (...user: string[]) => {
    const child = Bun.spawn([...user, process.execPath, main, 'status'], {
      env: { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: dir },
      cwd: '/',
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    })
    return { stderr: await child.stderr.text(), code: await child.exited }
  }
  const refused = await ask('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups')
  expect(refused.stderr).toContain(`permission denied at ${join(dir, adminSocketName)}`)
  expect(refused.stderr).toContain('remedy: run the command as root')
  expect(refused.stderr).not.toContain('no daemon answers')
  expect(refused.code).toBe(3)
  await server.stop()
  const absent = await ask()
  expect(absent.stderr).toContain('no daemon answers')
  expect(absent.code).toBe(3)
  rmSync(dir, { recursive: true })
})
