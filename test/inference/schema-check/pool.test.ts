// Scheduling of schema jobs: fairness between keys, bounds, and the death of a child. The children are fakes that end
// on request.

import { describe, expect, test } from 'bun:test'
import { createManualClock } from '../../../scripts/rigs/clock.ts'
import { createDeadlines } from '../../../src/base/work/deadlines.ts'
import { ChildError, type SchemaChild } from '../../../src/inference/schema-check/child.ts'
import { SchemaPool } from '../../../src/inference/schema-check/pool.ts'
import type { Reply } from '../../../src/inference/schema-check/wire.ts'

type Running = {
  readonly schema: string
  readonly end: (reply?: Reply) => void
  readonly fail: (error: ChildError) => void
}

function setUp() {
  const clock = createManualClock()
  const running: Running[] = []
  let started = 0
  const startChild = async (): Promise<SchemaChild> => {
    started += 1
    let isAlive = true
    return {
      isAlive: () => isAlive,
      kill: () => {
        isAlive = false
      },
      run: ({ schema }) => {
        const { promise, resolve, reject } = Promise.withResolvers<Reply>()
        const leave = () => void running.splice(running.indexOf(job), 1)
        const job: Running = {
          schema,
          end: (reply = { verdict: 'valid' }) => {
            leave()
            resolve(reply)
          },
          fail: error => {
            leave()
            reject(error)
          },
        }
        running.push(job)
        return promise
      },
    }
  }
  const pool = new SchemaPool({ startChild, clock, deadlines: createDeadlines(clock) })
  const run = (key: string, schema: string, more: { isUrgent?: boolean; signal?: AbortSignal } = {}) => {
    const result = pool.run({
      key,
      job: { owner: '', scope: '', schema, contents: [] },
      isUrgent: more.isUrgent ?? false,
      signal: more.signal ?? new AbortController().signal,
    })
    result.catch(() => {})
    return result
  }
  return { clock, running, pool, run, started: () => started, schemas: () => running.map(running => running.schema) }
}

const settled = async () => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve()
}

describe('SchemaPool', () => {
  // Goal: 100 jobs of one key hold one child, and another key's job starts immediately on the other; of three keys the
  // least used is next.
  test('fair between keys', async () => {
    const { clock, running, run, schemas, started } = setUp()
    const hostile = Array.from({ length: 64 }, (_, at) => run('hostile', `h${at}`))
    await settled()
    expect([schemas(), started()]).toEqual([['h0'], 1])
    const honest = run('honest', 'a')
    await settled()
    expect([schemas(), started()]).toEqual([['h0', 'a'], 2])
    running[1]?.end()
    expect(await honest).toEqual({ verdict: 'valid' })
    // A second hostile key takes the second child; then both children are busy for two seconds.
    void run('other', 'o0')
    void run('other', 'o1')
    await settled()
    const next = run('honest', 'b')
    await settled()
    expect(schemas()).toEqual(['h0', 'o0'])
    await clock.elapse(2_000)
    running[0]?.fail(new ChildError('too_slow'))
    await settled()
    // Not h1: its key has used two seconds.
    expect(schemas()).toEqual(['o0', 'b'])
    expect(hostile[0]).rejects.toThrow('too_slow')
    running[1]?.end()
    expect(await next).toEqual({ verdict: 'valid' })
    await settled()
    expect([schemas(), started()]).toEqual([['o0', 'h1'], 3])
  })

  // Goal: checks go before the key's schemas, in their order.
  test('urgent first', async () => {
    const { running, run, schemas } = setUp()
    for (const schema of ['a', 'b']) void run('k', schema)
    for (const schema of ['u', 'v']) void run('k', schema, { isUrgent: true })
    const order: string[] = []
    for (let at = 0; at < 4; at += 1) {
      await settled()
      order.push(...schemas())
      running[0]?.end()
    }
    expect(order).toEqual(['a', 'u', 'v', 'b'])
  })

  // Goal: queue length and waiting time are bounded, per key and in all; the key with the most waiting gives way.
  test('bounds', async () => {
    const { clock, run, pool } = setUp()
    const first = Array.from({ length: 66 }, (_, at) => run('k0', `${at}`))
    await expect(first[65]).rejects.toThrow('Too many schemas')
    for (let key = 1; key < 9; key += 1) for (let at = 0; at < 63; at += 1) void run(`k${key}`, `${at}`)
    const urgent = run('k0', 'u', { isUrgent: true })
    const late = run('late', 'x')
    await expect(first[64]).rejects.toThrow('Too many schemas')
    await clock.elapse(10_000)
    await expect(first[63]).rejects.toThrow('Too many schemas')
    await expect(late).rejects.toThrow('Too many schemas')
    await clock.elapse(20_000)
    await expect(urgent).rejects.toThrow('Too many schemas')
    pool.close()
  })

  // Goal: a client that leaves takes its waiting job with it; a closed pool refuses and forgets.
  test('leaving and closing', async () => {
    const { running, run, schemas, pool } = setUp()
    const leaving = new AbortController()
    void run('k', 'a')
    const gone = run('k', 'b', { signal: leaving.signal })
    const waiting = run('k', 'c')
    leaving.abort(new Error('left'))
    await expect(gone).rejects.toThrow('left')
    running[0]?.end()
    await settled()
    expect(schemas()).toEqual(['c'])
    const last = run('k', 'd')
    pool.close()
    await expect(last).rejects.toThrow('lost')
    await expect(run('k', 'e')).rejects.toThrow('lost')
    running[0]?.fail(new ChildError('lost'))
    await expect(waiting).rejects.toThrow('lost')
  })

  // Goal: a child that has failed is not used again; the next job gets a new one.
  test('replacement', async () => {
    const { running, run, started } = setUp()
    const dead = run('k', 'a')
    await settled()
    running[0]?.fail(new ChildError('too_much_memory'))
    await expect(dead).rejects.toThrow('too_much_memory')
    const next = run('k', 'b')
    await settled()
    running[0]?.end()
    expect([await next, started()]).toEqual([{ verdict: 'valid' }, 2])
  })
})
