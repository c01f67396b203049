// The console's page as a module of the executable: a program with the repository as its working directory, since names
// of the parts depend on their paths from there. Effects: writes one file below dist.

import { mkdir, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { buildPage } from '../../src/console/page/build.ts'

/** `#console-page` means this file under the condition `strongroom-executable` (package.json). */
const embeddedPagePath = 'dist/console/page.js'
const buildTimeoutMs = 120_000

/** The same sources give the same bytes, in whatever directory. Throws with the bundler's words. */
export async function writeEmbeddedPage(repo: string): Promise<void> {
  const child = Bun.spawn([process.execPath, import.meta.path], {
    cwd: repo,
    // The caller's environment has no say in what is built.
    env: { PATH: '/usr/bin:/bin' },
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    timeout: buildTimeoutMs,
  })
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  if (child.exitCode !== 0) throw new Error(`build the page of the console:\n${stdout}${stderr}`.trimEnd())
}

async function writePageBelow(repo: string): Promise<void> {
  const rows = (await buildPage(join(repo, 'src/console/web'))).map(({ path, type, bytes }) => {
    return `  { path: ${JSON.stringify(path)}, type: ${JSON.stringify(type)}, base64: '${bytes.toBase64()}' },`
  })
  const text = [
    '// The files of the console, built from src/console/web.',
    'const files = [',
    ...rows,
    ']',
    'export async function loadPage() {',
    '  return files.map(({ base64, ...file }) => ({ ...file, bytes: Uint8Array.fromBase64(base64) }))',
    '}',
    '',
  ].join('\n')
  const path = join(repo, embeddedPagePath)
  await mkdir(dirname(path), { recursive: true })
  // Another build may read it now.
  const made = `${path}.${process.pid}`
  await writeFile(made, text)
  await rename(made, path)
}

if (import.meta.main) await writePageBelow(process.cwd())
