#!/usr/bin/env bun
// Builds what a relying party runs: ES modules for pages, each without imports, in dist: strongroom-verify.js judges
// evidence, strongroom-tpm.js that of virtual TPMs, and strongroom-measure.js computes measurements of launches; and
// dist/verifier-package/, the npm package with `attestedFetch` for Bun, Node and pages, with types.
// npm-pack(1) of that directory makes the tarball. Usage: bun scripts/build-verifier.ts [--out DIR] [--repository URL]
//
// --repository goes into the package's manifest: a publication with provenance must name the sources that it is from.

import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { browserBundle } from './build/browser-bundle.ts'
import { buildVerifierPackage, packageFolder } from './build/verifier-package.ts'

const repo = resolve(import.meta.dir, '..')

export { type BrowserBundle, browserBundle } from './build/browser-bundle.ts'

export const verifierEntry = join(repo, 'src/verifier/index.ts')
/** Modules for pages and their entries. A page loads only those that it uses. */
export const VERIFIER_MODULES = {
  'strongroom-verify.js': verifierEntry,
  'strongroom-tpm.js': join(repo, 'src/verifier/tpm.ts'),
  'strongroom-measure.js': join(repo, 'src/verifier/measure.ts'),
} as const satisfies Readonly<Record<string, string>>

/** Size of what a browser loads over the network. */
export function gzipBytes(text: string): number {
  return Bun.gzipSync(Buffer.from(text), { level: 9 }).length
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { out: { type: 'string' }, repository: { type: 'string' } } })
  const outDir = resolve(values.out ?? join(repo, 'dist'))
  mkdirSync(outDir, { recursive: true })
  for (const [name, entry] of Object.entries(VERIFIER_MODULES)) {
    const { text } = await browserBundle(entry)
    const path = join(outDir, name)
    await Bun.write(path, text)
    const sha256 = new Bun.CryptoHasher('sha256').update(text).digest('hex')
    process.stdout.write(`${path}  ${text.length} bytes  gzip ${gzipBytes(text)} bytes  sha256 ${sha256}\n`)
  }
  const folder = join(outDir, packageFolder)
  for (const { name, sizeBytes, sha256 } of await buildVerifierPackage(folder, { repository: values.repository })) {
    process.stdout.write(`${join(folder, name)}  ${sizeBytes} bytes  sha256 ${sha256}\n`)
  }
}

if (import.meta.main) await main()
