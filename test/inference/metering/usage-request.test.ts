// Goal: the query of GET /v1/usage is read as written here, and each refusal names its parameter.

import { expect, test } from 'bun:test'
import { readUsageRequest, USAGE_FORMATS, usageByDefault } from '../../../src/inference/metering/usage-request.ts'
import { faultOf } from '../../rigs/fault-of.ts'

const read = (query: string) => readUsageRequest({ url: `http://h/v1/usage${query}` }, '2026-11-15')
const shown = (query: string) => {
  const asked = read(query)
  return asked === null ? null : [asked.days.from, asked.days.to, [...asked.by].join(','), asked.format].join(' ')
}

test('goal: without a parameter the sums of the month, otherwise the month until its last day', () => {
  expect([shown(''), shown('?'), shown('#from=x')]).toEqual([null, null, null])
  expect(shown('?format=json')).toBe('2026-11-01 2026-11-15 model,day json')
  expect(shown('?format=csv#by=x')).toBe('2026-11-01 2026-11-15 model,day csv')
  expect(shown('?to=2026-02-10')).toBe('2026-02-01 2026-02-10 model,day json')
  expect(shown('?from=2026-10-31&by=key')).toBe('2026-10-31 2026-11-15 key json')
  expect(shown('?by=')).toBe('2026-11-01 2026-11-15  json')
  expect([usageByDefault, USAGE_FORMATS]).toEqual(['model,day', ['json', 'csv']])
  // The URL of a request without a Host header.
  expect(readUsageRequest({ url: '/v1/usage?by=day' }, '2026-11-15')?.by).toEqual(new Set(['day']))
})

test('goal: an unknown, a repeated and a wrong parameter', () => {
  const refused = (query: string) => {
    const { code, param, message } = faultOf(() => read(query))
    return [code, param, message]
  }
  expect(refused('?org=a')).toEqual([
    'invalid_request',
    'org',
    'Unknown parameter "org"; the parameters are from, to, by, format.',
  ])
  expect(refused(`?${'x'.repeat(65)}=1`)[1]).toBe('x'.repeat(64))
  expect(refused('?by=day&by=day')).toEqual(['invalid_request', 'by', 'Send by once.'])
  expect(refused('?format=xml')).toEqual(['invalid_request', 'format', 'The format is one of json, csv.'])
  expect(refused('?to=2026-02-30').slice(0, 2)).toEqual(['invalid_request', 'to'])
  expect(refused('?from=2026-11-16').slice(0, 2)).toEqual(['invalid_request', 'to'])
  expect(refused('?by=user').slice(0, 2)).toEqual(['invalid_request', 'by'])
})
