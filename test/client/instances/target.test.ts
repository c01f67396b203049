// Goal: a word of the command line is exactly one instance, whose service is the one in use; the words of a service are
// never taken for anything else.

import { expect, test } from 'bun:test'
import type { LocalInstance, LocalNames } from '../../../src/client/instances/names.ts'
import type { SeenInstance } from '../../../src/client/instances/records.ts'
import { RefusedFault } from '../../../src/client/instances/service.ts'
import { resolveTarget, targetWord } from '../../../src/client/instances/target.ts'

const api = 'https://instances.agents.example:8441'
const local: LocalInstance = {
  ...{ api, idempotencyKey: 'a', publicKey: 'ssh-ed25519 AAAA', model: null, requestedAtMs: 1, address: '10.0.0.1' },
  hostname: 'k3v9x2ma.acme.agents.example',
}
const pending = { ...local, hostname: null }
const elsewhere = { ...local, api: 'https://old.example', hostname: 'aaaa1111.acme.agents.example' }
const refusing = { ...elsewhere, hostname: 'cccc3333.acme.agents.example' }
const known: Readonly<Record<string, LocalInstance>> = { work: local, pending, refusing }
const replaced: unknown[] = []
const names: LocalNames = {
  knownHosts: '/nowhere',
  find: name => known[name] ?? null,
  list: () => Object.entries(known),
  begin: (_, begun) => begun,
  damaged: () => [],
  replace: async (name, _, next) => {
    replaced.push([name, next])
    return true
  },
  alone: async work => work(),
}

const record = { name: 'aaaa1111', hostname: 'aaaa1111.acme.agents.example' } as SeenInstance
const asked: string[] = []
const service = () => ({
  host: 'a.example',
  retrieve: async (name: string) => {
    asked.push(name)
    if (name === 'cccc3333')
      throw new RefusedFault('unauthenticated', '401', { remedy: 'x', retryMs: null, status: 401 })
    return name === record.name ? record : null
  },
})
const resolve = (word: string, from: string | null = api) => resolveTarget(word, { names, api: from, service })

test('goal: a name of this machine and its whole host name are the same, without a request', async () => {
  const target = await resolve('work')
  expect(target).toMatchObject({ localName: 'work', instance: { name: 'k3v9x2ma', organization: 'acme' } })
  expect(await resolve('k3v9x2ma.acme.agents.example')).toEqual(target)
  expect((await resolve('b3v9x2ma.acme.agents.example')).local).toBeNull()
  expect(asked).toEqual([])
})

test('goal: the name that the service drew is requested; any other word is unknown', async () => {
  expect((await resolve('aaaa1111')).instance.hostname).toBe(record.hostname)
  await expect(resolve('bbbb2222')).rejects.toThrow('no instance is called bbbb2222')
  await expect(resolve('other')).rejects.toThrow('no instance is called other')
  expect(asked).toEqual(['aaaa1111', 'bbbb2222'])
})

test('goal: an instance of another service, and one whose creation did not finish, are refused', async () => {
  await expect(resolve('work', 'https://b.example')).rejects.toThrow(
    'is an instance of https://instances.agents.example:8441',
  )
  expect((await resolve('work', null)).localName).toBe('work')
  await expect(resolve('refusing')).rejects.toMatchObject({
    message: 'refusing is an instance of https://old.example, not of https://instances.agents.example:8441',
    remedy: expect.stringContaining('cccc3333.acme.agents.example'),
  })
  expect(replaced).toEqual([])
  await expect(resolve('pending')).rejects.toThrow('its creation did not finish')
})

test('goal: a service that knows the same host name is the one from now on: its address has changed', async () => {
  const moved = { ...elsewhere, api }
  const find = (name: string) => (name === 'moved' ? elsewhere : null)
  const target = await resolveTarget('moved', { names: { ...names, find }, api, service })
  expect(target).toMatchObject({ localName: 'moved', local: moved, instance: { name: 'aaaa1111' } })
  expect(replaced).toEqual([['moved', moved]])
})

test('goal: no word is an option, a path or a list', () => {
  for (const word of ['-x', '--', '', 'a b', 'a/b', '..', 'A', 'a@b', 'x'.repeat(33), 'a.b', '-oa.b.c.d', 'work\n'])
    expect(() => targetWord(word)).toThrow('It must be a name')
  for (const word of ['work', '9a', 'k3v9x2ma.acme.agents.example']) expect(targetWord(word)).toBe(word)
})
