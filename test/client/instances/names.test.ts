// Goal: names of this machine are kept one by one, only their owner's files count, and a command that is interrupted
// leaves its Idempotency-Key to the next.

import { afterAll, beforeEach, expect, test } from 'bun:test'
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../../src/base/clock.ts'
import { type LocalInstance, localNames } from '../../../src/client/instances/names.ts'
import { lockFile } from '../../../src/linux/lock.ts'

const home = mkdtempSync(join(tmpdir(), 'srt-names-'))
afterAll(() => rmSync(home, { recursive: true }))
const folder = join(home, '.config/strongroom/instances')
const names = localNames({ HOME: home })
beforeEach(() => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true, mode: 0o700 })
})

const instance: LocalInstance = {
  api: 'https://instances.agents.example:8441',
  idempotencyKey: 'a-1',
  publicKey: 'ssh-ed25519 AAAA',
  model: null,
  requestedAtMs: 1,
  hostname: null,
  address: null,
}
const whole = { ...instance, hostname: 'k3v9x2ma.acme.agents.example', address: '10.0.0.1' }

test('goal: what one command began, another finds, and does not replace', async () => {
  expect(names.find('work')).toBeNull()
  expect(names.begin('work', instance)).toBe(instance)
  expect(names.begin('work', { ...instance, idempotencyKey: 'b-2' })).toEqual(instance)
  expect(await names.replace('work', instance, whole)).toBe(true)
  names.begin('a', instance)
  expect(names.list()).toEqual([
    ['a', instance],
    ['work', whole],
  ])
  expect([readdirSync(folder).sort(), statSync(join(folder, 'a.json')).mode & 0o777]).toEqual([
    ['a.json', 'lock', 'work.json'],
    0o600,
  ])
  expect([await names.replace('work', instance, null), await names.replace('work', instance, null)]).toEqual([
    true,
    false,
  ])
  expect(names.find('work')).toBeNull()
})

test('goal: a record that another command has replaced is neither replaced nor forgotten', async () => {
  const other = { ...instance, idempotencyKey: 'b-2' }
  names.begin('work', instance)
  expect(await names.replace('work', instance, other)).toBe(true)
  for (const next of [whole, null]) expect(await names.replace('work', instance, next)).toBe(false)
  expect([names.find('work'), await names.replace('a', instance, whole), names.find('a')]).toEqual([other, false, null])
})

test('goal: work on known_hosts waits for that of another command, and what fails lets the next one go on', async () => {
  const order: string[] = []
  const lock = lockFile(join(folder, 'lock'))
  const first = names.alone(() => void order.push('first'))
  await systemClock.sleep(120)
  order.push('other')
  lock.release()
  await first
  const failing = names.alone(() => {
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  await names.alone(() => void order.push('second'))
  expect([order, names.list()]).toEqual([['other', 'first', 'second'], []])
})

test('goal: no name leads out of the directory', () => {
  writeFileSync(join(home, 'x.json'), JSON.stringify(whole))
  for (const name of ['../../../x', '..', '.', '', '-x', 'A', 'a/b', 'a.b'])
    expect([name, names.find(name)]).toEqual([name, null])
})

// Goal: a damaged file is named, with what to do.
test.each([
  ['no JSON', '{', '/: Expected object'],
  [
    'another form of host name',
    JSON.stringify({ ...whole, hostname: '-oProxyCommand=x' }),
    '/hostname: not a host name',
  ],
  ['an address that is an option', JSON.stringify({ ...whole, address: '-x' }), '/address'],
])('%s is refused', (_, text, message) => {
  names.begin('work', instance)
  names.begin('other', instance)
  writeFileSync(join(folder, 'work.json'), text, { mode: 0o600 })
  expect(() => names.find('work')).toThrow(message)
  expect(() => names.find('work')).toThrow('work.json')
  // The other names still work.
  expect(names.list()).toEqual([['other', instance]])
  expect(names.damaged().map(({ message }) => message)).toEqual([expect.stringContaining(message)])
})

test('goal: fields of a later release are no damage, and stay when this one writes the file', async () => {
  writeFileSync(join(folder, 'work.json'), JSON.stringify({ ...instance, more: { a: 1 } }), { mode: 0o600 })
  const found = names.find('work')
  if (found === null) throw new Error('the record was not found')
  expect(await names.replace('work', found, { ...found, address: '10.0.0.1' })).toBe(true)
  expect(JSON.parse(readFileSync(join(folder, 'work.json'), 'utf8'))).toMatchObject({
    more: { a: 1 },
    address: '10.0.0.1',
  })
})

test('goal: a file that others may write decides nothing, and without a home there are no names', () => {
  names.begin('work', whole)
  chmodSync(join(folder, 'work.json'), 0o622)
  expect(() => names.find('work')).toThrow('others may write it')
  expect([names.list(), names.damaged().length]).toEqual([[], 1])
  expect(() => localNames({})).toThrow('HOME is not set')
})
