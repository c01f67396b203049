import { describe, expect, test } from 'bun:test'
import { choosePoints } from '../../../scripts/faults/choose.plan.ts'
import { contextOf, effectOf, isBirth, type Process, placeOf } from '../../../scripts/faults/effects.plan.ts'

const targets: Record<number, string> = {
  1: '/srt/daemon.log',
  3: '/srt/state/strongroom.db-wal',
  4: 'socket:[77]',
  5: 'anon_inode:[eventfd]',
  6: '/dev/net/tun',
}
const memory: Record<number, string> = {
  100: '/srt/state/a.tmp',
  200: '/srt/state/a',
  300: '/srt/state/vms/x/qmp.sock',
}

function processOf(): Process {
  const unix = Buffer.concat([Buffer.from([1, 0]), Buffer.from(`${memory[300]}\0`)])
  return {
    pid: 7,
    target: fd => targets[fd] ?? '',
    text: address => memory[address] ?? '',
    bytes: (address, length) => (address === 300 ? unix : Buffer.alloc(8)).subarray(0, length),
    clientOf: socket => (socket === 'socket:[77]' ? 'socket of a client of port 8441' : socket),
    log: '/srt/daemon.log',
    peers: new Map(),
  }
}

// Goal: what changes something outside of the daemon is an effect, and nothing else.
describe('effects', () => {
  test.each([
    ['a write to a file', 18, [3], 'pwrite64 /srt/state/strongroom.db-wal'],
    ['a write to the log', 1, [1], null],
    ['a wake-up', 1, [5], null],
    ['a write to a closed descriptor', 1, [9], null],
    ['a file opened to be read', 257, [0xffff_ff9c, 200, 0o2000000], null],
    ['a file that is made', 257, [0xffff_ff9c, 100, 0o101], 'openat /srt/state/a.tmp'],
    ['a rename', 82, [100, 200], 'rename /srt/state/a.tmp -> /srt/state/a'],
    ['a tap', 16, [6, 0x4004_54ca], 'ioctl 0x54ca /dev/net/tun'],
    ['a question to a terminal', 16, [6, 0x5401], null],
    ['a thread', 56, [0x1_0000], null],
    ['a program', 58, [], 'vfork a new process'],
    ['a look whether a process is there', 62, [9, 0], null],
    ['a signal to itself', 62, [7, 10], null],
    ['a signal to another process', 62, [9, 9], 'kill signal 9'],
    ['a read', 0, [3], null],
  ] as const)('%s', (_, number, args, effect) => {
    expect(effectOf(number, args, processOf())).toBe(effect)
  })

  test('what goes over a socket is named after its other end', () => {
    const process = processOf()
    expect(effectOf(44, [4], process)).toBe('sendto socket of a client of port 8441')
    expect(effectOf(42, [4, 300, 64], process)).toBe('connect /srt/state/vms/x/qmp.sock')
    expect(effectOf(44, [4], process)).toBe('sendto socket to /srt/state/vms/x/qmp.sock')
  })
})

test('Goal: one place has one name in every run', () => {
  const id = '0f8fad5b-d9cb-469f-a165-70867728950e'
  expect(placeOf(`mkdir /srt/state/vms/${id}`, '/srt')).toBe('mkdir state/vms/ID')
  expect(placeOf('sendto socket:[77]', '/srt')).toBe('sendto socket')
  expect(contextOf(['mkdir a', 'pwrite64 a/strongroom.db-wal', 'fsync a/strongroom.db-wal'])).toBe('mkdir a')
  expect(contextOf(['mkdir a'])).toBeNull()
  expect(isBirth('vfork a new process')).toBe(true)
  expect(isBirth('pwrite64 /srt/a')).toBe(false)
})

// Goal: a sample covers the whole of a run, and its seed repeats it.
describe('points', () => {
  const distinct = Array.from({ length: 1000 }, (_, at) => `call ${at}`)

  test('one point from each share', () => {
    const points = choosePoints(distinct, 10, 5)
    expect(points.map(point => Math.floor(point / 100))).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    expect(choosePoints(distinct, 10, 5)).toEqual(points)
    expect(choosePoints(distinct, 10, 6)).not.toEqual(points)
  })

  test('each place before a second point of any', () => {
    const effects = ['mkdir', ...Array.from({ length: 50 }, () => 'pwrite64 db'), 'fsync db', 'unlink']
    const points = choosePoints(effects, 4, 1)
    expect(points.filter(at => effects[at] !== 'pwrite64 db')).toEqual([0, 51, 52])
    expect(points).toHaveLength(4)
    const more = choosePoints(effects, 10, 1)
    expect(new Set(more).size).toBe(10)
    expect(more).toEqual(expect.arrayContaining([0, 1, 51, 52]))
  })

  test('all of them', () => {
    expect(choosePoints(['a', 'a', 'b'], 'all', 1)).toEqual([0, 1, 2])
    expect(choosePoints(['a', 'a', 'b'], 10, 1)).toEqual([0, 1, 2])
    expect(choosePoints([], 10, 1)).toEqual([])
  })
})
