// Goal: a session ends after its idle time or its life, whichever is first, to the millisecond; watching is no use.

import { expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import type { Person } from '../../../src/console/person.ts'
import { Links, linkLifeMs } from '../../../src/console/sessions/links.ts'
import { Sessions } from '../../../src/console/sessions/sessions.ts'
import { drawToken, tokenDigest } from '../../../src/console/sessions/token.ts'

const byLink = (person: Person) => ({ person, by: 'link', passkeyId: null }) as const
const root = { uid: 0, actor: 'root', role: 'admin' } as const
const personOf = (actor: string) => ({ uid: 1, actor, role: 'operator' }) as const

function open({ idleMs = 1_000, lifeMs = 10_000 } = {}) {
  const clock = createManualClock()
  return { clock, sessions: new Sessions({ clock, random: systemRandom, idleMs, lifeMs }) }
}

test('goal: the idle time counts from the last use, and only a use begins it anew', () => {
  const { clock, sessions } = open()
  const { token, session } = sessions.begin(byLink(root))
  const find = (isUse: boolean) => sessions.find(token, { isUse })?.id ?? null
  clock.advance(999)
  expect(find(true)).toBe(session.id)
  clock.advance(999)
  expect([find(false), session.ended.aborted]).toEqual([session.id, false])
  clock.advance(1)
  expect([find(true), session.ended.aborted, sessions.list()]).toEqual([null, true, []])
})

test('goal: no use makes a session live longer than its life, whatever the wall clock says', () => {
  const { clock, sessions } = open({ idleMs: 1_000, lifeMs: 3_000 })
  const { token, session } = sessions.begin({ person: root, by: 'passkey', passkeyId: 'k1' })
  expect([session.endsAtMs - session.beganAtMs, session.by, session.passkeyId]).toEqual([3_000, 'passkey', 'k1'])
  clock.set(0)
  for (let atMs = 500; atMs < 3_000; atMs += 500) {
    clock.advance(500)
    expect([atMs, sessions.find(token, { isUse: true })?.id]).toEqual([atMs, session.id])
  }
  clock.advance(499)
  expect(sessions.find(token, { isUse: true })).not.toBeNull()
  clock.advance(1)
  expect(sessions.find(token, { isUse: true })).toBeNull()
})

test('goal: of 16 sessions of a person, and of 256 of all, the one that was idle for longest gives way', () => {
  const { clock, sessions } = open({ idleMs: 1_000_000, lifeMs: 1_000_000 })
  const begin = (actor: string) => {
    clock.advance(1)
    return sessions.begin(byLink(personOf(actor)))
  }
  const own = Array.from({ length: 16 }, () => begin('alice'))
  clock.advance(1)
  sessions.find(own[0]?.token ?? '', { isUse: true })
  begin('alice')
  expect(own.map(({ session }) => session.ended.aborted).flatMap((ended, at) => (ended ? [at] : []))).toEqual([1])
  for (let at = 0; sessions.list().length < 256; at += 1) begin(`u${at % 20}`)
  const [, , third] = own
  expect(third?.session.ended.aborted).toBe(false)
  begin('bob')
  expect([sessions.list().length, third?.session.ended.aborted]).toEqual([256, true])
})

test('goal: only those that are meant end, and another text finds none', () => {
  const { sessions } = open()
  const [a, b] = [sessions.begin(byLink(personOf('a'))), sessions.begin(byLink(personOf('b')))]
  expect(sessions.end(({ person }) => person.actor === 'a')).toBe(1)
  expect([a.session.ended.aborted, b.session.ended.aborted]).toEqual([true, false])
  expect(sessions.find(a.token, { isUse: true })).toBeNull()
  for (const token of ['', 'x', `${b.token}x`, drawToken(systemRandom).text]) {
    expect(sessions.find(token, { isUse: true })).toBeNull()
  }
  expect([tokenDigest(b.token)?.length, tokenDigest(b.token.slice(1))]).toEqual([64, null])
})

test('goal: a link logs in once within its minute, and a person has 8 of them', () => {
  const clock = createManualClock()
  const links = new Links({ clock, random: systemRandom })
  const first = links.make(root)
  expect([links.take(first)?.actor, links.take(first)]).toEqual(['root', null])
  const late = links.make(root)
  clock.advance(linkLifeMs - 1)
  const last = links.make(root)
  clock.advance(1)
  expect([linkLifeMs, links.take(late), links.take(last)?.actor]).toEqual([60_000, null, 'root'])
  const own = Array.from({ length: 9 }, () => links.make(root))
  links.make(personOf('a'))
  expect([links.size, links.take(own[0] ?? ''), links.take(own[1] ?? '')?.actor]).toEqual([9, null, 'root'])
  links.clear('root')
  expect(links.size).toBe(1)
  links.clear(null)
  expect(links.size).toBe(0)
})
