// The text of places in queues, and the queue of an engine, which is not trusted.

import { expect, test } from 'bun:test'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { target } from '../../../scripts/rigs/gateway/server.ts'
import { startUpstream } from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { UpstreamClient } from '../../../src/inference/upstream/client.ts'
import { gaugeSum, queueText, stepped } from '../../../src/inference/upstream/queue.ts'

test('goal: numbers are rounded up in steps and bounded, whatever the estimate is', () => {
  const steps = [0, 1, 2, 3, 4, 6, 10, 11, 31, 999, 1e9, Number.POSITIVE_INFINITY]
  expect(steps.map(stepped)).toEqual([1, 1, 2, 3, 5, 10, 10, 20, 50, 1_000, 1_000_000, 1_000_000])
  expect(queueText({ position: 4, waitMs: 11_500 })).toBe('position=5, wait=20')
  for (const waitMs of [null, Number.POSITIVE_INFINITY, Number.NaN, 1e9]) {
    expect(queueText({ position: 1, waitMs })).toBe('position=1')
  }
})

test('goal: a gauge is summed over its labels; another name, or a value that is no count, gives nothing', () => {
  const name = 'vllm:num_requests_waiting'
  const of = (...lines: string[]) => gaugeSum(['# TYPE x gauge', ...lines, ''].join('\n'), name)
  expect(of(`${name}{engine="0",model_name="a b"} 3.0`, `${name}{engine="1"} 4`)).toBe(7)
  expect(of(`${name} 2`)).toBe(2)
  expect(gaugeSum(`${name} 12`, name)).toBeNull()
  expect(gaugeSum(`${name}{a=""} 3\n${name} 4`, name)).toBe(3)
  expect(of(`${name}_by_reason{reason="capacity"} 9`, 'other 1')).toBeNull()
  for (const value of ['-1', '1.5', 'NaN', '+Inf', '1e300', 'many', ''])
    expect(of(`${name}{} 1`, `${name} ${value}`)).toBe(value === '' ? 1 : null)
})

test('goal: an engine is asked beside /v1, once for all that wait, and may answer anything', async () => {
  await using stack = new AsyncDisposableStack()
  const upstream = await startUpstream()
  stack.defer(upstream.stop)
  const timeouts = { connectMs: 5_000, firstByteMs: 5_000 }
  const waitingAt = async (engine: 'vllm' | 'sglang' | 'llama-server' | 'openai', metrics: string | null) => {
    upstream.metrics = metrics
    const client = new UpstreamClient({ deadlines: createDeadlines(systemClock), timeouts })
    const at = target(upstream.url, { engine })
    const [first, second] = [client.waiting(at), client.waiting(at)]
    expect(second).toBe(first)
    const count = await first
    client.close()
    return count
  }
  expect(await waitingAt('vllm', 'vllm:num_requests_waiting{engine="0"} 6.0\n')).toBe(6)
  expect(await waitingAt('sglang', 'sglang:num_queue_reqs{model_name="m"} 2\n')).toBe(2)
  expect(await waitingAt('llama-server', 'llamacpp:requests_deferred 1\n')).toBe(1)
  expect(await waitingAt('openai', 'vllm:num_requests_waiting 6\n')).toBeNull()
  expect(await waitingAt('vllm', null)).toBeNull()
  expect(await waitingAt('vllm', '<html>')).toBeNull()
  expect(upstream.seen).toEqual([])
  const gone = new UpstreamClient({ deadlines: createDeadlines(systemClock), timeouts })
  expect(await gone.waiting(target('http://127.0.0.1:1/v1', { engine: 'vllm' }))).toBeNull()
  gone.close()
})

// Goal: the head of a stream waits for the answer, so no engine can hold it back.
test('metrics that never come, and metrics that never end', async () => {
  await using stack = new AsyncDisposableStack()
  const timeouts = { connectMs: 60_000, firstByteMs: 60_000 }
  const client = new UpstreamClient({ deadlines: createDeadlines(systemClock), timeouts })
  stack.defer(() => client.close())
  const gone: string[] = []
  const server = createServer((request, response) => {
    const isEndless = request.url === '/endless/metrics'
    const timer = setInterval(() => {
      if (isEndless) response.write('vllm:num_requests_waiting{engine="0"} 1\n'.repeat(1_000))
    }, 1)
    response.on('close', () => {
      clearInterval(timer)
      gone.push(request.url ?? '')
    })
  })
  stack.defer(() => void server.close())
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const at = (base: string) => client.waiting(target(`http://127.0.0.1:${port}/${base}/v1`, { engine: 'vllm' }))
  expect(await at('silent')).toBeNull()
  expect(await at('endless')).toBeGreaterThan(0)
  await until('both connections are closed', 60_000, () => gone.length === 2)
  expect(gone).toEqual(['/silent/metrics', '/endless/metrics'])
})
