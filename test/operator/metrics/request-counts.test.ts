// Goal: responses are counted by service and status, a handler that throws is not counted, and nothing else changes.

import { expect, test } from 'bun:test'
import { RequestCounts } from '../../../src/operator/metrics/request-counts.ts'

test('goal: each response counts once, under its service', async () => {
  const counts = new RequestCounts()
  const answer = counts.counted('instances', (status: number) => new Response('body', { status }))
  const build = counts.counted('builds', async () => new Response(null, { status: 200 }))
  const broken = counts.counted('console', () => {
    throw new Error('no')
  })
  expect(counts.render()).toBe('')
  expect(await (await answer(200)).text()).toBe('body')
  await Promise.all([answer(200), answer(404), build()])
  expect(await broken().catch(String)).toBe('Error: no')
  const lines = counts
    .render()
    .split('\n')
    .filter(line => !line.startsWith('#'))
  expect(lines).toEqual([
    'strongroom_requests_total{service="instances",status="200"} 2',
    'strongroom_requests_total{service="instances",status="404"} 1',
    'strongroom_requests_total{service="builds",status="200"} 1',
    '',
  ])
})
