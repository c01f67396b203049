#!/usr/bin/env bun
// Lists the sources of the measured executables; --write commits the lists, so that review sees growth.

import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { findInputs, inputsText, MEASURED } from './lib/measured-inputs.ts'

const repo = resolve(import.meta.dir, '..')
for (const { entry, file } of Object.values(MEASURED)) {
  const text = inputsText(await findInputs(repo, entry))
  if (process.argv.includes('--write')) writeFileSync(join(repo, file), text)
  else process.stdout.write(text)
}
