// Tries the points of a scenario: kills the daemon there, starts it again, waits until all has settled, and looks at
// what is left. Effects: an appliance, its death.

import type { Appliance } from '../rigs/appliance.ts'
import { databaseFindings, filesOf, leaksOf, strayFiles } from './audit.ts'
import { choosePoints } from './choose.plan.ts'
import { contextOf, placeOf } from './effects.plan.ts'
import type { Findings, Scenario, Stage } from './scenario.ts'
import { type KillAfter, type Tracing, trace } from './tracing.ts'

/** One crash, and what came of it. */
export type PointResult = {
  readonly scenario: string
  /** How many effects were let through. */
  readonly point: number
  /** The call that was not made any more; null if the scenario was over before it came to this point. */
  readonly injected: string | null
  readonly convergedMs: number | null
  readonly findings: Findings
}

export type SuiteOptions = {
  readonly points: number | 'all'
  readonly seed: number
  /** Just this one. */
  readonly only: number | null
  /** No further point is begun once this says so. */
  readonly isOver: () => boolean
  readonly onTotal: (total: number, chosen: number) => void
  readonly onResult: (result: PointResult) => void
  /** More is a finding. The aim, unless given. */
  readonly convergeMsMax?: number
}

/** The aim for the time from the start of the daemon until nothing has to be done any more. */
export const convergeMsAim = 5_000
/** Long enough to distinguish late from never. */
const settleMs = 60_000
const runMsDefault = 60_000
const pollMs = 50

/** Tries the points of one scenario, one after another. */
export async function runScenario(scenario: Scenario, options: SuiteOptions): Promise<void> {
  let open: Opened | null = null
  try {
    open = await openScenario(scenario)
    const { only, points, seed, convergeMsMax = convergeMsAim } = options
    const isLate = ({ convergedMs }: PointResult) => (convergedMs ?? 0) > convergeMsMax
    const chosen = only === null ? choosePoints(open.effects, points, seed) : [only]
    options.onTotal(open.effects.length, chosen.length)
    for (const point of chosen) {
      if (options.isOver()) return
      open ??= await openScenario(scenario)
      let result = await runPoint(scenario, open, point)
      // Once more, as the machine may have been busy with something else.
      if (result.findings.length === 0 && isLate(result)) result = await runPoint(scenario, open, point)
      if (isLate(result))
        result = { ...result, findings: [...result.findings, `converged in more than ${convergeMsMax} ms, twice`] }
      options.onResult(result)
      // A finding of this point must not be found again at the next.
      if (result.findings.length === 0) continue
      await open.stage[Symbol.asyncDispose]()
      open = null
    }
  } finally {
    await open?.stage[Symbol.asyncDispose]()
  }
}

type Opened = {
  readonly stage: Stage
  /** Effects of a run without a crash. */
  readonly effects: readonly string[]
  /** Files that it leaves. */
  readonly usual: ReadonlySet<string>
}

/** Opens the scenario and runs it once without a crash. Throws on a finding there: crashes would prove nothing. */
async function openScenario(scenario: Scenario): Promise<Opened> {
  const stage = await scenario.open()
  try {
    const { effects } = await crash(scenario, stage, 'all')
    await settle(stage)
    const findings = [...(await stage.audit()), ...(await stage.clear()), ...databaseFindings(stage.appliance)]
    if (findings.length > 0) throw new Error(`${scenario.name} without a crash: ${findings.join('; ')}`)
    return { stage, effects, usual: filesOf(stage.appliance) }
  } catch (error) {
    await stage[Symbol.asyncDispose]()
    throw error
  }
}

