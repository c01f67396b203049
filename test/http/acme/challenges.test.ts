// Goal: the listener for proofs is open for a proof alone and tells a stranger nothing, whatever is asked for.

import { expect, test } from 'bun:test'
import { Challenges, type ChallengeText } from '../../../src/http/acme/challenges.ts'

const httpListen = { hostname: '127.0.0.1', port: 0 }
const domain = 'agents.example'

test('goal: outstanding tokens are answered, all else gets an empty 404, and afterwards nobody listens', async () => {
  const challenges = new Challenges({ domain, httpListen, showTexts: null })
  expect(challenges.port).toBe(null)
  let url = ''
  {
    await using _first = await challenges.showToken('token-1', 'token-1.thumb')
    await using _second = await challenges.showToken('token_2', 'token_2.thumb')
    url = `http://127.0.0.1:${challenges.port}`
    const asked = async (path: string, init: RequestInit = {}) => {
      const response = await fetch(url + path, { redirect: 'manual', ...init })
      return `${response.status} ${await response.text()}`
    }
    const below = '/.well-known/acme-challenge'
    expect(await asked(`${below}/token-1`)).toBe('200 token-1.thumb')
    expect(await asked(`${below}/token_2?x=1`)).toBe('200 token_2.thumb')
    for (const path of [
      '/',
      below,
      `${below}/`,
      `${below}/token-`,
      `${below}/token-1/`,
      `${below}/token%2d1`,
      `${below}/__proto__`,
      `${below}//token-1`,
      '/token-1',
    ]) {
      expect([path, await asked(path)]).toEqual([path, '404 '])
    }
    expect(await asked(`${below}/token-1`, { method: 'POST' })).toBe('404 ')
    expect(await asked(`${below}/token-1`, { method: 'DELETE' })).toBe('404 ')
    const probes = await Promise.all(Array.from({ length: 2_000 }, (_, at) => asked(`${below}/probe-${at}`)))
    expect(new Set(probes)).toEqual(new Set(['404 ']))
    expect(await asked(`${below}/token-1`)).toBe('200 token-1.thumb')
  }
  expect(challenges.port).toBe(null)
  await expect(fetch(url)).rejects.toThrow()
})

test('goal: a token that is no token is refused, and so are more than fit; the listener does not stay', async () => {
  const challenges = new Challenges({ domain, httpListen, showTexts: null })
  for (const token of ['', '../x', 'a b', 'x'.repeat(129), 'é']) {
    await expect(challenges.showToken(token, 'x')).rejects.toThrow('base64url')
  }
  const shown = await Promise.all(Array.from({ length: 64 }, (_, at) => challenges.showToken(`t${at}`, 'x')))
  await expect(challenges.showToken('t64', 'x')).rejects.toThrow('64 proofs')
  for (const proof of shown) await proof[Symbol.asyncDispose]()
  expect(challenges.port).toBe(null)
})

test('goal: an address that another process has is a failure that names the field', async () => {
  using taken = Bun.serve({ ...httpListen, fetch: () => new Response() })
  const challenges = new Challenges({ domain, httpListen: { ...httpListen, port: taken.port ?? 0 }, showTexts: null })
  await expect(challenges.showToken('t', 'x')).rejects.toThrow('tls.acme.http_listen')
})

test('goal: a text is in the zone for the proof alone, several at a time, and only below the domain', async () => {
  const seen: (readonly ChallengeText[])[] = []
  const showTexts = async (texts: readonly ChallengeText[]) => void seen.push(texts)
  const challenges = new Challenges({ domain, httpListen: null, showTexts })
  {
    await using _first = await challenges.showText(`instances.${domain}`, 'one')
    await using _second = await challenges.showText(`*.${domain}`, 'two')
  }
  const [first, second] = [
    { name: '_acme-challenge.instances', text: 'one' },
    { name: '_acme-challenge', text: 'two' },
  ]
  expect(seen).toEqual([[first], [first, second], [first], []])
  await expect(challenges.showText('instances.other.example', 'x')).rejects.toThrow('not below')
  await expect(challenges.showText('evil-agents.example', 'x')).rejects.toThrow('not below')
  const without = new Challenges({ domain, httpListen: null, showTexts: null })
  await expect(without.showText(`instances.${domain}`, 'x')).rejects.toThrow('listen.dns is off')
})
