// The result of a builder: one build for several tests, and the files of its result. Effects: files below /tmp.

import * as fs from 'node:fs'
import { join } from 'node:path'
import type { BuildEnd } from '../../../scripts/rigs/build/vm.ts'

/** The same for all tests that look at it. */
export function once(build: () => Promise<BuildEnd>): () => Promise<BuildEnd> {
  let end: Promise<BuildEnd> | null = null
  return () => {
    end ??= build()
    return end
  }
}

/** Files of a result by their path below the top-level directory, read with GNU tar. */
export function filesOf({ archive, result }: BuildEnd): Map<string, Uint8Array> {
  if (archive === null) throw new Error(`no archive: ${JSON.stringify(result)}`)
  const dir = fs.mkdtempSync('/tmp/strongroom-result-')
  try {
    const { exitCode, stderr } = Bun.spawnSync(['tar', '--extract', '--gzip', '--directory', dir], { stdin: archive })
    if (exitCode !== 0) throw new Error(stderr.toString())
    const [top = ''] = fs.readdirSync(dir)
    const names = fs.readdirSync(join(dir, top), { recursive: true, encoding: 'utf8' }).sort()
    const files = names.filter(name => fs.statSync(join(dir, top, name)).isFile())
    return new Map(files.map(name => [name, fs.readFileSync(join(dir, top, name))]))
  } finally {
    fs.rmSync(dir, { recursive: true, force: true })
  }
}
