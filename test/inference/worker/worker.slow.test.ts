// Goal: the worker is admitted before it starts, watched while it runs, restarted when it ends, and never blocks a
// caller.

import { describe, expect, test } from 'bun:test'
import { readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { toHex } from '../../../src/base/bytes.ts'
import { Fault } from '../../../src/base/fault.ts'
import type { WorkloadCandidate } from '../../../src/contract/vm/allowlist.ts'
import { workerCommand } from '../../../src/inference/worker/command.plan.ts'
import {
  admitOnce,
  hastyTiming,
  modelDigest,
  settings,
  sha256,
  standIn,
  until,
  usualTiming,
  workerBench,
} from '../../rigs/gateway/worker-bench.ts'

const post = (unix: string) => fetch('http://built-in/v1/completions', { unix, method: 'POST', body: '{}' })

describe('start', () => {
  // Goal: ready means that it answers on the socket the router is given.
  test('a healthy worker becomes ready', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand)
    bench.worker.start()
    expect(await bench.worker.settled).toEqual({ kind: 'ready', pid: 1001 })
    const { upstream } = bench.worker
    expect(upstream).toMatchObject({ name: 'built-in', models: ['tiny'], concurrencyMax: 4 })
    expect(upstream.baseUrl).toEndWith('/v1')
    expect((await post(upstream.unix)).status).toBe(200)
    expect(stand.started[0]?.command).toEqual(workerCommand(settings(bench.dir), modelDigest))
  })

  // Goal: a worker that loads is waited for, not restarted.
  test('loading is not ready', async () => {
    const stand = standIn([{ kind: 'loading' }])
    await using bench = workerBench(stand)
    bench.worker.start()
    await until(() => stand.started.length === 1, 'the start')
    expect((await post(bench.worker.upstream.unix)).status).toBe(503)
    expect(bench.worker.state).toEqual({ kind: 'starting' })
    stand.become('healthy')
    expect(await bench.worker.settled).toMatchObject({ kind: 'ready' })
    expect(stand.started.length).toBe(1)
  })

  for (const kind of ['loading', 'mute'] as const) {
    test(`goal: a worker that stays ${kind} is killed when its time is over`, async () => {
      const stand = standIn([{ kind }, { kind: 'healthy' }])
      await using bench = workerBench(stand, {
        timing: hastyTiming,
        settings: { ...settings('/'), model_file: '/etc/passwd', start_timeout_ms: 60 },
      })
      bench.worker.start()
      const state = await bench.worker.settled
      expect(state).toMatchObject({ kind: 'failed', message: expect.stringContaining('not healthy within 60 ms') })
      await until(() => bench.worker.state.kind === 'ready', 'the second life')
      expect(stand.killed()).toBeGreaterThanOrEqual(1)
    })
  }

  // Goal: the operator reads the reason in the log at once; clients are refused at once; the file may come later.
  test('a missing model file is said, and tried again', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand)
    const path = join(bench.dir, 'model.gguf')
    rmSync(path)
    bench.worker.start()
    expect(await bench.worker.settled).toEqual({ kind: 'failed', message: `model ${path}: no such file` })
    expect(bench.logged.join('\n')).toContain(`model ${path}: no such file`)
    expect(stand.started).toEqual([])
    expect(await refusal(bench.worker.upstream.unix)).toBe('refused')
    writeFileSync(path, 'model')
    await until(() => bench.worker.state.kind === 'ready', 'the worker with its model')
  })

  // Goal: the log of a killed worker names the memory limit that may have killed it.
  test('the end of a bounded worker names its bound', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand, {
      settings: { ...settings('/'), model_file: '/etc/passwd', memory_mib_max: 77 },
      admit: admitOnce(),
    })
    bench.worker.start()
    await bench.worker.settled
    stand.exit(137)
    await until(() => bench.worker.state.kind === 'refused', 'the end')
    expect(bench.logged.join('\n')).toContain(
      'ended with exit code 137 (its memory is bounded to 77 MiB by memory_mib_max)',
    )
  })

  // Goal: what the process itself says about its end is in the message, bounded.
  test('a worker that ends tells why, in a few lines', async () => {
    const lines = Array.from({ length: 100 }, (_, at) => `line ${at}`)
    const stand = standIn([{ kind: 'exits', lines: [...lines, 'failed to load model'] }])
    await using bench = workerBench(stand)
    bench.worker.start()
    const state = await bench.worker.settled
    const message = state.kind === 'failed' ? state.message : ''
    expect(message).toContain('exit code 1:\n')
    expect(message).toContain('failed to load model')
    expect(message.split('\n').length).toBeLessThan(20)
    expect(await refusal(bench.worker.upstream.unix)).toBe('refused')
  })

  for (const what of ['root', 'user'] as const) {
    test(`goal: no ${what} is a message, not an exception`, async () => {
      const stand = standIn([{ kind: 'healthy' }])
      const fail = () => {
        throw new Fault('host.unsupported', `no ${what} here`)
      }
      const deps = what === 'user' ? { user: fail } : { root: async () => fail() }
      await using bench = workerBench(stand, deps)
      bench.worker.start()
      expect(await bench.worker.settled).toEqual({ kind: 'failed', message: `no ${what} here` })
      expect(stand.started).toEqual([])
    })
  }
})

