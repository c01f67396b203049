// Runs the programs of a toolchain on the source of a project. Effects: programs, directories on scratch.

import { runProgram } from './confined/program.ts'
import type { Bind } from './confined/root.plan.ts'
import { boundsOf, type Phase, places, uids } from './phase.ts'
import type { Project } from './toolchain.ts'
import { makeDir } from './workspace.ts'

const answerBytesMax = 64 * 1024 * 1024

type SandboxProgram = {
  /** One word, different for each program of a build. */
  readonly name: string
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string>>
  /** Binds after the source. */
  readonly binds: readonly Bind[]
  readonly step: 'fetch' | 'build'
  /** Logs the program's stdout. If absent, stdout is returned. */
  readonly logsOutput?: true
}

type SandboxOptions = {
  readonly network?: boolean
  readonly uid?: number
  /** The directory that serves as the source for this program. Default: the source itself, read-only. */
  readonly source?: Pick<Bind, 'from' | 'writable'>
}

/** Returns the path of the project in a sandbox. */
export const projectPlace = ({ dir }: Project) => (dir === '' ? places.source : `${places.source}/${dir}`)

export class Sandbox {
  readonly #phase: Phase
  readonly #project: Project
  readonly #root: string
  readonly #homes: readonly string[]

  /** `homes`: directories that each program gets, empty and only for itself. */
  constructor(phase: Phase, project: Project, root: string, homes: readonly string[] = []) {
    this.#phase = phase
    this.#project = project
    this.#root = root
    this.#homes = [places.home, ...homes, places.tmp]
  }

  /** Returns the exit code and the output. Failures: those of runProgram. */
  async run(program: SandboxProgram, options: SandboxOptions = {}): Promise<{ code: number; stdout: string }> {
    const { name, argv, env, binds, step } = program
    const { network = false, uid = uids.build, source = { from: this.#root, writable: false } } = options
    const { site, job, order, tools, workDir } = this.#phase
    const { limits } = order
    const root = makeDir(`${workDir}/${name}`, uid)
    const own = (to: string, at: number): Bind => ({ from: makeDir(`${root}/${at}`, uid), to, writable: true })
    const answer: Uint8Array[] = []
    const isAnswer = program.logsOutput !== true
    const code = await runProgram(site, {
      name,
      bounds: {
        ...boundsOf(this.#phase, step === 'build' ? limits.buildSeconds : limits.fetchSeconds),
        ...(network ? { diskBytes: limits.fetchBytes } : {}),
        ...(isAnswer ? { answerBytes: answerBytesMax } : {}),
      },
      signal: job.signal,
      onStdout: isAnswer ? chunk => answer.push(chunk.slice()) : job.output(step),
      onStderr: job.output(step),
      plan: {
        uid,
        network,
        nestedNamespaces: false,
        cwd: projectPlace(this.#project),
        argv,
        binds: [...tools.binds, { ...source, to: places.source }, ...this.#homes.map(own), ...binds],
        etcDir: `${workDir}/etc${network ? '-fetch' : ''}`,
        env,
      },
    })
    return { code, stdout: Buffer.concat(answer).toString('utf8') }
  }
}
