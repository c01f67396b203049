// A launcher with an image of its own, a ledger, and this host's operator key. Effects: a directory of temporary files.

import { afterAll } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { imageVcpuType, writeLaunchImage } from '../../../scripts/rigs/launch/launch-image.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { type OperatorKey, openOperatorKey } from '../../../src/host/operator-key.ts'
import { openStore } from '../../../src/store/db.ts'
import { insertVm } from '../../../src/store/ledger/vm.query.ts'
import { loadImage } from '../../../src/vm/launch/image.driver.ts'
import { type LaunchedVm, Launcher, type LauncherDeps, LaunchMismatch } from '../../../src/vm/launch/launcher.driver.ts'

export const launchedVm: LaunchedVm = { id: 'vm', vcpus: 2, memoryMib: 2048, workload: null }

/** For one test file, until its end. */
export async function openLauncherBench() {
  const stateDir = mkdtempSync(join(tmpdir(), 'srt-launcher-'))
  afterAll(() => rmSync(stateDir, { recursive: true }))
  const operatorKey = await openOperatorKey(stateDir)
  const bench = (options: BenchOptions = {}) => launcherBench({ stateDir, operatorKey }, options)
  return { stateDir, operatorKey, bench }
}

/** `igvm`: the file of the image's own, or one that the host makes. */
type BenchOptions = Partial<LauncherDeps> & { readonly igvm?: 'named' | 'made' }

async function launcherBench(
  { stateDir, operatorKey }: { readonly stateDir: string; readonly operatorKey: OperatorKey },
  options: BenchOptions,
) {
  const directory = mkdtempSync(join(stateDir, 'image-'))
  const igvmDirectory = join(directory, 'state', 'igvm')
  const { manifest, igvm } = await writeLaunchImage(directory)
  const { db } = openStore(':memory:').ledger
  insertVm(db, { ...launchedVm, hostId: 'host', image: 'instance', nowMs: 1 })
  const file = options.igvm === 'named' ? igvm : null
  const boot =
    options.igvm === undefined ? ({ kind: 'bios', firmware: null } as const) : ({ kind: 'igvm', file } as const)
  const deps = {
    db,
    clock: systemClock,
    operatorKey,
    vcpuType: imageVcpuType,
    boot,
    igvmDirectory,
    beforeLaunch: () => {},
  }
  const launcher = new Launcher({ ...deps, ...options })
  const prepare = (of = launchedVm) => launcher.prepare(of, loadImage(directory))
  const mismatchOf = async (work: Promise<unknown>): Promise<readonly string[]> => {
    const error = await work.then(
      () => null,
      (thrown: unknown) => thrown,
    )
    if (error === null) return []
    if (!(error instanceof LaunchMismatch)) throw error
    return error.parts
  }
  const written = join(igvmDirectory, 'instance-EPYC-v4-2.igvm')
  return { directory, manifest, igvm, written, db, launcher, prepare, mismatchOf }
}

/** The messages of what a failed work threw, and of its causes; empty where it did not fail. */
export async function failureOf(work: Promise<unknown>): Promise<string> {
  return await work.then(
    () => '',
    (thrown: unknown) => messageChain(thrown),
  )
}

function messageChain(thrown: unknown): string {
  return thrown instanceof Error ? `${thrown.message}: ${messageChain(thrown.cause)}` : ''
}

/** Changes one bit of a file. */
export function flip(path: string, at: number): void {
  const bytes = readFileSync(path)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  writeFileSync(path, bytes)
}