describe('admission', () => {
  // Goal: what the allowlist refuses never starts, not even once.
  test('a refused worker does not start and is not tried again', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    const asked: WorkloadCandidate[] = []
    await using bench = workerBench(stand, {
      admit: candidate => {
        asked.push(candidate)
        return { ok: false, fault: new Fault('image.invalid', 'not on the list') }
      },
    })
    bench.worker.start()
    expect(await bench.worker.settled).toEqual({ kind: 'refused', message: 'not on the list' })
    expect(asked).toEqual([
      {
        workload: 'inference-worker',
        imageDigest: new Uint8Array(32).fill(1),
        command: workerCommand(settings(bench.dir), modelDigest),
      },
    ])
    await bench.worker.stop()
    expect(stand.started).toEqual([])
    expect(asked.length).toBe(1)
  })

  // Goal: every life is admitted, not only the first.
  test('each restart is admitted anew', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    let admissions = 0
    await using bench = workerBench(stand, {
      admit: () => {
        admissions += 1
        return admissions < 3 ? { ok: true } : { ok: false, fault: new Fault('image.invalid', 'taken off the list') }
      },
    })
    bench.worker.start()
    await bench.worker.settled
    stand.exit(1)
    await until(() => stand.started.length === 2 && bench.worker.state.kind === 'ready', 'the second life')
    stand.exit(1)
    await until(() => bench.worker.state.kind === 'refused', 'the refusal')
    expect(stand.started.length).toBe(2)
  })
})

