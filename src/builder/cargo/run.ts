// Cargo as a toolchain. Effects: those of cargo.ts.

import { BuildFailure } from '../failure.ts'
import type { Phase } from '../phase.ts'
import type { Project } from '../project.ts'
import { toolOf } from '../tool.ts'
import type { ToolchainRun } from '../toolchain.ts'
import { cargoBuildArgv, cargoEnvironment } from './cargo.plan.ts'
import { type CargoFetched, cargoBuild, cargoFetch, cargoHasAll } from './cargo.ts'
import { readCargoLock } from './lock.codec.ts'

/** Failures: `source_invalid` and `checksum_mismatch` of the lock. */
export function cargoRun(phase: Phase, project: Project, sourceDir: string): ToolchainRun {
  const lock = readCargoLock(project.lock.text)
  let fetched: CargoFetched | null = null
  const { job, order } = phase
  return {
    fetch: async openNetwork => {
      const count = lock.crates.length
      if (count === 0) return job.say('fetch', 'Cargo.lock names no package from elsewhere: nothing to fetch')
      const { has, why } = await cargoHasAll(phase, project, sourceDir)
      if (has)
        return job.say(
          'fetch',
          `Cargo.lock names packages from elsewhere, ${count}, and all are in the source: nothing to fetch`,
        )
      if (order.fetch === null) {
        const advice =
          'this service fetches nothing; run `cargo vendor`, and send vendor/ and .cargo/config.toml with the source'
        throw new BuildFailure(
          'source_unreachable',
          `packages of Cargo.lock are not in the source, and ${advice}: ${why}`,
        )
      }
      const mirror = order.fetch.cratesMirror
      job.say('fetch', `packages from ${mirror ?? 'the registry'}: ${count}`)
      fetched = await cargoFetch(phase, project, { lock, sourceDir, proxy: await openNetwork(), mirror })
      job.say('fetch', 'each fetched package has its checksum of Cargo.lock')
    },
    build: round => cargoBuild(phase, { project, sourceDir, lock, fetched, round }),
    facts: async () => ({
      tools: { toolchain: 'cargo', cargo: await toolOf(phase, 'cargo'), rustc: await toolOf(phase, 'rustc') },
      command: cargoBuildArgv(fetched?.mirror ?? null),
      environment: cargoEnvironment(phase.tools.path),
      packages: lock.crates,
      evaluation: null,
    }),
  }
}
