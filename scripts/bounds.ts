#!/usr/bin/env bun
// Prints src/BOUNDS.md as the doc comments of the source have it; --write replaces the file. Effects: reads src.

import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { boundsText, findBounds } from './lib/bounds.ts'

const repo = resolve(import.meta.dir, '..')
const paths = [...new Bun.Glob('src/**/*.{ts,tsx}').scanSync({ cwd: repo })].toSorted()
const bounds = findBounds(new Map(paths.map(path => [path, readFileSync(join(repo, path), 'utf8')])))
const missing = bounds.filter(({ share }) => share === null)
for (const { path, name } of missing) {
  process.stderr.write(`${path}: add a sentence "Share: …" or "No share: …" to the doc comment of ${name}\n`)
}
if (missing.length > 0) process.exit(1)
const text = boundsText(bounds)
if (process.argv.includes('--write')) writeFileSync(join(repo, 'src/BOUNDS.md'), text)
else process.stdout.write(text)
