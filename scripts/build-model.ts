#!/usr/bin/env bun
// Writes the tiny model of demonstrations and tests. Its bytes are the same every time and everywhere.

import { mkdir } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { tinyModel } from './model/tiny-model.ts'

const usage = 'usage: bun scripts/build-model.ts --out FILE\n'

const { values } = parseArgs({ options: { out: { type: 'string' }, help: { type: 'boolean', default: false } } })
if (values.help) {
  process.stdout.write(usage)
} else if (values.out === undefined) {
  process.stderr.write(usage)
  process.exitCode = 1
} else {
  const out = resolve(values.out)
  await mkdir(dirname(out), { recursive: true })
  const bytes = tinyModel()
  await Bun.write(out, bytes)
  process.stdout.write(`${new Bun.CryptoHasher('sha256').update(bytes).digest('hex')}  ${out}\n`)
}
