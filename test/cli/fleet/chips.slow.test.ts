// Goal: an operator exports the signed list of chips by the program, and a relying party's policy takes that very file.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sha256 } from '../../../src/attest/hash.ts'
import { publicIdKey } from '../../../src/attest/launch/id-block-sign.ts'
import { idKeyDigest } from '../../../src/attest/launch/id-block-verify.ts'
import { signChipList } from '../../../src/attest/policy/chip-list.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { readPolicy } from '../../../src/client/trust/trust-options.ts'
import { type AdminServer, listenAdmin } from '../../../src/operator/access/socket.ts'
import { createAdmin } from '../../../src/operator/api.ts'
import type { AdminDeps } from '../../../src/operator/deps.ts'
import { openStore, type Store } from '../../../src/store/db.ts'
import { NO_ADMINISTRATORS } from '../../rigs/admin.ts'
import { STATUS } from '../../rigs/admin-status.ts'
import { programArgv } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-chips-cli-'))
const chip = '0a'.repeat(64)
const keys = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
const digest = toHex(await idKeyDigest(await publicIdKey(keys.publicKey)))
const logged: object[] = []

let store: Store
let server: AdminServer
beforeAll(async () => {
  store = openStore(join(dir, 'strongroom.db'))
  const { transparency } = NO_ADMINISTRATORS
  const status = { ...STATUS, operator_key: { ...STATUS.operator_key, digest } }
  const deps = {
    ...NO_ADMINISTRATORS,
    ...{ store, log: silentLogger, clock: systemClock, gateway: 'off', collectors: [], status: () => status },
    chips: { own: () => [chip], name: () => {}, keys, digest, isInFleet: false },
    transparency: { ...transparency, log: { ...transparency.log, append: (fact: object) => void logged.push(fact) } },
  }
  server = await listenAdmin(join(dir, 'admin.sock'), createAdmin(deps as unknown as AdminDeps))
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

async function run(...argv: string[]) {
  const child = Bun.spawn([...programArgv, ...argv], {
    env: { PATH: process.env.PATH ?? '', STRONGROOM_STATE_DIR: dir },
    ...{ stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' },
  })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { code, stdout, stderr }
}

// Goal: the file of --out is the list that the log has, and a policy takes it; standard output has the whole list.
test('export', async () => {
  const out = join(dir, 'chips.json')
  const written = await run('chips', 'export', '--out', out)
  expect([written.code, written.stdout]).toEqual([0, expect.stringContaining(chip)])
  const bytes = new Uint8Array(readFileSync(out))
  expect(logged).toEqual([{ kind: 'chip-list', sha256: toHex(sha256(bytes)) }])
  expect(written.stderr).toContain(toHex(sha256(bytes)))
  const policy = { ...encodePolicy(strictPolicy()), chipIds: { list: 'chips.json', maxAgeDays: 1 } }
  const path = join(dir, 'policy.json')
  writeFileSync(path, JSON.stringify(policy))
  const { chipIds } = await readPolicy(path, { vmpl: 'required' }, {}, digest)
  expect(chipIds === 'any' ? [] : chipIds.map(toHex)).toEqual([chip])
  const printed = await run('chips', 'export')
  expect([printed.code, JSON.parse(printed.stdout).chipIds]).toEqual([0, [chip]])
  expect(printed.stderr).toContain(chip)
})

// Goal: a chip that the list before lacks is refused until --add names it; a list of another key is none.
test('export --previous', async () => {
  const write = async (name: string, id: string, signing = keys) => {
    const list = await signChipList({ chipIds: [Uint8Array.fromHex(id)], issuedAtMs: Date.now() }, signing)
    writeFileSync(join(dir, name), list)
    return join(dir, name)
  }
  const before = await write('before.json', '0b'.repeat(64))
  const refused = await run('chips', 'export', '--previous', before)
  expect([refused.code === 0, refused.stderr]).toEqual([false, expect.stringContaining(`this host: ${chip}`)])
  const added = await run('chips', 'export', '--previous', before, '--add', chip)
  expect([added.code, JSON.parse(added.stdout).chipIds]).toEqual([0, [chip]])
  expect((await run('chips', 'export', '--previous', await write('same.json', chip))).code).toBe(0)
  const foreign = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-384' }, true, ['sign', 'verify'])
  const other = await run('chips', 'export', '--previous', await write('foreign.json', chip, foreign))
  expect([other.code, other.stderr]).toEqual([2, expect.stringContaining('another operator key')])
})

// Goal: only a list of this host's operator key enters its log.
test('publish', async () => {
  const out = join(dir, 'chips.json')
  if (!existsSync(out)) await run('chips', 'export', '--out', out)
  logged.length = 0
  const sha = toHex(sha256(new Uint8Array(readFileSync(out))))
  const { code, stdout } = await run('chips', 'publish', out)
  expect([code, stdout, logged]).toEqual([0, expect.stringContaining(sha), [{ kind: 'chip-list', sha256: sha }]])
  const changed = join(dir, 'changed.json')
  writeFileSync(changed, readFileSync(out, 'utf8').replaceAll(chip, '0b'.repeat(64)))
  const refused = await run('chips', 'publish', changed)
  expect([refused.code, refused.stderr, logged.length]).toEqual([2, expect.stringContaining('the file was changed'), 1])
})
