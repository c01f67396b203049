// The command line as a stranger has it, who verifies once: a new process each time, of the compiled executable.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { toPem } from '../../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../../src/attest/igvm/measure.ts'
import { present } from '../../../src/base/assert.ts'
import { toHex } from '../../../src/base/bytes.ts'
import { buildExecutable } from '../../build/executable.ts'
import { applianceRecipe } from '../../build/recipes.ts'
import { writeBuilderImage } from '../../rigs/build/image-directory.ts'
import { cargoRecord } from '../../rigs/build/record.ts'
import { sampleResult } from '../../rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../../rigs/launch/simulated-platform.ts'
import type { Figures } from '../bench-report.ts'
import { percentile, round } from '../in-netns.ts'

const repo = resolve(import.meta.dir, '../../..')
const reports = join(repo, 'test/vectors/reports')
const rounds = 31

/**
 * Medians, taken in turn. The report is a real one with AMD's chain; the build is from artifacts over provenance and
 * event log to a report of the simulator. Beside them a runtime that starts and ends.
 */
export async function measureColdStarts(): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), 'srt-bench-'))
  try {
    const { path: program } = await buildExecutable(applianceRecipe, { repo, outDir: join(repo, 'dist'), force: false })
    const programs = [
      { argv: [program, ...reportWords], times: [] as number[] },
      { argv: [program, ...(await buildWords(folder))], times: [] as number[] },
      { argv: [process.execPath, '--print', '0'], times: [] as number[] },
    ] as const
    for (let turn = -1; turn < rounds; turn += 1) {
      for (const { argv, times } of programs) {
        const ms = await timeOf(argv)
        // The first turn fills the page cache.
        if (turn >= 0) times.push(ms)
      }
    }
    const [report, build, bare] = programs
    const medianOf = ({ times }: { readonly times: readonly number[] }) => round(percentile(times, 50))
    return {
      coldVerifyMs: { value: medianOf(report), unit: 'ms', aim: { atMost: 45 }, baseline: 'bareStartMs' },
      fullChainMs: { value: medianOf(build), unit: 'ms', aim: { atMost: 100 }, baseline: 'bareStartMs' },
      bareStartMs: { value: medianOf(bare), unit: 'ms', aim: null },
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Throws when the verdict is not good: a benchmark of refusals would be a fast one. */
async function timeOf(argv: readonly string[]): Promise<number> {
  const startedMs = performance.now()
  const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'ignore', stderr: 'pipe' })
  const exitCode = await child.exited
  const ms = performance.now() - startedMs
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${exitCode}: ${await child.stderr.text()}`)
  return ms
}

const reportWords = [
  ...['verify', 'report', '--report', join(reports, 'turin-v5.bin'), '--vek', join(reports, 'turin-v5.chain.pem')],
  ...['--as-of', '2026-11-20T12:00:00Z', '--any-measurement', '--any-crl', '--any-tcb'],
]

async function buildWords(folder: string): Promise<string[]> {
  const image = join(folder, 'image')
  const { igvm } = await writeBuilderImage(image)
  const { digest } = await measureIgvm(new Uint8Array(readFileSync(igvm)), { profile: 'qemu-kvm' })
  const { files, nonce } = await sampleResult({ measurement: digest })
  const project = join(folder, 'demo')
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(project, path)), { recursive: true })
    writeFileSync(join(project, path), bytes)
  }
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  const root = join(folder, 'root.pem')
  writeFileSync(root, [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
  return [
    ...['verify', 'build', project, '--nonce', toHex(nonce), '--trust-simulated-root', root],
    ...['--as-of', simulatedAsOf.toISOString(), '--igvm', igvm, '--image', image, '--own-image'],
    ...['--commit', present(cargoRecord.source.commit, 'a commit')],
  ]
}
