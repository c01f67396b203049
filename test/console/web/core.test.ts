// Goal: what the page says of paths, commands, texts, times and metrics is right at its edges.

import { describe, expect, test } from 'bun:test'
import { GATEWAY_KEYS, metricsText } from '../../../scripts/rigs/console/documents.ts'
import { present } from '../../../src/base/assert.ts'
import { TOPICS } from '../../../src/console/live/changes.ts'
import { commandOf, quoted } from '../../../src/console/web/core/command.ts'
import { GrowingText, shownLine, shownText } from '../../../src/console/web/core/foreign.ts'
import {
  bytesText,
  distanceText,
  durationText,
  gibOption,
  shortText,
  usdText,
} from '../../../src/console/web/core/format.ts'
import { LIVE_TOPICS, retryDelayMs, topicsIn } from '../../../src/console/web/core/live-message.ts'
import { quantileOf, readMetrics, sumOf, sumsBy } from '../../../src/console/web/core/metrics.ts'
import { matchPath, pathTo, readAddress } from '../../../src/console/web/core/path.ts'
import { eventsIn } from '../../../src/console/web/core/server-sent.ts'
import { pointOf } from '../../../src/console/web/operator/gateway/rates.ts'
import {
  bodyOf,
  changesOf,
  optionsOf,
  termsOf,
} from '../../../src/console/web/operator/organizations/gateway-key-terms.ts'
import {
  budgetBody,
  budgetOptions,
  budgetsOf,
} from '../../../src/console/web/operator/organizations/organization-budget.ts'
import { rowsInView } from '../../../src/console/web/parts/rows-in-view.ts'
import { bytesOption } from '../../../src/terminal/options.ts'
import { bytesText as commandLineBytes } from '../../../src/terminal/render.ts'

// Goal: a deep link names what it named when it was copied, whatever stands in it.
test('paths', () => {
  expect(matchPath('/instances/:organization/:name', '/instances/acme/k3v9x2ab')).toEqual(['acme', 'k3v9x2ab'])
  expect(matchPath('/builds/:id', `/builds/${encodeURIComponent('a/b?c')}`)).toEqual(['a/b?c'])
  expect(pathTo`/builds/${'a/b?c'}/x`).toBe('/builds/a%2Fb%3Fc/x')
  for (const path of ['/builds', '/builds/', '/builds/a/b', '/builds/%', '/build/a']) {
    expect(matchPath('/builds/:id', path)).toBeNull()
  }
  expect(readAddress('https://host/instances/?status=failed')).toEqual({
    path: '/instances',
    query: new Map([['status', 'failed']]),
  })
})

// Goal: a copied command does to a shell exactly what its words say.
test('commands', () => {
  expect(commandOf(['org', 'delete', 'acme'], { force: true, 'dry-run': false, usd: null })).toBe(
    'strongroom org delete acme --force',
  )
  expect(commandOf(['verify', 'gateway'], { 'allow-outside': ['a=https://b', 'c'] })).toBe(
    'strongroom verify gateway --allow-outside a=https://b --allow-outside c',
  )
  for (const word of [`it's`, '$(id)', 'a b', '`id`', 'a;b', '', '"', '\\', 'a\nb']) {
    const { stdout } = Bun.spawnSync(['sh', '-c', `printf %s ${quoted(word)}`])
    expect(stdout.toString()).toBe(word)
  }
})

describe('text from elsewhere', () => {
  // Goal: no control or bidi character reaches the page, and no text is without a bound.
  test('is harmless and bounded', () => {
    expect(shownText('a\u001b[2Jb\u202ec\u0000')).toBe('a\\x1b[2Jb\\u202ec\\x00')
    expect(shownLine('a\r\nb\tc')).toBe('a b c')
    expect(shownText('x'.repeat(10_000))).toHaveLength(4_097)
    expect(shownText('abcdef', 3)).toBe('abc…')
  })

  // Goal: a console that prints for days holds no more memory than its bound, and is cut between lines.
  test('grows to its bound', () => {
    const grown = new GrowingText(20)
    grown.add('first line\n')
    expect([grown.text, grown.isCut]).toEqual(['first line\n', false])
    grown.add('second line\nthird\n')
    expect([grown.text, grown.isCut]).toEqual(['second line\nthird\n', true])
    grown.add('y'.repeat(1_000))
    expect(grown.text).toBe('y'.repeat(20))
  })
})

