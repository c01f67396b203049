// Attested builds: how soon a build begins and what our layers cost it (builds/vm.ts), how long an empty crate takes
// (builds/empty.ts), how fast the service and the guest's own code handle bytes and readers (builds/service.ts), and
// how long the recipient of a result waits for its verdict. That image's disk has 1 GiB, and all of it is hashed; the
// verdict's time stands beside the system's time for SHA-256 over the same file, measured in the same run.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { toPem } from '../../src/attest/encoding/pem.ts'
import { measureIgvm } from '../../src/attest/igvm/measure.ts'
import { assert } from '../../src/base/assert.ts'
import { toHex } from '../../src/base/bytes.ts'
import { writeBuilderImage } from '../rigs/build/image-directory.ts'
import { sampleResult } from '../rigs/build/result.ts'
import { simulatedAsOf, simulatedPlatform } from '../rigs/launch/simulated-platform.ts'
import type { Figures } from './bench-report.ts'
import { measureEmptyBuilds } from './builds/empty.ts'
import { measureService } from './builds/service.ts'
import { measureBuildVms } from './builds/vm.ts'
import type { BenchContext } from './main.ts'

const blockBytes = 4096
const diskBytes = 1024 ** 3
const rounds = 3

export async function run(context: BenchContext): Promise<Figures> {
  const verdict = await measureVerdict(context)
  const service = await measureService(context.note)
  return { ...(await measureBuildVms(context)), ...(await measureEmptyBuilds(context)), ...verdict, ...service }
}

async function measureVerdict({ repoRoot, note, signal }: BenchContext): Promise<Figures> {
  const dir = mkdtempSync(join(tmpdir(), `srt-${process.pid}-bench-builds-`))
  try {
    note(`writes an image of ${diskBytes / 1024 ** 2} MiB`)
    const argv = await prepare(dir)
    const times = { verify: [] as number[], plain: [] as number[] }
    // In turns, so that both meet the same machine.
    for (let round = 0; round < rounds; round += 1) {
      signal.throwIfAborted()
      times.verify.push(await timed([process.execPath, join(repoRoot, 'src/main.ts'), ...argv]))
      times.plain.push(await timed(['openssl', 'dgst', '-sha256', join(dir, 'image/root')]))
    }
    const figure = (values: readonly number[]) => Math.min(...values)
    return {
      verify1GiBMs: { value: figure(times.verify), unit: 'ms', aim: { atMost: 6000 }, baseline: 'opensslSha2561GiBMs' },
      opensslSha2561GiBMs: { value: figure(times.plain), unit: 'ms', aim: null },
    }
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}

/** A result of a VM that was launched from the image, and the command that verifies all of it. */
async function prepare(dir: string): Promise<string[]> {
  const image = join(dir, 'image')
  const { igvm } = await writeBuilderImage(image, diskBytes / blockBytes)
  const { digest } = await measureIgvm(await Bun.file(igvm).bytes(), { profile: 'qemu-kvm' })
  const { files, nonce } = await sampleResult({ measurement: digest })
  for (const [path, bytes] of files) {
    mkdirSync(dirname(join(dir, 'project', path)), { recursive: true })
    writeFileSync(join(dir, 'project', path), bytes)
  }
  const { ark, ask } = (await simulatedPlatform('genoa')).authority.root
  const root = join(dir, 'root.pem')
  writeFileSync(root, [ark, ask].map(der => toPem(der, 'CERTIFICATE')).join(''))
  return [
    ...['verify', 'build', join(dir, 'project'), '--nonce', toHex(nonce), '--igvm', igvm, '--image', image],
    ...['--own-image', '--any-source'],
    ...['--trust-simulated-root', root, '--as-of', simulatedAsOf.toISOString()],
  ]
}

async function timed(argv: readonly string[]): Promise<number> {
  const began = performance.now()
  const child = Bun.spawn([...argv], { stdin: 'ignore', stdout: 'ignore', stderr: 'inherit' })
  const code = await child.exited
  assert(code === 0, `${argv[0]} ended with ${code}`)
  return performance.now() - began
}
