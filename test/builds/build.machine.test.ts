// Goal: a build moves along the written cells alone, and each state of its VM leads to the written step.

import { expect, test } from 'bun:test'
import { type BuildEvent, nextState, taskOf } from '../../src/builds/build.machine.ts'
import { BUILD_STATES } from '../../src/contract/http/build.ts'
import { VM_STATES } from '../../src/store/ledger/vm.table.ts'

const EVENTS: readonly BuildEvent[] = ['claimed', 'no_room', 'ordered', 'finished', 'broken', 'cancelled']

test('goal: each pair of state and event leads where it is written here, and every other pair is refused', () => {
  const cells = BUILD_STATES.flatMap(state =>
    EVENTS.flatMap(event => {
      const to = nextState(state, event)
      return to === null ? [] : [`${state} ${event} ${to}`]
    }),
  )
  expect(cells).toEqual([
    'queued claimed starting',
    'queued broken failed',
    'queued cancelled cancelled',
    'starting no_room queued',
    'starting ordered running',
    'starting broken failed',
    'starting cancelled cancelled',
    'running finished ok',
    'running broken failed',
    'running cancelled cancelled',
  ])
  expect([...BUILD_STATES]).toEqual(['queued', 'starting', 'running', 'ok', 'failed', 'cancelled'])
})

test('goal: the step for each state of a build and of its VM', () => {
  const stepsOf = (state: (typeof BUILD_STATES)[number]) => [
    taskOf(state, null),
    ...VM_STATES.map(vm => `${vm} ${taskOf(state, vm)}`),
  ]
  expect(stepsOf('starting')).toEqual([
    'define_vm',
    'waiting wait',
    'launching wait',
    'booting wait',
    'running order',
    'stopping fail_with_vm',
    'failed fail_with_vm',
    'gone fail_with_vm',
  ])
  expect(stepsOf('running')).toEqual([
    'fail_with_vm',
    'waiting wait',
    'launching wait',
    'booting wait',
    'running follow',
    'stopping fail_with_vm',
    'failed fail_with_vm',
    'gone fail_with_vm',
  ])
  const all = (state: (typeof BUILD_STATES)[number]) => [...new Set([null, ...VM_STATES].map(vm => taskOf(state, vm)))]
  expect(all('queued')).toEqual(['wait'])
  for (const state of ['ok', 'failed', 'cancelled'] as const) expect([state, all(state)]).toEqual([state, ['close']])
})