// Goal: sizes read as on the command line; times and sums read as people say them.
test('numbers', () => {
  for (const bytes of [0, 1, 1023, 1024, 5_368_709_120, 2 ** 50]) {
    expect(bytesText(bytes)).toBe(commandLineBytes(bytes))
  }
  expect([usdText('0.000000000'), usdText('0.000012000'), usdText('1234.5')]).toEqual(['$0', '$0.000012', '$1,234.50'])
  expect([distanceText(0, 60_000), distanceText(90_000, 0), distanceText(1_000, 0)]).toEqual([
    ...['1 minute ago', 'in 1 minute', 'now'],
  ])
  expect([durationText(59), durationText(3_600), durationText(200_000)]).toEqual(['59 seconds', '1 hour', '2 days'])
  expect([shortText('a'.repeat(25)), shortText('a'.repeat(26))]).toEqual(['a'.repeat(25), `${'a'.repeat(12)}…aaaa`])
})

describe('the live stream', () => {
  // Goal: the page and the console call the same things by the same names.
  test('topics', () => {
    expect([...LIVE_TOPICS].sort()).toEqual([...TOPICS].sort())
    expect(topicsIn('{"topics":["instances","of-a-newer-version"]}')).toEqual(['instances'])
    for (const text of ['', '{', 'null', '[]', '{"topics":"instances"}', '{"topics":[{}]}']) {
      expect(topicsIn(text)).toEqual([])
    }
  })

  // Goal: pages that lost an appliance do not storm it: the wait doubles, is spread, and has a bound.
  test('back-off', () => {
    expect([1, 2, 3].map(failures => retryDelayMs(failures, 1))).toEqual([1_000, 2_000, 4_000])
    expect([retryDelayMs(1, 0), retryDelayMs(50, 0), retryDelayMs(50, 1)]).toEqual([500, 15_000, 30_000])
  })

  // Goal: events of a build are read whole wherever the network cuts them.
  test('events in pieces', async () => {
    const text = 'data: {"a":1}\n\n: here\n\nevent: x\r\ndata: b\r\ndata:c\r\n\r\ndata: unfinished'
    const whole = ['{"a":1}', 'b\nc']
    for (const size of [1, 3, 1_000]) {
      const pieces = [...Array(Math.ceil(text.length / size)).keys()].map(at => text.slice(at * size, (at + 1) * size))
      const body = (async function* () {
        for (const piece of pieces) yield Uint8Array.from(Buffer.from(piece))
      })()
      expect(await Array.fromAsync(eventsIn(body))).toEqual(whole)
    }
  })
})

describe('metrics', () => {
  const [before, after] = [readMetrics(metricsText(0)), readMetrics(metricsText(1))]

  // Goal: sums and quantiles are those of the samples, labels with quotes and commas included.
  test('are read', () => {
    expect(sumOf(before, 'strongroom_gateway_requests_total')).toBe(912)
    expect(sumOf(before, 'strongroom_gateway_requests_total', { http_response_status_code: '502' })).toBe(12)
    expect(sumsBy(before, 'strongroom_upstream_healthy', 'upstream')).toEqual([
      ['near', 1],
      ['far-away', 0],
    ])
    expect(sumOf(readMetrics('a{b="c\\"d,e=\\"f"} 2\na{b="x"} 3\n'), 'a', { b: 'c"d,e="f' })).toBe(2)
    expect(sumOf(readMetrics('no sample at all\n# a 3'), 'a')).toBe(0)
  })

  // Goal: a quantile lies in its bucket; without an observation there is none.
  test('quantiles', () => {
    const name = 'gen_ai_server_time_to_first_token_seconds'
    expect(quantileOf(before, name, 0.4)).toBeCloseTo(0.1, 5)
    expect(quantileOf(before, name, 0.99)).toBe(0.25)
    expect(quantileOf(before, name, 0.5, before)).toBeNull()
    expect(quantileOf(before, 'absent', 0.5)).toBeNull()
  })

  // Goal: rates are of the step; a gateway that began anew shows no huge or negative rate.
  test('rates', () => {
    const point = pointOf(after, { before, seconds: 10, atS: 5 })
    expect([point.requests, point.failures, point.promptTokens]).toEqual([4.1, 0.1, 840])
    expect(pointOf(before, { before: after, seconds: 10, atS: 5 }).requests).toBeNull()
    expect(pointOf(before, { before: null, seconds: 10, atS: 5 }).requests).toBeNull()
  })
})

