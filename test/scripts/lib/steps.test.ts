import { expect, test } from 'bun:test'
import { EventEmitter } from 'node:events'
import { runSteps, type Steps } from '../../../scripts/lib/steps.ts'

async function run(body: (steps: Steps, signals: EventEmitter) => Promise<void>, undoTimeoutMs = 1000) {
  const lines: string[] = []
  const signals = new EventEmitter()
  const status = await runSteps(steps => body(steps, signals), {
    print: line => lines.push(line.replace(/^ *\d+\.\d s {2}/, '').split('\n')[0] ?? ''),
    undoTimeoutMs,
    signals: signals as unknown as NodeJS.Process,
  })
  return { status, lines, listeners: signals.listenerCount('SIGINT') }
}

// Goal: steps run in order, each on a line with what it found, and undos run backwards at the end.
test('success', async () => {
  const { status, lines, listeners } = await run(async ({ step, defer, note }) => {
    expect(await step('one', () => 'found')).toBe('found')
    defer('first', () => {})
    await step('two', async () => note('half way'))
    defer('second', async () => {})
  })
  expect(status).toBe(0)
  expect(listeners).toBe(0)
  expect(lines.map(line => line.trim())).toEqual([
    'one: found',
    'half way',
    'two',
    'clean up: second',
    'clean up: first',
    'in all',
  ])
})

// Goal: after a failure no further step runs, every undo does, and the status tells.
test('failure', async () => {
  const { status, lines } = await run(async ({ step, defer }) => {
    defer('a', () => {})
    await step('one', () => Promise.reject(new Error('no')))
    await step('two', () => {})
  })
  expect(status).toBe(1)
  expect(lines[0]).toBe('one: FAILED')
  expect(lines[1]).toMatch(
    /^ +machine: load [\d.]+, [\d.]+, [\d.]+ \(1, 5, 15 min\) on \d+ cores; \d+ MiB of \d+ MiB memory available$/,
  )
  expect(lines).toContain('clean up: a')
  expect(lines).not.toContain('two')
})

// Goal: an undo that fails or hangs neither stops the others nor passes for success.
test('failing undos', async () => {
  const { status, lines } = await run(async ({ defer }) => {
    defer('a', () => {})
    defer('b', () => Promise.reject(new Error('no')))
    defer('c', () => new Promise(() => {}))
  }, 20)
  expect(status).toBe(1)
  expect(lines.slice(0, 3)).toEqual([
    'clean up: c: FAILED: Error: not done after 20 ms',
    'clean up: b: FAILED: Error: no',
    'clean up: a',
  ])
})

// Goal: an interruption ends the step that is running, tells it so, and still cleans up.
test('interruption', async () => {
  let told = false
  const { status, lines } = await run(async ({ step, defer }, signals) => {
    defer('a', () => {})
    await step('one', signal => {
      signal.addEventListener('abort', () => {
        told = true
      })
      queueMicrotask(() => signals.emit('SIGINT'))
      return new Promise(() => {})
    })
  })
  expect({ status, told }).toEqual({ status: 130, told: true })
  expect(lines).toEqual(['interrupted', 'clean up: a', 'in all'])
})
