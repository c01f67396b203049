// `strongroom instance egress raise`: the executable against the admin interface on a socket.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type AdminServer, listenAdmin } from '../../../src/operator/access/socket.ts'
import { egressAdmin } from '../../rigs/instances/egress-admin.ts'
import { runWith } from '../../rigs/program.ts'

const { admin, store, run, events, limit } = egressAdmin()
let dir: string
let server: AdminServer

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-egress-'))
  server = await listenAdmin(join(dir, 'admin.sock'), admin)
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

function raise(argv: readonly string[], env: Record<string, string> = {}) {
  return runWith({ STRONGROOM_STATE_DIR: dir, ...env }, ['instance', 'egress', 'raise', ...argv])
}

const bounds = 'It must be a number of bytes from 1 to 1125899906842624, like 1073741824 or 1GiB.'
const BAD_USAGE: [string[], string][] = [
  [['x', '--to', '1.5GiB'], `option '--to <bytes>' argument '1.5GiB' is invalid. ${bounds}`],
  [['x', '--to', '20GB'], `option '--to <bytes>' argument '20GB' is invalid. ${bounds}`],
  [['x', '--by', '1025TiB'], `option '--by <bytes>' argument '1025TiB' is invalid. ${bounds}`],
  [['x', '--by', '0'], `option '--by <bytes>' argument '0' is invalid. ${bounds}`],
  [['x'], 'one of --to and --by is needed, and not both'],
  [['x', '--to', '9GiB', '--by', '1'], 'one of --to and --by is needed, and not both'],
]

test('goal: bad usage is exit code 2 and names the option', async () => {
  for (const [argv, message] of BAD_USAGE) {
    const { code, stdout, stderr } = await raise(argv)
    expect([argv, code, stdout]).toEqual([argv, 2, ''])
    expect(stderr).toContain(message)
  }
  expect(limit()).toBeNull()
})

test('goal: a limit is raised in the units that people write, and the journal says by whom and why', async () => {
  const early = await raise(['acme/abcd2345', '--to', '9GiB'])
  expect([early.code, early.stderr]).toEqual([5, expect.stringContaining('only while its VM runs')])
  run()
  const to = await raise(['acme/abcd2345', '--to', '9GiB', '--reason', 'ticket 7'], {
    SUDO_USER: 'alice',
    USER: 'root',
  })
  expect([to.code, to.stdout]).toEqual([0, expect.stringContaining('egress:       0 bytes of 9663676416\n')])
  const by = await raise(['i1', '--by', '1KiB', '--json'], { USER: 'root' })
  expect(JSON.parse(by.stdout)).toMatchObject({ egress_limit_bytes: 9 * 1024 ** 3 + 1024 })
  const lower = await raise(['i1', '--to', '6GiB'])
  expect([lower.code, lower.stderr]).toEqual([5, expect.stringContaining('6442450944 is less')])
  expect(events()).toEqual([
    ['instance.egress_raised', expect.objectContaining({ operator: 'root', reason: null })],
    ['instance.egress_raised', expect.objectContaining({ operator: 'alice', reason: 'ticket 7' })],
  ])
})
