// Goal: orders change the secrets of the broker and the environment of new sessions, and a bad one changes nothing.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Secret } from '../../../src/contract/vm/orders/secret.ts'
import { createSecretHandlers, type SecretsDeps, statedSecrets } from '../../../src/guest/secrets/secrets.ts'

const base: Secret = {
  name: 'GITHUB_TOKEN',
  host: 'api.github.com',
  port: 443,
  header: 'Authorization',
  format: 'Bearer {}',
  value: 'ghp_12345678',
}
const context = { counter: 1 }

function rig({ reachFails = false } = {}) {
  let isLate = false
  const dir = mkdtempSync(join(tmpdir(), 'srt-secret-orders-'))
  process.on('exit', () => rmSync(dir, { recursive: true, force: true }))
  const paths = {
    authorityFile: join(dir, 'authority.pem'),
    rootsFile: join(dir, 'roots.pem'),
    sessionSecrets: join(dir, 'session-secrets'),
  }
  let secrets: readonly Secret[] = []
  const reach = {
    state: () => ({ secrets }),
    change: async (change: { readonly secrets?: readonly Secret[] }) => {
      if (reachFails) return { ok: false, code: 'failed', message: 'the filter does not load' }
      secrets = change.secrets ?? []
      return isLate ? { ok: false, code: 'failed', message: 'the broker does not serve it yet' } : { ok: true }
    },
  } as unknown as SecretsDeps['reach']
  const claim = () => ({ document: { claim: {} } }) as unknown as ReturnType<SecretsDeps['claim']>
  const owner = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 }
  const { secret_put: put, secret_remove: remove } = createSecretHandlers({ paths, owner, reach, claim })
  if (put === undefined || remove === undefined) throw new Error('no handlers')
  const session = () => (existsSync(paths.sessionSecrets) ? readFileSync(paths.sessionSecrets, 'utf8') : null)
  const beLate = () => {
    isLate = true
  }
  return { put, remove, session, secrets: () => secrets, beLate }
}

test('goal: put, replace and remove; the result names secrets without values', async () => {
  const { put, remove, session, secrets } = rig()
  expect(await put({ ...base, name: 'Z' }, context)).toMatchObject({ ok: true })
  const other = { ...base, header: 'X-Key', format: '{}', path: '/v1/' }
  const facts = { name: 'Z', host: 'api.github.com', port: 443, header: 'Authorization' }
  expect(await put(other, context)).toEqual({
    ok: true,
    result: {
      secrets: [{ name: 'GITHUB_TOKEN', host: 'api.github.com', port: 443, header: 'X-Key', path: '/v1/' }, facts],
    },
  })
  expect(session()).toContain('export GITHUB_TOKEN=strongroom-placeholder-GITHUB_TOKEN\nexport Z=')
  expect(session()).not.toContain('ghp_')
  expect(await put({ ...other, value: 'another-value' }, context)).toMatchObject({ ok: true })
  expect(secrets().map(({ name, value }) => [name, value])).toEqual([
    ['GITHUB_TOKEN', 'another-value'],
    ['Z', 'ghp_12345678'],
  ])
  expect(await remove({ name: 'GITHUB_TOKEN' }, context)).toEqual({ ok: true, result: { secrets: [facts] } })
  expect(await remove({ name: 'Z' }, context)).toEqual({ ok: true, result: { secrets: [] } })
  expect([secrets(), session()]).toEqual([[], ''])
})

test('goal: a bad order is refused by field and remedy, without the value, and changes nothing', async () => {
  const { put, remove, session, secrets } = rig()
  await put(base, context)
  const before = [secrets(), session()]
  const bad: readonly [unknown, RegExp][] = [
    [null, /^\/: /],
    [{ ...base, extra: 1 }, /extra/],
    [{ ...base, host: 'localhost' }, /^\/host: /],
    [{ ...base, value: 'se\r\ncret-value' }, /^\/value: /],
    [{ ...base, header: 'Host' }, /^header: Host frames requests; name/],
    [{ ...base, name: 'OTHER' }, /^header: GITHUB_TOKEN fills it in the same requests; remove GITHUB_TOKEN first$/],
  ]
  for (const [body, message] of bad) {
    const outcome = await put(body, context)
    expect(outcome).toEqual({ ok: false, message: expect.stringMatching(message) })
    expect(JSON.stringify(outcome)).not.toContain('cret-value')
  }
  expect(await remove({ name: 'OTHER' }, context)).toEqual({
    ok: false,
    message: 'name: no secret is called OTHER; `strongroom secret ls` lists them',
  })
  expect(await remove({}, context)).toMatchObject({ ok: false })
  expect([secrets(), session()]).toEqual(before)
})

test('goal: a filter or a broker that fails is in the answer, and no session gets a placeholder', async () => {
  const failing = rig({ reachFails: true })
  expect(await failing.put(base, context)).toEqual({ ok: false, message: 'the filter does not load' })
  expect(failing.session()).toBe('')
})

test('goal: new sessions have the secrets of the state, also if the broker is late', async () => {
  const { put, remove, session, secrets, beLate } = rig()
  await put(base, context)
  beLate()
  expect(await remove({ name: base.name }, context)).toEqual({
    ...{ ok: false, message: 'the broker does not serve it yet' },
  })
  expect([secrets(), session()]).toEqual([[], ''])
})

test('goal: the statement has a canonical text for each secret, and nothing without any', () => {
  expect(statedSecrets([])).toBeNull()
  expect(statedSecrets([{ ...base, path: '/a/', method: 'GET' }])).toEqual([
    '{"header":"Authorization","host":"api.github.com","method":"GET","name":"GITHUB_TOKEN","path":"/a/","port":443}',
  ])
})
