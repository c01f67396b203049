// Puts the text of one mutant in place of its source file, in the process that runs the tests. The file on disk stays
// as it is. Effects: a loader plugin of this process.

import { readFileSync } from 'node:fs'

/** The absolute path of the file that is replaced, and of the file with its mutant. */
export const mutatedPathVariable = 'STRONGROOM_MUTATED'
export const mutantPathVariable = 'STRONGROOM_MUTANT'

const mutated = process.env[mutatedPathVariable]
const mutant = process.env[mutantPathVariable]
if (mutated !== undefined && mutant !== undefined) {
  const loader = mutated.endsWith('.tsx') ? 'tsx' : 'ts'
  Bun.plugin({
    name: 'mutant',
    setup: build => {
      const filter = new RegExp(`^${mutated.replaceAll(/[^\w/]/g, '\\$&')}$`)
      build.onLoad({ filter }, () => ({ contents: readFileSync(mutant, 'utf8'), loader }))
    },
  })
}