async function runPoint(scenario: Scenario, { stage, usual }: Opened, point: number): Promise<PointResult> {
  const { appliance } = stage
  let injected: string | null = null
  let convergedMs: number | null = null
  try {
    const { effects, isKilled } = await crash(scenario, stage, point)
    if (isKilled) {
      injected = whereOf(effects, appliance.directory)
      convergedMs = await restart(stage)
    } else {
      await settle(stage)
    }
    const promises = [...(await stage.audit()), ...databaseFindings(appliance)]
    const left = [...(await stage.clear()), ...strayFiles(appliance, usual)]
    return { scenario: scenario.name, point, injected, convergedMs, findings: [...promises, ...left] }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    return { scenario: scenario.name, point, injected, convergedMs, findings: [message, ...logOf(appliance)] }
  }
}

/** The call that was not made, and after what. */
function whereOf(effects: readonly string[], directory: string): string {
  const before = contextOf(effects)
  const place = placeOf(effects.at(-1) ?? '', directory)
  return before === null ? place : `${place}, after ${placeOf(before, directory)}`
}

/** One run up to the crash, or to its end. Throws what the run throws while the daemon lives. */
async function crash(
  { tracedFrom, runMs = runMsDefault }: Scenario,
  stage: Stage,
  killAfter: KillAfter,
): Promise<{ effects: readonly string[]; isKilled: boolean }> {
  const { appliance } = stage
  await stage.prepare()
  let tracing: Tracing | null = null
  let isKilled = false
  const dead = new AbortController()
  const follow = async (pid: number, isHeld: boolean) => {
    const begun = await trace(pid, { killAfter, isHeld })
    tracing = begun
    return begun
  }
  const held = Promise.withResolvers<Tracing>()
  const run = async () => {
    if (tracedFrom === 'start') {
      await appliance.stop()
      await appliance.start(async pid => held.resolve(await follow(pid, true)))
    }
    await stage.run(dead.signal)
  }
  if (tracedFrom === 'run') held.resolve(await follow(appliance.pid(), false))
  try {
    const finished = run()
    // A failure of the run after the daemon's death is its effect.
    finished.catch(() => {})
    const killed = held.promise.then(async begun => {
      await begun.killed
      isKilled = true
      dead.abort(new Error('the daemon is dead'))
    })
    await within(runMs, 'the run is over', Promise.race([finished, killed, finished.catch(() => grace(killed))]))
    if (isKilled)
      await within(
        runMsDefault,
        'the run has met the death of the daemon',
        finished.catch(() => {}),
      )
    else await finished
  } finally {
    await (tracing as Tracing | null)?.end()
    if (isKilled) await appliance.kill()
  }
  return { effects: (tracing as Tracing | null)?.effects ?? [], isKilled }
}

/** A client may notice the death of the daemon before the tracer reports it. */
async function grace(killed: Promise<void>): Promise<void> {
  await Promise.race([killed, Bun.sleep(1_000)])
}

/** Starts the daemon that was killed. Returns the time until all has settled. */
async function restart(stage: Stage): Promise<number> {
  const startedMs = performance.now()
  await stage.appliance.start()
  await settle(stage)
  return performance.now() - startedMs
}

/** Waits until nothing is to be done any more. Throws what is left after a long time. */
async function settle({ appliance, unsettled }: Stage): Promise<void> {
  const endMs = performance.now() + settleMs
  for (;;) {
    const findings = [...(await unsettled()), ...(await leaksOf(appliance))]
    if (findings.length === 0) return
    if (performance.now() > endMs) throw new Error(`not settled after ${settleMs} ms: ${findings.join('; ')}`)
    await Bun.sleep(pollMs)
  }
}

async function within<T>(timeoutMs: number, what: string, promise: Promise<T>): Promise<T> {
  let timer: Timer | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${timeoutMs} ms: ${what}`)), timeoutMs)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** The log in one line, for people. */
function logOf(appliance: Appliance): string[] {
  const lines = appliance.log().trim().split('\n')
  return lines
    .filter(line => /"level":"(?:warn|error)"/.test(line))
    .slice(-logLineCount)
    .map(line => line.slice(0, logLineChars))
}

const logLineCount = 3
const logLineChars = 300