// Goal: of a thousand rows the view's alone are drawn, and at the ends nothing is missing.
test('rows in view', () => {
  const view = { heightPixels: 600, count: 1_000 }
  expect(rowsInView({ ...view, topPixels: 0 })).toEqual({ from: 0, to: 23 })
  expect(rowsInView({ ...view, topPixels: 22_000 })).toEqual({ from: 492, to: 523 })
  expect(rowsInView({ ...view, topPixels: 43_400 })).toEqual({ from: 978, to: 1_000 })
  expect(rowsInView({ heightPixels: 600, topPixels: 0, count: 3 })).toEqual({ from: 0, to: 3 })
})

// Goal: an unchanged form changes nothing of a key, and the command beside it names the changes alone.
test('terms of a gateway key', () => {
  const [key] = GATEWAY_KEYS
  const terms = termsOf(key ?? null)
  expect(optionsOf(terms, terms)).toEqual({})
  expect(bodyOf(terms)).toMatchObject({
    requests_per_minute: 60,
    models: ['llama-70b', 'strongroom-tiny'],
    aliases: [{ name: 'gpt-4o', model: 'llama-70b' }],
    budget_usd: '100',
    budget_tokens: null,
  })
  expect(optionsOf({ ...terms, models: '', aliases: '', budget_tokens: '5' }, terms)).toEqual({
    models: 'all',
    'no-aliases': true,
    'budget-tokens': '5',
  })
})

// Goal: a change of one term leaves the others alone, an end in the middle of a day too, and its command says the same.
test('a change of a gateway key', () => {
  const [key] = GATEWAY_KEYS
  const before = termsOf({ ...present(key, 'a key'), expires_at: '2026-12-01T18:30:00.000Z' })
  expect(changesOf(before, before)).toEqual({})
  expect(changesOf({ ...before, budget_usd: '5', models: '' }, before)).toEqual({ budget_usd: '5', models: null })
  const budgets = { ...before, budget_day_usd: '2', budget_week_tokens: '900', user_budget: '0.5/day,20,required' }
  expect(changesOf(budgets, before)).toEqual({
    budget_day_usd: '2',
    budget_week_tokens: 900,
    user_budget: { usd: '0.5', period: 'day', users_max: 20, required: true },
  })
  expect(optionsOf(budgets, before)).toEqual({
    ...{ 'budget-day-usd': '2', 'budget-week-tokens': '900', 'user-budget': '0.5/day,20,required' },
  })
  expect(optionsOf(before, budgets)).toEqual({
    ...{ 'budget-day-usd': 'none', 'budget-week-tokens': 'none', 'user-budget': 'none' },
  })
  const named = { ...before, aliases: 'a=b, c=d' }
  expect(changesOf(named, before)).toEqual({
    aliases: [
      { name: 'a', model: 'b' },
      { name: 'c', model: 'd' },
    ],
  })
  expect(commandOf(['gateway', 'key', 'set', 'x'], optionsOf(named, before))).toBe(
    'strongroom gateway key set x --alias a=b --alias c=d',
  )
})

// Goal: the command line takes the size that the page takes.
test('a size in GiB', () => {
  for (const [typed, bytes] of [
    ['6', 6_442_450_944],
    ['1.5', 1_610_612_736],
    ['6.', 6_442_450_944],
  ] as const) {
    expect(bytesOption(Number.MAX_SAFE_INTEGER)(gibOption(typed))).toBe(bytes)
  }
})

// Goal: the form of an organization's budgets shows what is set, and its request and command say the same.
test('budgets of an organization', () => {
  const typed = budgetsOf({ budget_usd: '100', budget_tokens: null, budget_week_tokens: 900 })
  expect(typed).toEqual({
    ...{ budget_usd: '100', budget_tokens: '', budget_day_usd: '', budget_day_tokens: '' },
    ...{ budget_week_usd: '', budget_week_tokens: '900' },
  })
  const changed = { ...typed, budget_day_usd: '2.5' }
  expect(budgetBody(changed)).toEqual({
    ...{ budget_usd: '100', budget_tokens: null, budget_day_usd: '2.5', budget_day_tokens: null },
    ...{ budget_week_usd: null, budget_week_tokens: 900 },
  })
  expect(budgetOptions(changed)).toEqual({
    ...{ usd: '100', tokens: 'none', 'day-usd': '2.5', 'day-tokens': 'none', 'week-usd': 'none', 'week-tokens': '900' },
  })
})
