// Many small Cargo projects on one build root: a process that runs the builder's own toolchain over one after another,
// and a compiler that records what it compiles. Effects: needs root; mounts, a process; cleans up.

import * as fs from 'node:fs'
import { join } from 'node:path'
import { ownUsers } from '../../../../scripts/rigs/build/own-users.ts'
import { type SourceFiles, writeTree } from '../../../../scripts/rigs/build/sources.ts'
import { cgroup2Root, findRust } from '../../../../scripts/rigs/build/vm.ts'
import { takeVmPlace } from '../../../../scripts/rigs/build/vm-places.ts'
import { succeed } from '../../../../scripts/rigs/guest/root.ts'
import { systemClock } from '../../../../src/base/clock.ts'
import { endLeftCgroups } from '../../../../src/builder/confined/cgroup.ts'
import type { CargoOptions } from '../../../../src/contract/http/build-options.ts'
import type { BuildOrder } from '../../../../src/contract/vm/build-order.ts'

export type CorpusProject = {
  readonly what: string
  readonly files: SourceFiles
  /** Symbolic links by their path. */
  readonly links?: SourceFiles
  readonly projectDir?: string
  readonly options?: Partial<CargoOptions>
  /** False unless the service fetches for it. */
  readonly fetches?: boolean
}

export type CorpusPackage = {
  /** `NAME VERSION ORIGIN`, and ` (not compiled)` behind it. */
  readonly text: string
  /** `NAME VERSION PLACE` of a compiled package: `source:DIR`, `registry`, or `git:` and seven digits. */
  readonly compiled: string | null
}

export type CorpusEnd = {
  readonly what: string
  /** `ERROR_TYPE: MESSAGE`; null for a build that ended well. */
  readonly failure: string | null
  readonly artifacts: readonly string[]
  readonly packages: readonly CorpusPackage[]
  /** Path of the lock in the evidence. */
  readonly lock: string
  /** The packages that the recording compiler was called for, as `CorpusPackage.compiled`, sorted and unique. */
  readonly recorded: readonly string[]
}

export type CorpusSettings = {
  readonly scratch: string
  readonly cgroupRoot: string
  readonly rust: string
  /** Directory of the recording compiler. */
  readonly recorder: string
  /** Directory of its record, writable for every user. */
  readonly record: string
  readonly fetch: BuildOrder['fetch']
  /** Directory with one project each: `source`, and `project.json`. */
  readonly projects: string
  readonly output: string
}

/**
 * Cargo names the package to the compiler by variables, so this record is neither cargo's messages nor its metadata.
 */
const recorder = `#!/bin/sh
[ -n "$CARGO_PKG_NAME" ] && echo "$CARGO_PKG_NAME $CARGO_PKG_VERSION $CARGO_MANIFEST_DIR" >> /opt/record/compiled
exec /opt/rust/bin/rustc "$@"
`

/** Builds every project, one after another. */
export async function buildCorpus(
  projects: readonly CorpusProject[],
  fetch: BuildOrder['fetch'],
): Promise<ReadonlyMap<string, CorpusEnd>> {
  const place = await takeVmPlace()
  const root = fs.mkdtempSync(`/tmp/srt-${process.pid}-corpus-`)
  fs.chmodSync(root, 0o755)
  const at = (name: string) => join(root, name)
  for (const name of ['scratch', 'rust', 'recorder', 'record', 'projects']) fs.mkdirSync(at(name))
  fs.chmodSync(at('record'), 0o1777)
  writeTree(at('recorder'), { rustc: recorder })
  succeed(['mount', '-t', 'tmpfs', '-o', 'nosuid,nodev,mode=0755,size=3072m', 'tmpfs', at('scratch')])
  succeed(['mount', '--bind', '-o', 'ro', findRust() ?? '', at('rust')])
  const cgroupRoot = join(cgroup2Root() ?? '/sys/fs/cgroup', root.slice('/tmp/'.length))
  fs.mkdirSync(cgroupRoot)
  const log = fs.openSync(at('log'), 'w')
  try {
    for (const [index, project] of projects.entries()) {
      const { files, links = {}, ...rest } = project
      const directory = join(at('projects'), String(index).padStart(3, '0'))
      fs.mkdirSync(join(directory, 'source'), { recursive: true })
      writeTree(join(directory, 'source'), files)
      for (const [path, target] of Object.entries(links)) fs.symlinkSync(target, join(directory, 'source', path))
      fs.writeFileSync(join(directory, 'project.json'), JSON.stringify(rest))
    }
    const settings: CorpusSettings = {
      ...{ scratch: at('scratch'), cgroupRoot, rust: at('rust'), recorder: at('recorder'), record: at('record') },
      ...{ fetch, projects: at('projects'), output: at('output') },
    }
    fs.writeFileSync(at('settings.json'), JSON.stringify(settings))
    const program = [process.execPath, join(import.meta.dir, 'process.ts'), at('settings.json')]
    const child = await ownUsers(place).spawn(program, { output: log, env: process.env })
    const code = await child.exited
    if (code !== 0) throw new Error(`the corpus ended with ${code}: ${fs.readFileSync(at('log'), 'utf8').slice(-4000)}`)
    const ends: CorpusEnd[] = JSON.parse(fs.readFileSync(at('output'), 'utf8'))
    return new Map(ends.map(end => [end.what, end]))
  } finally {
    await endLeftCgroups({ root: cgroupRoot, needed: [] }, systemClock)
    fs.rmdirSync(cgroupRoot)
    fs.closeSync(log)
    for (const name of ['rust', 'scratch']) Bun.spawnSync(['umount', '--lazy', at(name)], { stderr: 'ignore' })
    fs.rmSync(root, { recursive: true, force: true })
    place[Symbol.dispose]()
  }
}
