// Cargo as a toolchain. Effects: those of cargo.ts and resolve.ts.

import { parse } from 'smol-toml'
import { isChannelOf } from '../../attest/provenance/compiler.ts'
import type { BuildRecord } from '../../attest/provenance/record.ts'
import { present } from '../../base/assert.ts'
import { cargoOptionsOf } from '../../contract/http/option-words.ts'
import { BuildFailure, refuseUnless } from '../failure.ts'
import type { Phase } from '../phase.ts'
import { directoryIn, readLock } from '../project.ts'
import type { Source } from '../source/extract-source.ts'
import { checkPinned, outputOf, toolOf } from '../tool.ts'
import type { Project, Toolchain, ToolchainRun } from '../toolchain.ts'
import { cargoBuildArgv, cargoBuildEnvironment, cargoTargetsArgv, lockOption, ownTarget } from './cargo.plan.ts'
import { type CargoFetched, cargoBuild, cargoFetch } from './cargo.ts'
import { isFinal, missingIn, resolveFailure } from './causes.plan.ts'
import { exactVersion } from './channel.codec.ts'
import { readCargoLock } from './lock.codec.ts'
import { fetchRust } from './mirror.ts'
import { cratesOf } from './packages.plan.ts'
import { lockPathOf, resolvePackages } from './resolve.ts'
import { pinnedRust, type RustPin } from './rust-toolchain.ts'
import { checkTarget, selectMembers } from './selection.plan.ts'
import { hasCargoSettings } from './settings.ts'

const files = { manifest: 'Cargo.toml', lock: 'Cargo.lock', makeLock: 'cargo generate-lockfile' } as const

export const cargoToolchain: Toolchain = { ...files, problemOf: () => null, describe, start: startCargo }

function describe(manifest: string): { name: string; version: string | null } | null {
  try {
    const { package: described } = parse(manifest) as { package?: { name?: unknown; version?: unknown } }
    if (typeof described?.name !== 'string') return null
    return { name: described.name, version: typeof described.version === 'string' ? described.version : null }
  } catch {
    return null
  }
}

