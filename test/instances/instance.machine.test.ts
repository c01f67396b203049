import { expect, test } from 'bun:test'
import { INSTANCE_TABLE, type InstanceEvent, nextStatus, taskOf } from '../../src/instances/instance.machine.ts'
import type { InstanceStatus } from '../../src/store/directory/instance.table.ts'
import type { VmState } from '../../src/store/ledger/vm.table.ts'
import { VM_TABLE } from '../../src/vm/machine/vm.machine.ts'

const statuses = Object.keys(INSTANCE_TABLE) as InstanceStatus[]
const events = [...new Set(statuses.flatMap(status => Object.keys(INSTANCE_TABLE[status])))] as InstanceEvent[]
const moves = statuses
  .flatMap(from => events.map(event => ({ from, event, to: nextStatus(from, event) })))
  .filter(move => move.to !== null)
const vmStates: (VmState | null)[] = [...(Object.keys(VM_TABLE) as VmState[]), null]

test('every (status, event) pair is what the contract allows', () => {
  // Goal: exactly the transitions of the contract, section 3.1, plus the failure of a ready instance; nothing else.
  expect(moves.map(({ from, event, to }) => `${from} ${event} ${to}`)).toEqual([
    'provisioning usable ready',
    'provisioning broken failed',
    'provisioning deleted terminating',
    'ready broken failed',
    'ready deleted terminating',
    'failed deleted terminating',
    'terminating vm_gone terminated',
  ])
})

test('only a usable instance becomes ready, and nothing leaves terminated', () => {
  // Goal: ready means usable; terminated is the end.
  expect(moves.filter(move => move.to === 'ready').map(move => `${move.from}+${move.event}`)).toEqual([
    'provisioning+usable',
  ])
  expect(moves.some(move => move.from === 'terminated')).toBe(false)
  expect(moves.filter(move => move.to === 'terminated').map(move => move.from)).toEqual(['terminating'])
})

test('what is to be done follows from both states', () => {
  // Goal: over every (status, VM state) pair: a VM is made only where there is none, claimed only while it runs,
  // dismissed only for a failed or deleted instance; finish only when it is gone, fail only with it.
  const pairs = statuses.flatMap(status => vmStates.map(vm => ({ status, vm, task: taskOf(status, vm) })))
  expect(pairs.filter(({ task }) => task === 'provision').map(({ status, vm }) => `${status}+${vm}`)).toEqual([
    'provisioning+running',
  ])
  expect(pairs.filter(({ task }) => task === 'finish').map(({ status, vm }) => `${status}+${vm}`)).toEqual([
    'terminating+gone',
    'terminating+null',
  ])
  expect(pairs.filter(({ task }) => task === 'define_vm').map(({ status, vm }) => `${status}+${vm}`)).toEqual([
    'provisioning+null',
  ])
  const dismissing = pairs.filter(({ task }) => task === 'dismiss_vm').map(({ status, vm }) => `${status}+${vm}`)
  const living = ['waiting', 'launching', 'booting', 'running']
  expect(dismissing.sort()).toEqual(
    [...['failed', 'terminating'].flatMap(status => living.map(vm => `${status}+${vm}`)), 'terminating+failed'].sort(),
  )
  const failing = pairs.filter(({ task }) => task === 'fail_with_vm').map(({ status, vm }) => `${status}+${vm}`)
  const lost = ['failed', 'stopping', 'gone', 'null']
  const failed = ['provisioning', 'ready'].flatMap(status => lost.map(vm => `${status}+${vm}`))
  expect(failing.sort()).toEqual(failed.filter(pair => pair !== 'provisioning+null').sort())
})

test('each pair has its task', () => {
  // Goal: the whole table by status, in the order of a VM's life; a pair without a task would stop its instance for
  // ever.
  const tasks = (status: InstanceStatus) =>
    (['waiting', 'launching', 'booting', 'running', 'stopping', 'failed', 'gone', null] as const).map(vm =>
      taskOf(status, vm),
    )
  const [wait, fail, dismiss] = ['wait', 'fail_with_vm', 'dismiss_vm'] as const
  expect(Object.fromEntries(statuses.map(status => [status, tasks(status)]))).toEqual({
    provisioning: [wait, wait, wait, 'provision', fail, fail, fail, 'define_vm'],
    ready: [wait, wait, wait, wait, fail, fail, fail, fail],
    failed: [dismiss, dismiss, dismiss, dismiss, wait, wait, wait, wait],
    terminating: [dismiss, dismiss, dismiss, dismiss, wait, dismiss, 'finish', 'finish'],
    terminated: [wait, wait, wait, wait, wait, wait, wait, wait],
  })
})
