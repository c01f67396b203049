// Golden texts under test/golden. `STRONGROOM_GOLDEN=write` writes them anew; the diff is then reviewed like code.

import { expect } from 'bun:test'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const directory = join(import.meta.dir, '../golden')

/** Fails unless `text` is exactly the golden file of that name. */
export function expectGolden(name: string, text: string): void {
  const path = join(directory, name)
  if (process.env.STRONGROOM_GOLDEN === 'write') writeFileSync(path, text)
  if (!existsSync(path)) throw new Error(`no golden file ${name}; write it with STRONGROOM_GOLDEN=write`)
  expect(text).toBe(readFileSync(path, 'utf8'))
}