describe('supervision', () => {
  // Goal: a crash costs a pause, not the service.
  test('a worker that ends is started again, later each time', async () => {
    const stand = standIn([{ kind: 'exits', lines: [] }, { kind: 'exits', lines: [] }, { kind: 'healthy' }])
    await using bench = workerBench(stand)
    bench.worker.start()
    await until(() => bench.worker.state.kind === 'ready', 'the third life')
    expect(bench.pausesMs).toEqual([500, 1000])
    stand.exit(139)
    await until(() => stand.started.length === 4 && bench.worker.state.kind === 'ready', 'the fourth life')
    expect(bench.pausesMs).toEqual([500, 1000, 2000])
  })

  // Goal: a worker that has long run well starts again soon after its first failure.
  test('a long good life forgives earlier failures', async () => {
    const stand = standIn([{ kind: 'exits', lines: [] }, { kind: 'exits', lines: [] }, { kind: 'healthy' }])
    await using bench = workerBench(stand, { timing: { ...usualTiming, stableMs: 0 } })
    bench.worker.start()
    await until(() => bench.worker.state.kind === 'ready', 'the third life')
    stand.exit(139)
    await until(() => stand.started.length === 4, 'the fourth life')
    expect(bench.pausesMs).toEqual([500, 1000, 500])
  })

  // Goal: a worker that hangs is killed and restarted.
  test('a worker that stops answering is killed and started again', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand, { timing: { ...usualTiming, healthTimeoutMs: 1_000 } })
    bench.worker.start()
    await bench.worker.settled
    const killed = stand.killed()
    stand.become('mute')
    await until(() => stand.started.length === 2 && bench.worker.state.kind === 'ready', 'the second life')
    expect(stand.killed()).toBe(killed + 1)
    expect(bench.logged.join('\n')).toContain('failed 2 health checks in a row')
  })

  // Goal: a worker that was taken over cannot turn our requests to another socket of this host.
  test('a link in the place of the socket is not followed', async () => {
    const stand = standIn([{ kind: 'loading' }, { kind: 'healthy' }])
    await using bench = workerBench(stand)
    const elsewhere = join(bench.dir, 'elsewhere.sock')
    const other = Bun.serve({ unix: elsewhere, fetch: () => new Response('other') })
    try {
      bench.worker.start()
      await until(() => stand.started.length === 1, 'the start')
      rmSync(bench.worker.upstream.unix)
      symlinkSync(elsewhere, bench.worker.upstream.unix)
      expect(await bench.worker.settled).toEqual({
        kind: 'failed',
        message: `${bench.worker.upstream.unix} is no socket`,
      })
      await until(() => bench.worker.state.kind === 'ready', 'the second life')
      expect(await (await post(bench.worker.upstream.unix)).text()).toBe('healthy')
    } finally {
      await other.stop(true)
    }
  })

  // Goal: a worker that was taken over cannot have this host ask others on its behalf.
  test('a health check follows no redirect out of the socket', async () => {
    const asked: string[] = []
    const other = Bun.serve({
      port: 0,
      hostname: '127.0.0.1',
      fetch: request => {
        asked.push(request.url)
        return new Response('healthy')
      },
    })
    try {
      const stand = standIn([{ kind: 'redirects', location: `${other.url}` }, { kind: 'healthy' }])
      await using bench = workerBench(stand, {
        settings: { ...settings('/'), model_file: '/etc/passwd', start_timeout_ms: 60 },
      })
      bench.worker.start()
      expect(await bench.worker.settled).toMatchObject({ message: expect.stringContaining('not healthy') })
      expect(asked).toEqual([])
    } finally {
      await other.stop(true)
    }
  })

  // Goal: what a ready worker prints may quote a prompt, and must not come into our log.
  test('output of a ready worker is not kept', async () => {
    const stand = standIn([{ kind: 'healthy' }, { kind: 'healthy' }])
    await using bench = workerBench(stand)
    bench.worker.start()
    await bench.worker.settled
    stand.print('cannot parse: my secret prompt')
    stand.exit(1)
    await until(() => stand.started.length === 2, 'the second life')
    expect(bench.logged.join('\n')).toContain('exit code 1')
    expect(bench.logged.join('\n')).not.toContain('secret')
  })
})

