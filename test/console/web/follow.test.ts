// Goal: a text that grows is whole at its end, begins again after a break, and ends at a refusal.

import { expect, test } from 'bun:test'
import { follow, type OpenText } from '../../../src/console/web/core/follow.ts'
import { RequestProblem } from '../../../src/console/web/core/request.ts'

type Attempt = readonly (string | Error)[]

/** Follows a text whose attempts are given. Result: everything that became of it, in order. */
async function followed(attempts: readonly Attempt[]): Promise<string[]> {
  const seen: string[] = []
  const rest = [...attempts]
  const open: OpenText = async function* (_, isAgain) {
    // A person has asked for the first one alone.
    expect(isAgain).toBe(rest.length < attempts.length)
    for (const piece of rest.shift() ?? []) {
      if (piece instanceof Error) throw piece
      yield piece
    }
  }
  await follow(open, new AbortController().signal, {
    draw: ({ text }) => seen.push(`draw ${text}`),
    broke: ({ message }) => seen.push(`broke ${message}`),
    pause: async ms => void seen.push(`pause ${ms}`),
    random: () => 1,
  })
  return seen
}

const broken = new TypeError('network error')
const brokenOff = 'broke connection lost; reconnecting'

test('goal: what came before the end is drawn, an empty text too', async () => {
  expect(await followed([['a', 'b']])).toEqual(['draw ab'])
  expect(await followed([[]])).toEqual(['draw '])
})

test('goal: after a break it begins anew, soon where something came, later each time where nothing does', async () => {
  const attempts = [['a', broken], [broken], [broken], ['a', 'b', broken], ['abc']]
  expect(await followed(attempts)).toEqual([
    ...['draw a', brokenOff, 'pause 1000', brokenOff, 'pause 1000', brokenOff, 'pause 2000'],
    ...['draw ab', brokenOff, 'pause 1000', 'draw abc'],
  ])
})

test('goal: a refusal ends it in the words of the server; an appliance that is away does not', async () => {
  const away = new RequestProblem({ code: 'unreachable', message: 'away', status: 0 })
  const busy = new RequestProblem({ code: 'internal', message: 'busy', status: 503 })
  const gone = new RequestProblem({ code: 'not_found', message: 'gone', status: 404 })
  expect(await followed([[away], [busy], [gone], ['never']])).toEqual([
    ...['broke away', 'pause 1000', 'broke busy', 'pause 2000', 'broke gone'],
  ])
})

test('goal: nothing is drawn, and nothing begun, once nobody looks', async () => {
  const leaving = new AbortController()
  let opened = 0
  const seen: string[] = []
  await follow(
    async function* () {
      opened += 1
      yield 'a'
      leaving.abort()
      throw broken
    },
    leaving.signal,
    { draw: () => seen.push('draw'), broke: () => seen.push('broke'), pause: async () => {}, random: () => 1 },
  )
  expect([opened, seen]).toEqual([1, []])
})
