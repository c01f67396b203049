// Shared by benchmarks of the compiled appliance: their namespace, login and percentiles. Effects: a namespace,
// processes.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withOwnNames } from '../lib/own-names.ts'
import { type Appliance, imageDir } from '../rigs/appliance.ts'
import { createNetns } from '../rigs/netns.ts'
import type { Figures } from './bench-report.ts'
import type { BenchContext } from './main.ts'

const insideTimeoutMs = 1_200_000

/** Prints a line of progress. */
export type Say = (line: string) => void

/** Runs `file` again, inside a namespace of its own, with the path to write its figures to as its argument. */
export async function measureInNetns(file: string, context: BenchContext): Promise<Figures> {
  return await measureWithoutImage(file, context, { STRONGROOM_IMAGE_DIR: await imageDir() })
}

/** As `measureInNetns`, for what starts no VM. */
export async function measureWithoutImage(
  file: string,
  { repoRoot, note, signal }: BenchContext,
  env: Readonly<Record<string, string>> = {},
): Promise<Figures> {
  using netns = createNetns()
  const results = join(mkdtempSync(join(tmpdir(), 'srt-bench-')), 'figures.json')
  try {
    const child = Bun.spawn(netns.argv(withOwnNames(netns.name, [process.execPath, file, results])), {
      cwd: repoRoot,
      env: { ...process.env, ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
      timeout: insideTimeoutMs,
      signal,
    })
    for await (const chunk of child.stdout) note(Buffer.from(chunk).toString().trimEnd())
    if ((await child.exited) !== 0) throw new Error(`the measuring process ended with ${await child.exited}`)
    return JSON.parse(readFileSync(results, 'utf8')) as Figures
  } finally {
    rmSync(join(results, '..'), { recursive: true, force: true })
  }
}

/** One SSH command. */
export async function loggedIn(appliance: Appliance, hostname: string): Promise<void> {
  const { exitCode, stderr } = await appliance.ssh(hostname, ['true'])
  if (exitCode !== 0) throw new Error(`ssh: ${exitCode}: ${stderr}`)
}

export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b)
  const at = Math.min(sorted.length - 1, Math.ceil((percent / 100) * sorted.length) - 1)
  return round(sorted[Math.max(0, at)] ?? Number.NaN)
}

export function round(value: number): number {
  return Math.round(value * 100) / 100
}