describe('the golden question', () => {
  const known = {
    name: 'tiny',
    fileSha256: toHex(modelDigest),
    golden: { prompt: '1, 2, 3,', maxTokens: 4, expected: ' 4, 5' },
  }
  const right = () => Response.json({ content: ' 4, 5, 6' })
  const wrong = () => Response.json({ content: 'GGGG' })

  // Goal: no client gets an answer of a worker before it has given the right one to us; every life is asked.
  test('a right answer lets it serve, in each life', async () => {
    let asked = 0
    const answer = () => {
      asked += 1
      expect(bench.worker.state.kind).toBe('starting')
      return right()
    }
    const stand = standIn([{ kind: 'healthy', answer }])
    await using bench = workerBench(stand, { openModel: async () => known })
    bench.worker.start()
    expect(await bench.worker.settled).toMatchObject({ kind: 'ready' })
    stand.exit(1)
    await until(() => stand.started.length === 2 && bench.worker.state.kind === 'ready', 'the second life')
    expect(asked).toBe(2)
  })

  // Goal: garbage is not served; the log says which model and which answers, and no text.
  test('a wrong answer kills it, and it is tried again later and later', async () => {
    const stand = standIn([
      { kind: 'healthy', answer: wrong },
      { kind: 'healthy', answer: wrong },
      { kind: 'healthy', answer: right },
    ])
    let readies = 0
    const onReady = () => {
      readies += 1
    }
    await using bench = workerBench(stand, { openModel: async () => known, onReady })
    bench.worker.start()
    const state = await bench.worker.settled
    const message = state.kind === 'failed' ? state.message : ''
    expect(message).toStartWith('model tiny: golden answer: ')
    expect(message).toContain(toHex(sha256(' 4, 5')))
    expect(message).toContain(toHex(sha256('GGGG')))
    await until(() => bench.worker.state.kind === 'ready', 'the third life')
    expect([stand.killed(), bench.pausesMs, readies]).toEqual([2, [500, 1000], 1])
    expect(bench.logged.join('\n')).toContain(toHex(sha256('GGGG')))
    expect(bench.logged.join('\n')).not.toMatch(/GGGG|4, 5/)
  })

  test('goal: a worker that is healthy and never answers is killed when its time is over', async () => {
    const stand = standIn([
      { kind: 'healthy', answer: () => new Promise(() => {}) },
      { kind: 'healthy', answer: right },
    ])
    await using bench = workerBench(stand, {
      settings: { ...settings('/'), model_file: '/etc/passwd', start_timeout_ms: 1_000 },
      openModel: async () => ({ ...known, fileSha256: toHex(sha256(readFileSync('/etc/passwd', 'utf8'))) }),
    })
    bench.worker.start()
    expect(await bench.worker.settled).toMatchObject({ message: 'model tiny: golden answer: none within 1000 ms' })
    await until(() => bench.worker.state.kind === 'ready', 'the second life')
  })

  test('goal: stop does not wait for an answer', async () => {
    const stand = standIn([{ kind: 'healthy', answer: () => new Promise(() => {}) }])
    await using bench = workerBench(stand, { openModel: async () => known })
    bench.worker.start()
    await until(() => stand.started.length === 1, 'the start')
    await bench.worker.stop()
    expect([bench.worker.state, stand.killed()]).toEqual([{ kind: 'stopped' }, 1])
  })

  // Goal: the model that is attested by its disk is the one that is served.
  test('another file than that of the disk does not start', async () => {
    const stand = standIn([{ kind: 'healthy', answer: right }])
    await using bench = workerBench(stand, { openModel: async () => ({ ...known, fileSha256: 'ab'.repeat(32) }) })
    bench.worker.start()
    const message = `SHA-256 ${toHex(modelDigest)}; the file of model tiny has ${'ab'.repeat(32)}`
    expect(await bench.worker.settled).toMatchObject({ kind: 'failed', message: expect.stringContaining(message) })
    expect(stand.started).toEqual([])
  })

  // Goal: a disk that cannot be opened stops the worker, says why, and is tried again.
  test('a disk that cannot be opened is a message, not an exception', async () => {
    const stand = standIn([{ kind: 'healthy', answer: right }])
    let isBad = true
    const openModel = async () => {
      if (isBad) throw new Fault('host.command_failed', 'open the disk of model tiny: mount: EIO')
      return known
    }
    await using bench = workerBench(stand, { openModel })
    bench.worker.start()
    expect(await bench.worker.settled).toEqual({ kind: 'failed', message: 'open the disk of model tiny: mount: EIO' })
    isBad = false
    await until(() => bench.worker.state.kind === 'ready', 'the worker with its disk')
  })
})

describe('stop', () => {
  // Goal: after stop there is no process, no socket and no restart, whenever it comes.
  for (const kind of ['healthy', 'loading', 'mute', 'exits'] as const) {
    test(`goal: stop ends a worker that is ${kind}`, async () => {
      const stand = standIn([kind === 'exits' ? { kind, lines: [] } : { kind }])
      await using bench = workerBench(stand)
      bench.worker.start()
      await until(() => stand.started.length > 0, 'a start')
      if (kind === 'healthy') await bench.worker.settled
      await bench.worker.stop()
      const lives = stand.started.length
      expect(bench.worker.state).toEqual({ kind: 'stopped' })
      expect(stand.killed()).toBe(lives)
      expect(await refusal(bench.worker.upstream.unix)).toBe('refused')
      bench.worker.start()
      await bench.worker.stop()
      expect(stand.started.length).toBe(lives)
    })
  }

  // Goal: `settled` resolves also when the worker is stopped before it is ready.
  test('stop before start settles', async () => {
    const stand = standIn([{ kind: 'healthy' }])
    await using bench = workerBench(stand)
    await bench.worker.stop()
    expect(await bench.worker.settled).toEqual({ kind: 'stopped' })
    expect(stand.started).toEqual([])
  })
})

/** A caller's immediate result while there is no worker. */
async function refusal(unix: string): Promise<'refused' | number> {
  try {
    return (await fetch('http://built-in/health', { unix, signal: AbortSignal.timeout(5_000) })).status
  } catch (error) {
    if (error instanceof Error && error.name === 'TimeoutError') throw error
    return 'refused'
  }
}
