// A command of the project as its toolchain, for projects without locked dependencies: nothing is fetched, and the
// evidence lists no package. Effects: programs, files on scratch.

import * as fs from 'node:fs'
import { type Candidate, filesBelow } from '../collect.ts'
import { BuildFailure, exitText, refuseUnless } from '../failure.ts'
import { type Phase, plainEnvironment, uids } from '../phase.ts'
import { readLock } from '../project.ts'
import { Sandbox } from '../sandbox.ts'
import type { Source } from '../source/extract-source.ts'
import { toolOf } from '../tool.ts'
import type { Project, Toolchain, ToolchainRun } from '../toolchain.ts'
import { copyFor } from '../workspace.ts'
import { buildFileName, readBuildFile } from './build-file.codec.ts'

/** The file is both manifest and lock: the evidence contains its digest. */
const files = { manifest: buildFileName, lock: buildFileName, makeLock: 'strongroom help builds' } as const

export const makeToolchain: Toolchain = { ...files, problemOf: () => null, describe, start: startMake }

function describe(text: string): { name: string; version: string | null } | null {
  const { name, version } = readBuildFile(text)
  return name === null ? null : { name, version }
}

/** Prepares a build. Failure `source_invalid` of the file. */
async function startMake(phase: Phase, project: Project, { root }: Source): Promise<ToolchainRun> {
  const lock = await readLock(root, files, project.dir === '' ? buildFileName : `${project.dir}/${buildFileName}`)
  const { command, outputs } = readBuildFile(lock.text)
  const { job, order, tools, workDir } = phase
  const env = { ...plainEnvironment, PATH: tools.path }
  const sandbox = new Sandbox(phase, project, root)
  const make = await toolOf(phase, 'make')
  return {
    lock,
    fetch: async () => job.say('fetch', `${buildFileName} names no dependencies: nothing to fetch`),
    build: async round => {
      const source = await copyFor(uids.build, root, `${workDir}/make-source-${round}`)
      const program = {
        name: `make-build-${round}`,
        argv: command,
        env,
        binds: [],
        step: 'build',
        logsOutput: true,
      } as const
      const { code } = await sandbox.run(program, { source: { from: source, writable: true } })
      if (code !== 0)
        throw new BuildFailure('build_failed', `${command[0]}: ${exitText(code, order.limits)}: ${job.tail()}`)
      const own = project.dir === '' ? source : `${source}/${project.dir}`
      return candidatesOf(own, outputs, order.limits.artifactCount)
    },
    facts: async () => ({
      packages: [],
      members: [],
      tools: { toolchain: 'make', programs: { make } },
      command,
      environment: env,
      pinned: null,
      rust: null,
      evaluation: null,
    }),
  }
}

/** Returns candidates, each named by its base name if that is unique, otherwise by its path. */
function candidatesOf(root: string, outputs: readonly string[], countMax: number): Candidate[] {
  const paths = outputs.flatMap(output => {
    const found = fs.lstatSync(`${root}/${output}`, { throwIfNoEntry: false })
    refuseUnless(
      found !== undefined,
      'no_artifacts',
      () => `${buildFileName}: outputs: ${JSON.stringify(output)} does not exist after the build`,
    )
    if (!found.isDirectory()) return [output]
    return filesBelow(`${root}/${output}`, countMax).files.map(file => `${output}/${file}`)
  })
  const nameOf = (path: string) => path.slice(path.lastIndexOf('/') + 1)
  const counts = Map.groupBy(paths, path => nameOf(path).toLowerCase())
  return paths.map(relative => {
    const name = nameOf(relative)
    return { name: counts.get(name.toLowerCase())?.length === 1 ? name : relative, root, relative }
  })
}
