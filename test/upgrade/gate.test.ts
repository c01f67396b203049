// Goal: on trial nothing is accepted until the acceptance is on the disk, and nothing else opens the gate.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { UnavailableFault } from '../../src/http/limited.ts'
import { createHttp } from '../../src/instances/http/server.ts'
import { trialGate } from '../../src/upgrade/gate.ts'
import { readRecord, upgradePaths, writeRecord } from '../../src/upgrade/record.ts'
import { PHASES, type Phase } from '../../src/upgrade/upgrade.machine.ts'
import { faultOf } from '../rigs/fault-of.ts'
import { sampleRecord } from '../rigs/upgrade/record.ts'

let stateDir: string
const paths = () => upgradePaths(stateDir)
const be = (phase: Phase) => writeRecord(paths(), sampleRecord(stateDir, { phase }))

beforeEach(() => {
  stateDir = mkdtempSync(join(tmpdir(), 'strongroom-gate-'))
  mkdirSync(paths().directory)
})

afterEach(() => rmSync(stateDir, { recursive: true }))

test('goal: every phase', () => {
  const open = PHASES.filter(phase => {
    be(phase)
    return trialGate(stateDir, systemClock).isOpen()
  })
  expect(open).toEqual(['accepted'])
})

test('goal: without a record there is no trial; a damaged one opens nothing', async () => {
  expect(faultOf(() => trialGate(stateDir, systemClock))).toMatchObject({ code: 'conflict' })
  be('trial')
  const gate = trialGate(stateDir, systemClock)
  rmSync(paths().record)
  expect(gate.isOpen()).toBe(false)
  await Bun.write(paths().record, '{"phase":"accepted"')
  expect(faultOf(() => gate.admitChange())).toMatchObject({ code: 'internal' })
})

test('goal: it opens once the record says so, and stays open when the record goes', async () => {
  be('trial')
  const gate = trialGate(stateDir, systemClock)
  const order: string[] = []
  const opened = gate.whenOpen(() => order.push('open'), new AbortController().signal)
  expect(faultOf(() => gate.admitChange())).toBeInstanceOf(UnavailableFault)
  order.push('accepted')
  be('accepted')
  await opened
  expect(order).toEqual(['accepted', 'open'])
  gate.admitChange()
  rmSync(paths().record)
  gate.admitChange()
  expect(readRecord(paths())).toBe(null)
})

test('goal: a daemon that stops on trial begins nothing', async () => {
  be('trial')
  const stopping = new AbortController()
  const opened = trialGate(stateDir, systemClock).whenOpen(() => {
    throw new Error('begun')
  }, stopping.signal)
  stopping.abort()
  await opened
})

test('goal: service A answers a change with 503 and Retry-After before it looks at the key or the body; reads go on', async () => {
  be('trial')
  const gate = trialGate(stateDir, systemClock)
  const fetch = createHttp({
    log: silentLogger,
    clock: systemClock,
    random: bytes => new Uint8Array(bytes),
    limits: { bytesMax: 1, timeoutMs: 1, depthMax: 1 },
    admitChange: gate.admitChange,
    strangers: { level: level => level },
    rate: { take: () => {} },
    openapi: {},
    published: () => '{}',
    authenticate: () => {
      throw new Error('nobody is asked for a key')
    },
    directory: { retryUnknownKey: async work => await work() },
    peers: {} as never,
    service: {} as never,
    attestations: {} as never,
    snapshots: {} as never,
  })
  const send = (method: string, path: string) =>
    fetch(new Request(`https://a.test${path}`, { method }), { address: () => '' })
  for (const [method, path] of [
    ['POST', '/v1/instances'],
    ['DELETE', '/v1/instances/one'],
  ] as const) {
    const response = await send(method, path)
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '5'])
    expect(await response.json()).toMatchObject({
      error: { code: 'internal_error', message: expect.stringContaining('Nothing was changed') as unknown },
    })
  }
  expect((await send('GET', '/openapi.json')).status).toBe(200)
  expect((await send('OPTIONS', '/v1/instances')).status).toBe(204)
})
