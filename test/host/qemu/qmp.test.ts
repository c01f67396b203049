import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Socket } from 'bun'
import { failure, until } from '../../../scripts/rigs/until.ts'
import { newUuid } from '../../../src/base/ids.ts'
import { connectQmp, type QmpEvent, qmpLineBytesMax, qmpTimeoutMs } from '../../../src/host/qemu/qmp.ts'
import { type ProcessIdentity, signalProcess, spawnDetached } from '../../../src/linux/process.ts'

setDefaultTimeout(30_000)
const dir = mkdtempSync(join(tmpdir(), 'qmp-test-'))
const uuid = newUuid()
let qemu: ProcessIdentity
const bootMs = 20_000
const quiet = { timeoutMs: bootMs, onEvent: () => {}, onClose: () => {} }

beforeAll(() => {
  const monitors = ['a', 'b'].flatMap(name => ['-qmp', `unix:${join(dir, name)},server=on,wait=off`])
  const machine = ['-accel', 'tcg', '-machine', 'q35', '-m', '32', '-nodefaults', '-no-user-config', '-nographic', '-S']
  const identity = ['-uuid', uuid, '-name', 'probe', '-action', 'reboot=shutdown,shutdown=pause,panic=pause']
  qemu = spawnDetached(['qemu-system-x86_64', ...machine, ...identity, ...monitors], {
    uuid,
    stdoutFile: join(dir, 'out'),
    scope: 'x',
    systemd: false,
  }).identity
})
afterAll(() => {
  signalProcess(qemu, 'SIGKILL')
  rmSync(dir, { recursive: true })
})

test('goal: how long QEMU may take for a response, written out', () => {
  expect(qmpTimeoutMs).toEqual({ default: 500, blocking: 5_000, heavy: 30_000 })
  expect(qmpLineBytesMax).toBe(1_048_576)
})

test('goal: two monitors of a real QEMU work side by side, with events to both', async () => {
  const events: QmpEvent[] = []
  const a = await connectQmp(join(dir, 'a'), quiet)
  const b = await connectQmp(join(dir, 'b'), { ...quiet, onEvent: event => events.push(event) })
  expect(await a.command('query-status', qmpTimeoutMs.blocking)).toEqual({ running: false, status: 'prelaunch' })
  expect(await b.command('query-uuid', qmpTimeoutMs.blocking)).toEqual({ UUID: uuid })
  expect(await b.command('query-name', qmpTimeoutMs.blocking)).toEqual({ name: 'probe' })
  await a.command('cont', qmpTimeoutMs.blocking)
  await a.command('stop', qmpTimeoutMs.blocking)
  await until('the other monitor sees STOP', 15_000, () => events.some(({ event }) => event === 'STOP'))
  expect(await b.command('query-status', qmpTimeoutMs.blocking)).toEqual({ running: false, status: 'paused' })
  await a.command('system_powerdown', qmpTimeoutMs.blocking)
  a.close()
  b.close()
  expect((await failure(a.command('query-status', 1_000))).code).toBe('qmp.closed')
})

test('goal: a stopped QEMU times out, its connection stays and ignores the late responses', async () => {
  const qmp = await connectQmp(join(dir, 'a'), quiet)
  expect(signalProcess(qemu, 'SIGSTOP')).toBe(true)
  const waiting = [qmp.command('query-status', 100), qmp.command('query-uuid', 150)]
  for (const command of waiting) expect((await failure(command)).code).toBe('qmp.timeout')
  expect(signalProcess(qemu, 'SIGCONT')).toBe(true)
  expect((await qmp.command('query-status', qmpTimeoutMs.blocking)).running).toBe(false)
  qmp.close()
})

test('goal: a monitor that has a client gives a second one no greeting: timeout', async () => {
  const first = await connectQmp(join(dir, 'a'), quiet)
  expect((await failure(connectQmp(join(dir, 'a'), { ...quiet, timeoutMs: 200 }))).code).toBe('qmp.timeout')
  first.close()
})

