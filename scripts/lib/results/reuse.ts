// How a test run uses kept results: it keeps the results of files that pass, and with --reuse it takes them.
// The unit tests always run.

import { join } from 'node:path'
import { type Run, sumTallies, type Tally, testCasesOf } from '../junit.ts'
import { PHASES, type PhaseName } from '../phases.ts'
import { KeptResults, machineSurroundings, type Surroundings, type TestKind } from './kept-results.ts'

type ReusedResult = {
  /** Its tests count as skipped. */
  readonly tally: Tally
  readonly line: string
}

type Divided = {
  readonly run: readonly string[]
  /** Null if every file runs. */
  readonly kept: ReusedResult | null
}

type Options = {
  /** Long series of cases run whole. */
  readonly isAll: boolean
  readonly isReusing: boolean
  /** The phases of the run's files. */
  readonly phases: readonly PhaseName[]
}

const imageStep = /^build the \w+ image$/

export class Reuse {
  readonly #results: KeptResults | null
  readonly #isReusing: boolean
  readonly #surroundings: Surroundings
  #images: Surroundings = {}
  #files = 0
  #tests = 0
  #oldestMs = Number.POSITIVE_INFINITY

  /** Writes nothing if there are unit tests alone: they run without root. */
  constructor(root: string, { isAll, isReusing, phases }: Options) {
    const cache = process.env.STRONGROOM_CACHE ?? '/var/cache/strongroom'
    this.#results = phases.every(phase => phase === 'unit') ? null : new KeptResults(root, join(cache, 'results'))
    this.#isReusing = isReusing
    this.#surroundings = { ...machineSurroundings(), cases: isAll ? 'all' : 'a sample' }
  }

  /** A step of the run has built something. An image's directory is named by a digest of its inputs. */
  built(step: string, output: string): void {
    if (!imageStep.test(step)) return
    this.#images = { ...this.#images, [step]: output.trim().split('\n').at(-1) ?? '' }
  }

  divide(phase: PhaseName, files: readonly string[]): Divided {
    const results = this.#results
    if (!this.#isReusing || phase === 'unit' || results === null) return { run: files, kept: null }
    const kind = this.#kindOf(phase)
    const found = files.map(file => ({ file, result: results.find(file, kind) }))
    const kept = found.flatMap(({ result }) => (result === null ? [] : [result]))
    if (kept.length === 0) return { run: files, kept: null }
    const skipped = kept.reduce((sum, result) => sum + result.passed + result.skipped, 0)
    const oldestMs = Math.min(...kept.map(({ atMs }) => atMs))
    this.#files += kept.length
    this.#tests += skipped
    this.#oldestMs = Math.min(this.#oldestMs, oldestMs)
    const line = `not run again: ${kept.length} files, ${skipped} tests; they passed here with the same inputs since ${dateOf(oldestMs)}`
    const run = found.filter(({ result }) => result === null).map(({ file }) => file)
    return { run, kept: { tally: { ...sumTallies([]), skipped }, line } }
  }

  /** All failures of `run` belong to the files `failed`, which are not kept. */
  keep(phase: PhaseName, { files, report }: Run, failed: readonly string[]): void {
    if (phase === 'unit' || report === null) return
    const cases = testCasesOf(report)
    const good = files.filter(file => !failed.includes(file))
    const results = good.map(file => {
      const own = cases.filter(test => test.file === file)
      const passed = own.filter(({ outcome }) => outcome === 'passed').length
      return { file, passed, skipped: own.length - passed }
    })
    this.#results?.keep(
      results.filter(({ passed }) => passed > 0),
      this.#kindOf(phase),
    )
  }

  /** Lines for the end of the run. */
  summary(): string[] {
    if (this.#files === 0) return []
    return [
      `not run again: ${this.#tests} tests of ${this.#files} files, which passed on this machine with the same inputs since ${dateOf(this.#oldestMs)}`,
    ]
  }

  #kindOf(phase: PhaseName): TestKind {
    const { needsBuild } = PHASES[phase]
    return { needsBuild, surroundings: needsBuild ? { ...this.#surroundings, ...this.#images } : this.#surroundings }
  }
}

function dateOf(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 16).replace('T', ' ')} UTC`
}
