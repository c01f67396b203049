// Goal: strangers who begin sign-ins can neither hold all places of the answers being checked, nor make this host send
// any number of requests to the provider; persons who do sign in are not counted. The provider is a scripted one.

import { expect, setDefaultTimeout, test } from 'bun:test'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createLogger } from '../../../src/base/log.ts'
import { OidcSignIn } from '../../../src/console/oidc/sign-in.ts'
import { fetchDirectly } from '../../../src/linux/net/outgoing.ts'
import { startProvider } from '../../rigs/console/provider.ts'

setDefaultTimeout(60_000)

const origin = 'https://console.example.org'

/** `elapse`: moves the monotonic clock, which stands still otherwise. */
async function start() {
  const provider = await startProvider()
  let nowMs = 1_000_000
  const lines: unknown[] = []
  const log = createLogger({ level: 'info', sink: line => lines.push(JSON.parse(line)), nowMs: Date.now })
  const signIn = new OidcSignIn({
    ...{ config: provider.config, send: fetchDirectly, random: systemRandom, log },
    clock: { nowMs: systemClock.nowMs, monotonicMs: () => nowMs },
    strangers: { level: () => 'debug' },
  })
  const attempt = async (address: string, code?: string, claims = {}) => {
    const { url, token } = await signIn.begin({ origin })
    const query = new URLSearchParams(await provider.signIn(url, { claims }))
    if (code !== undefined) query.set('code', code)
    return await signIn.finish({ token, answer: `?${query}` }, { origin, address })
  }
  const outcome = (address: string, code?: string, claims = {}) =>
    attempt(address, code, claims).then(
      ({ subject }) => subject,
      (error: Error) => error.message,
    )
  return {
    ...{ provider, outcome, lines },
    tokenRequests: () => provider.requests.filter(path => path === '/realm/token').length,
    elapse: (ms: number) => {
      nowMs += ms
    },
    [Symbol.asyncDispose]: () => provider[Symbol.asyncDispose](),
  }
}

test('goal: the addresses of one IPv6 /64 share their part of the answers being checked', async () => {
  await using rig = await start()
  const { promise, resolve } = Promise.withResolvers<void>()
  rig.provider.self.instead.set('/realm/token', async () => {
    await promise
    return Response.json({ error: 'invalid_grant' }, { status: 400 })
  })
  const held = [1, 2, 3, 4].map(host => rig.outcome(`2001:db8::${host}`))
  while (rig.tokenRequests() < 4) await Bun.sleep(5)
  expect(await rig.outcome('2001:db8::5')).toBe('Too many sign-ins are being checked; try again.')
  rig.provider.self.instead.delete('/realm/token')
  expect(await rig.outcome('2001:db8:0:1::5')).toBe('f81d4fae')
  resolve()
  await Promise.all(held)
  expect(await rig.outcome('2001:db8::5')).toBe('f81d4fae')
})

test('goal: 120 exchanges in a minute that sign nobody in are the last; passkeys are named, and persons do not count', async () => {
  await using rig = await start()
  for (let count = 0; count < 3; count += 1) expect(await rig.outcome('192.0.2.1')).toBe('f81d4fae')
  const answers = Array.from({ length: 120 }, (_, count) => count)
  for (const count of answers) {
    expect(await rig.outcome(`192.0.2.${count}`, 'forged')).toContain('did not sign you in with "invalid_grant"')
  }
  expect(rig.tokenRequests()).toBe(123)
  const limited = await rig.outcome('198.51.100.1', 'forged')
  expect(limited).toBe(
    'Too many sign-ins at Example ID have failed; try again in a minute. Passkeys and links work now.',
  )
  expect(rig.tokenRequests()).toBe(123)
  rig.elapse(61_000)
  expect(await rig.outcome('198.51.100.1')).toBe('f81d4fae')
})

test('goal: a person without a role is in the log, also while strangers have used up their lines', async () => {
  await using rig = await start()
  expect(await rig.outcome('192.0.2.1', 'forged')).toContain('did not sign you in')
  expect(rig.lines).toEqual([])
  expect(await rig.outcome('192.0.2.1', undefined, { groups: [] })).toContain('You have no access to this console')
  expect(rig.lines).toMatchObject([{ level: 'info', subject: 'f81d4fae', issuer: rig.provider.issuer }])
})
