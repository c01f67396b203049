// The packages that are proved: two of this executable, one of a later one with another schema, and the images.
// Effects: builds below dist and the cache, files of one directory.

import { join } from 'node:path'
import { runCommand } from '../lib/command.ts'
import type { Print } from '../lib/terminal.ts'
import { laterExecutable, laterVersion } from '../rigs/upgrade/later-executable.ts'

export type ProvedPackages = {
  readonly first: string
  readonly second: string
  /** Shows the faults of `rigs/upgrade/later-executable.ts`. */
  readonly later: string
  readonly images: string
}

const buildTimeoutMs = 900_000

export async function makePackages(repo: string, directory: string, print: Print): Promise<ProvedPackages> {
  const bun = async (script: string, ...words: string[]) => {
    const argv = [process.execPath, join(repo, 'scripts', script), ...words]
    const { exitCode, output } = await runCommand(argv, { timeoutMs: buildTimeoutMs, cwd: repo })
    if (exitCode !== 0) throw new Error(`${script}: ${output}`)
    return output.trim().split('\n').at(-1) ?? ''
  }
  print('building the packages')
  for (const script of ['build-guest.ts', 'build-builder.ts', 'build-enclave.ts', 'build-appliance.ts'])
    await bun(script)
  const image = await bun('build-image.ts', 'instance')
  // Nothing is compressed: the packages go no further than this machine.
  const pack = async (...words: string[]) => {
    const line = await bun('build-package.ts', '--out', directory, '--compression', 'none', ...words)
    return line.split('  ')[0] ?? ''
  }
  const executable = join(repo, 'dist/strongroom')
  return {
    first: await pack('--executable', executable, '--version', '0.1.0-1'),
    second: await pack('--executable', executable, '--version', '0.1.0-2'),
    later: await pack('--executable', await laterExecutable(), '--version', `${laterVersion}-1`),
    images: await pack('--images', image, '--version', '0.1.0-1'),
  }
}
