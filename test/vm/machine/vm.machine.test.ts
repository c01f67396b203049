// The VM's table, pair by pair.

import { expect, test } from 'bun:test'
import type { VmState } from '../../../src/store/ledger/vm.table.ts'
import { VM_FAILURE_CODES } from '../../../src/vm/engine.ts'
import {
  failureMessage,
  failureOf,
  knownFailure,
  LOSSES,
  next,
  SILENCES,
  VM_TABLE,
  type VmEvent,
  type VmWork,
} from '../../../src/vm/machine/vm.machine.ts'

const states = Object.keys(VM_TABLE) as VmState[]
const events = [...new Set(states.flatMap(state => Object.keys(VM_TABLE[state].on)))] as VmEvent[]
const every = states.flatMap(from => events.map(event => ({ from, event, to: next(from, event) })))
const moves = every.filter(move => move.to !== null)

test('every (state, event) pair is what the table of intent says', () => {
  // Goal: no transition exists that was not meant; the whole table as one text.
  expect(moves.map(({ from, event, to }) => `${from} ${event} ${to}`)).toEqual([
    'waiting admitted launching',
    'waiting refused failed',
    'waiting dismissed gone',
    'launching dismissed stopping',
    'launching spawned booting',
    'launching spawn_failed failed',
    'launching launch_mismatch failed',
    'booting dismissed stopping',
    'booting greeted running',
    'booting deadline failed',
    'booting qemu_gone failed',
    'booting guest_stopped failed',
    'running dismissed stopping',
    'running qemu_gone failed',
    'running guest_stopped failed',
    'running unanswered failed',
    'running network_lost failed',
    'failed dismissed stopping',
    'stopping released gone',
  ])
})

test('a VM that has held anything is gone only after its ledger was released', () => {
  // Goal: no way to `gone` past the release but from `waiting`, which holds nothing.
  const intoGone = moves.filter(move => move.to === 'gone').map(move => `${move.from}+${move.event}`)
  expect(intoGone).toEqual(['waiting+dismissed', 'stopping+released'])
  const worksOf = (state: VmState): readonly VmWork[] => VM_TABLE[state].work
  const releasing = states.filter(state => worksOf(state).includes('release'))
  expect(releasing).toEqual(['failed', 'stopping'])
})

test('the work of each state, in its order', () => {
  // Goal: no step is dropped or moved unseen.
  expect(states.map(state => `${state}: ${VM_TABLE[state].work.join(' ')}`)).toEqual([
    'waiting: admit',
    'launching: build',
    'booting: check_deadline attach resume greet',
    'running: bound_log attach resume watch open',
    'failed: release',
    'stopping: power_down release',
    'gone: ',
  ])
})

test('only a greeted guest runs', () => {
  // Goal: nothing reaches `running` without the agent having spoken, and nothing comes back to life.
  expect(moves.filter(move => move.to === 'running').map(move => `${move.from}+${move.event}`)).toEqual([
    'booting+greeted',
  ])
  expect(moves.filter(move => move.from === 'gone')).toEqual([])
  expect(moves.filter(move => move.from === 'failed').map(move => move.to)).toEqual(['stopping'])
})

test('every state but the last can be dismissed, and gone is reachable from each', () => {
  // Goal: a delete always gets through, whatever the VM is doing.
  for (const state of states) {
    if (state !== 'gone' && state !== 'stopping') expect(next(state, 'dismissed')).not.toBeNull()
    expect(reachable(state).has('gone')).toBe(true)
  }
})

test('each failure has the code that its cause deserves', () => {
  // Goal: the closed set of failure codes is used as documented.
  expect(failureOf('waiting', 'refused', null)).toBe('capacity_exhausted')
  expect(failureOf('launching', 'spawn_failed', null)).toBe('boot_failed')
  expect(failureOf('launching', 'launch_mismatch', null)).toBe('launch_mismatch')
  expect(failureOf('booting', 'deadline', null)).toBe('boot_timeout')
  expect(failureOf('booting', 'qemu_gone', null)).toBe('boot_failed')
  expect(failureOf('running', 'qemu_gone', null)).toBe('agent_unreachable')
  expect(failureOf('running', 'unanswered', null)).toBe('agent_unreachable')
  expect(failureOf('running', 'network_lost', null)).toBe('network_lost')
  expect(failureOf('running', 'qemu_gone', 'host_restarted')).toBe('host_restarted')
  expect(failureOf('running', 'qemu_gone', 'host_restored')).toBe('host_restored')
})

test('what a loss of the host explains, and what it does not', () => {
  // Goal: a reboot is the cause of whatever else it looked like, but never of a refused VM, which had nothing.
  expect(failureOf('waiting', 'refused', 'host_restarted')).toBe('capacity_exhausted')
  for (const event of ['launch_mismatch', 'deadline', 'network_lost', 'qemu_gone', 'unanswered'] as const)
    for (const loss of ['host_restarted', 'host_restored'] as const)
      expect([event, failureOf('booting', event, loss)]).toEqual([event, loss])
  expect(failureOf('booting', 'guest_stopped', null)).toBe('boot_failed')
  expect(failureOf('running', 'guest_stopped', null)).toBe('agent_unreachable')
  expect([...SILENCES].sort()).toEqual(['network_lost', 'unanswered'])
  expect([...LOSSES].sort()).toEqual([
    'deadline',
    'guest_stopped',
    'network_lost',
    'qemu_gone',
    'spawn_failed',
    'unanswered',
  ])
})

test('each code of a failure is known, and has its sentence', () => {
  // Goal: the codes of the contract; of another executable's code clients see `internal`, never the code.
  expect([...VM_FAILURE_CODES] as string[]).toEqual([
    'capacity_exhausted',
    'launch_mismatch',
    'boot_failed',
    'boot_timeout',
    'agent_unreachable',
    'network_lost',
    'host_restarted',
    'host_restored',
    'internal',
  ])
  for (const code of VM_FAILURE_CODES) {
    expect(knownFailure(code)).toBe(code)
    expect(failureMessage(code, null)).toMatch(/^[A-Z].*\.$/)
    if (code !== 'launch_mismatch') expect(failureMessage(code, 'kernel')).toBe(failureMessage(code, null))
  }
  expect([knownFailure(null), knownFailure('toString'), knownFailure('')]).toEqual([null, 'internal', 'internal'])
  const sentence = failureMessage('launch_mismatch', undefined)
  expect(failureMessage('launch_mismatch', '')).toBe(sentence)
  expect(failureMessage('launch_mismatch', 'kernel, initrd')).toBe(`${sentence.slice(0, -1)}: kernel, initrd.`)
})

function reachable(from: VmState): Set<VmState> {
  const seen = new Set<VmState>([from])
  for (const state of seen) for (const move of moves) if (move.from === state && move.to !== null) seen.add(move.to)
  return seen
}
