// Packages for tests of a booted Debian. Effects: runs scripts/build-package.ts.

import { join, resolve } from 'node:path'

const repo = resolve(import.meta.dir, '../../..')

/** Path of the package in `out`. The same words give the same bytes. */
export async function buildDeb(out: string, ...words: string[]): Promise<string> {
  const script = join(repo, 'scripts/build-package.ts')
  const argv = [process.execPath, script, '--out', out, '--compression', 'none', ...words]
  const child = Bun.spawn(argv, {
    cwd: repo,
    stdout: 'pipe',
    stderr: 'pipe',
    env: { ...process.env, SOURCE_DATE_EPOCH: '1000000000' },
  })
  const [stdout, stderr, exitCode] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (exitCode !== 0) throw new Error(stderr)
  return stdout.split('  ')[0] ?? ''
}
