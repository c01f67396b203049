#!/usr/bin/env bun
// Prints how many lines of code each trusted program has, by room and package: blank lines and comments do not count.
// Usage: bun scripts/trusted-lines.ts [--files [--of PROGRAM]] [--json]
//
// --files prints each own module too: its lines, the bytes of the bundle that come from it, and a shortest chain of
// imports that brings it in.

import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { print } from './lib/terminal.ts'
import { TRUSTED_PROGRAMS, trustedLines } from './lib/trusted-lines.ts'

const repo = resolve(import.meta.dir, '..')
const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    files: { type: 'boolean', default: false },
    of: { type: 'string' },
  },
})
const names = Object.keys(TRUSTED_PROGRAMS)
if (flags.of !== undefined && !names.includes(flags.of)) {
  throw new Error(`--of: ${flags.of} is not one of ${names.join(', ')}`)
}
const counted = Object.entries(TRUSTED_PROGRAMS).filter(([name]) => flags.of === undefined || name === flags.of)
const programs = await Promise.all(
  counted.map(async ([name, program]) => ({
    name,
    program,
    lines: await trustedLines(repo, program),
  })),
)

if (flags.json) {
  const figures = programs.map(({ name, program: { budget, aim }, lines: { own, npm, parts, files } }) => [
    name,
    { own, npm, budget, aim, parts: Object.fromEntries(parts), ...(flags.files ? { files } : {}) },
  ])
  print(JSON.stringify(Object.fromEntries(figures), null, 2))
} else {
  for (const { name, program, lines } of programs) {
    const { budget, aim } = program
    print(`${name}: ${lines.own} own lines (budget ${budget.own}, aim ${aim.own})`)
    print(`  ${lines.npm} lines of packages (budget ${budget.npm}, aim ${aim.npm})`)
    for (const [part, count] of lines.parts) print(`  ${String(count).padStart(6)}  ${part}`)
    if (!flags.files) continue
    print('  lines   bytes  module, and what imports it')
    for (const { path, lines: count, bundledBytes, via } of lines.files) {
      const chain = via.length === 0 ? 'an entry' : via.toReversed().join(' < ')
      print(`  ${String(count).padStart(5)}  ${String(bundledBytes).padStart(6)}  ${path}  < ${chain}`)
    }
  }
}
