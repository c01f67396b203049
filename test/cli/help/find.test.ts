// Goal: `strongroom help NAME` explains what doctor prints: the source is searched for the names of its checks.

import { expect, test } from 'bun:test'
import { findInHelp } from '../../../src/cli/help/find.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { readTree } from '../../meta/tree.ts'

const plans = readTree('src/cli/doctor/**/*.plan.ts', 'src/cli/doctor/log.plan.ts')

/** Names of checks as the plans write them. An image has two, after a prefix; a name with a placeholder ends there. */
function checkNames(): string[] {
  const found = [...plans.values()].flatMap(text => [
    ...text.matchAll(/\b(?:pass|fail|warn|skip|fromOutcome|sameCheck|deviceCheck)\(\s*'([a-z][a-z0-9 -]+)',/g),
    ...text.matchAll(/^ *(?:const )?name = '([a-z][a-z0-9 -]+)'$/gm),
    ...text.matchAll(/\['([a-z ]+)', '([a-z ]+)', '([a-z ]+)'\]\.map\(name => skip\(name/g),
  ])
  const written = found.flatMap(([, ...names]) => names)
  const ofImages = ['', 'gateway ', 'builder '].flatMap(prefix => [`${prefix}image`, `${prefix}measurement`])
  return [...new Set([...written, ...ofImages, 'forwarding of IPv6', 'acme NAME', 'gpu ADDRESS'])]
}

test('goal: every check of doctor has a row in `daily`, which `strongroom help CHECK` prints', () => {
  const names = checkNames()
  for (const name of ['tcb', 'canary', 'sev firmware', 'fleet peers', 'transparency log']) expect(names).toContain(name)
  expect(names.length).toBeGreaterThan(55)
  const helpOf = (name: string) => findInHelp(name, { columns: 80, paint: paintFor(false) }) ?? ''
  expect(names.filter(name => !helpOf(name).includes('daily\n\ncheck | what it compares\n'))).toEqual([])
})
