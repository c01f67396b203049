#!/usr/bin/env bun
// Builds what a relying party runs: dist/strongroom-verify.js, one ES module for pages without imports, which judges
// evidence; and dist/verifier-package/, the npm package with `attestedFetch` for Bun, Node and pages, with types.
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
export const verifierName = 'strongroom-verify.js'

/** Size of what a browser loads over the network. */
export function gzipBytes(text: string): number {
  return Bun.gzipSync(Buffer.from(text), { level: 9 }).length
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { out: { type: 'string' }, repository: { type: 'string' } } })
  const outDir = resolve(values.out ?? join(repo, 'dist'))
  const { text } = await browserBundle(verifierEntry)
  mkdirSync(outDir, { recursive: true })
  const path = join(outDir, verifierName)
  await Bun.write(path, text)
  const sha256 = new Bun.CryptoHasher('sha256').update(text).digest('hex')
  process.stdout.write(`${path}  ${text.length} bytes  gzip ${gzipBytes(text)} bytes  sha256 ${sha256}\n`)
  const folder = join(outDir, packageFolder)
  for (const { name, sizeBytes, sha256 } of await buildVerifierPackage(folder, { repository: values.repository })) {
    process.stdout.write(`${join(folder, name)}  ${sizeBytes} bytes  sha256 ${sha256}\n`)
  }
}

if (import.meta.main) await main()