/** Prepares a build. Failures `source_invalid`, `lock_missing` and `checksum_mismatch` of workspace and lock. */
async function startCargo(
  own: Phase,
  project: Project,
  { root, tree, missingSubmodules }: Source,
  openNetwork: () => Promise<string>,
): Promise<ToolchainRun> {
  const { job, order } = own
  const pin = await pinnedRust(root, project.dir)
  const fetchedRust = await pinnedToolchain(own, pin, openNetwork)
  const phase = fetchedRust?.phase ?? own
  const cargo = await toolOf(phase, 'cargo')
  const options = cargoOptionsOf(order.options)
  const target = options?.target ?? ownTarget
  if (target !== ownTarget) checkTarget(target, (await outputOf(phase, cargoTargetsArgv())).text)
  const cargoVersion = cargo.version
  // Run both concurrently, and let both end before the build can fail, so that none of their programs keeps running.
  const [read, asked] = await Promise.allSettled([
    lockPathOf(phase, project, { root, missingSubmodules, cargoVersion }).then(path => readLock(root, files, path)),
    toolOf(phase, 'rustc'),
  ])
  if (read.status === 'rejected') throw read.reason
  if (asked.status === 'rejected') throw asked.reason
  const [file, rustc] = [read.value, asked.value]
  const lock = readCargoLock(file.text)
  const option = lockOption(cargo.version, file.path)
  const pinned = pin === null ? null : { path: pin.path, channel: pin.channel }
  checkPinned(phase, pinned, rustc)
  let fetched: CargoFetched | null = null
  let resolved: Extract<Awaited<ReturnType<typeof resolvePackages>>, { ok: true }> | null = null
  let found: Pick<BuildRecord, 'packages' | 'members'> = { packages: [], members: [] }

  const resolve = async () => {
    const answer = await resolvePackages(phase, project, { sourceDir: root, lockOption: option, fetched })
    return answer.ok ? { ...answer, resolve: selectMembers(answer.resolve, options) } : answer
  }
  const treeOf = (directory: string) => {
    const path = directoryIn(root, directory)
    const sha256 = path === null ? undefined : tree.directories.get(path)
    return path === null || sha256 === undefined ? null : { path, sha256 }
  }
  return {
    lock: file,
    fetch: async openNetwork => {
      const count = lock.crates.length
      const first = await resolve()
      if (first.ok) {
        resolved = first
        const all = count === 0 ? 'no external package' : `${count} external packages, all in the source`
        return job.say('fetch', `Cargo.lock names ${all}; nothing to fetch`)
      }
      if (count === 0 || missingIn(first.why, missingSubmodules).length > 0 || isFinal(first.why))
        throw resolveFailure(first.why, missingSubmodules)
      if (order.fetch === null) {
        const advice =
          'this service does not fetch; run `cargo vendor`, and send vendor/ and .cargo/config.toml with the source'
        throw new BuildFailure(
          'source_unreachable',
          `packages of Cargo.lock are not in the source, and ${advice}: ${first.why}`,
        )
      }
      const mirror = order.fetch.cratesMirror
      job.say('fetch', `packages from ${mirror ?? 'the registry'}: ${count}`)
      const proxy = await openNetwork()
      fetched = await cargoFetch(phase, project, { lock, lockOption: option, sourceDir: root, proxy, mirror })
      job.say('fetch', 'each fetched package matches its checksum in Cargo.lock')
      const second = await resolve()
      if (!second.ok) throw resolveFailure(second.why, missingSubmodules)
      resolved = second
    },
    build: async round => {
      const { resolve, binds } = present(resolved, 'packages are resolved before the build')
      const built = await cargoBuild(phase, {
        project,
        sourceDir: root,
        packageCount: resolve.packages.length,
        lockOption: option,
        mirror: fetched?.mirror ?? null,
        binds,
        round,
      })
      found = cratesOf({ resolve, lock, fetched: fetched?.crates ?? null, compiled: built.compiled, treeOf })
      return built.artifacts
    },
    facts: async () => ({
      ...found,
      tools: { toolchain: 'cargo', programs: { cargo, rustc } },
      command: cargoBuildArgv({ mirror: fetched?.mirror ?? null, lock: option, options }),
      environment: cargoBuildEnvironment(phase.tools.path, { hasSettings: hasCargoSettings(root, project.dir) }),
      pinned,
      rust: fetchedRust?.rust ?? null,
      evaluation: null,
    }),
  }
}

/** The oldest cargo that supports the options of these builds: it reads sparse registries. */
const oldestMinor = 68

/**
 * Fetches the toolchain that the source pins, if the request names a mirror and the builder's own compiler differs.
 * Null if nothing is fetched. Failures: `source_invalid` for a channel that is not an exact version, and those of
 * fetchRust.
 */
async function pinnedToolchain(phase: Phase, pin: RustPin | null, openNetwork: () => Promise<string>) {
  const { order } = phase
  const mirror = cargoOptionsOf(order.options)?.rustMirror
  if (mirror === undefined || pin === null) return null
  const { version: own } = await toolOf(phase, 'rustc')
  if (isChannelOf(pin.channel, own)) return null
  const version = exactVersion(pin.channel)
  const [major = 0, minor = 0] = version?.split('.').map(Number) ?? []
  if (version === null || (major === 1 && minor < oldestMinor)) {
    // With the waiver, the builder's own compiler builds it.
    if (order.waivers.includes('any_toolchain')) return null
    const problem = version === null ? 'not an exact version' : `older than 1.${oldestMinor}`
    throw new BuildFailure(
      'source_invalid',
      `${pin.path} pins ${JSON.stringify(pin.channel)}, which is ${problem}: rust_mirror fetches versions such as 1.96.0; pin one, or accept ${own} with any_toolchain (--any-toolchain)`,
    )
  }
  refuseUnless(order.fetch !== null, 'source_unreachable', () => 'rust_mirror: this service does not fetch')
  const target = cargoOptionsOf(order.options)?.target ?? null
  return await fetchRust(phase, { mirror, version, needs: pin, target, openNetwork })
}