test('goal: when QEMU dies, what waits is rejected and onClose is called once', async () => {
  const reasons: string[] = []
  const qmp = await connectQmp(join(dir, 'a'), { ...quiet, onClose: reason => reasons.push(reason) })
  signalProcess(qemu, 'SIGSTOP')
  const waiting = failure(qmp.command('query-status', 10_000))
  signalProcess(qemu, 'SIGKILL')
  expect((await waiting).code).toBe('qmp.closed')
  await until('onClose', 15_000, () => reasons.length > 0)
  expect((await failure(qmp.command('query-status', 1_000))).code).toBe('qmp.closed')
  expect(reasons.length).toBe(1)
  // The socket file is still there; nobody listens.
  expect((await failure(connectQmp(join(dir, 'a'), { ...quiet, timeoutMs: 100 }))).code).toBe('qmp.closed')
})

/** A monitor with scripted responses. */
function fakeMonitor(name: string, onLine: (line: { execute: string; id: string }) => string[]) {
  let outgoing: Uint8Array = new Uint8Array(0)
  const say = (socket: Socket, text = '') => {
    outgoing = Buffer.concat([outgoing, Buffer.from(text)])
    outgoing = outgoing.subarray(Math.max(0, socket.write(outgoing)))
  }
  return Bun.listen({
    unix: join(dir, name),
    socket: {
      open: socket => say(socket, '{"QMP": {"version": {}, "capabilities": []}}\r\n'),
      drain: socket => say(socket),
      data: (socket, bytes) => {
        for (const line of bytes.toString().trim().split('\n')) say(socket, onLine(JSON.parse(line)).join('\r\n'))
      },
    },
  })
}

test('goal: responses that come twice, are refusals, of a wrong shape or no JSON hurt only their own command', async () => {
  const events: QmpEvent[] = []
  const listener = fakeMonitor('fake', ({ execute, id }) => {
    const response = (value: unknown) => JSON.stringify({ return: value, id })
    if (execute === 'query-status') return [response({ running: 'maybe' }), '']
    if (execute === 'stop') return [JSON.stringify({ error: { class: 'GenericError', desc: 'no' }, id }), '']
    if (execute === 'cont')
      return [
        'garbage',
        '{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}',
        '{"event":"RTC_CHANGE","data":{}}',
        response({}),
        '',
      ]
    return [response({}), response({}), '']
  })
  const qmp = await connectQmp(join(dir, 'fake'), { ...quiet, onEvent: event => events.push(event) })
  expect(await failure(qmp.command('query-status', 1_000))).toMatchObject({ code: 'qmp.refused' })
  expect(await failure(qmp.command('stop', 1_000))).toMatchObject({ code: 'qmp.refused', message: 'GenericError: no' })
  expect(await qmp.command('cont', 1_000)).toEqual({})
  expect(await qmp.command('quit', 1_000)).toEqual({})
  expect(events).toEqual([{ event: 'SHUTDOWN', data: { guest: true, reason: 'guest-shutdown' } }])
  const many = Array.from({ length: 40 }, () => failure(qmp.command('stop', 1_000)))
  expect((await Promise.all(many)).filter(({ message }) => message.includes('requests wait already')).length).toBe(8)
  qmp.close()
  listener.stop(true)
})

test('goal: a line over the limit ends the connection', async () => {
  const listener = fakeMonitor('long', ({ execute, id }) =>
    execute === 'cont' ? ['x'.repeat(qmpLineBytesMax + 1)] : [JSON.stringify({ return: {}, id }), ''],
  )
  const reasons: string[] = []
  const qmp = await connectQmp(join(dir, 'long'), { ...quiet, onClose: reason => reasons.push(reason) })
  expect(await failure(qmp.command('cont', 5_000))).toMatchObject({
    code: 'qmp.closed',
    message: `QEMU sent a line of more than ${qmpLineBytesMax} bytes`,
  })
  expect(reasons.length).toBe(1)
  listener.stop(true)
})

test('goal: no socket is qmp.closed at the deadline or as soon as we stop waiting; a long path is said so', async () => {
  expect((await failure(connectQmp(join(dir, 'none'), { ...quiet, timeoutMs: 60 }))).code).toBe('qmp.closed')
  const stop = new AbortController()
  const waiting = failure(connectQmp(join(dir, 'none'), { ...quiet, signal: stop.signal }))
  stop.abort()
  expect(await waiting).toMatchObject({ code: 'qmp.closed', message: expect.stringContaining('stopped waiting') })
  const long = join(dir, 'x'.repeat(108))
  expect(await failure(connectQmp(long, quiet))).toMatchObject({ code: 'host.unsupported' })
})
