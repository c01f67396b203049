#!/usr/bin/env bun
// Prints how many lines of code each trusted program has, by room and package: blank lines and comments do not count.
// Usage: bun scripts/trusted-lines.ts [--json]

import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { print } from './lib/terminal.ts'
import { TRUSTED_PROGRAMS, trustedLines } from './lib/trusted-lines.ts'

const repo = resolve(import.meta.dir, '..')
const { values: flags } = parseArgs({ options: { json: { type: 'boolean', default: false } } })
const programs = await Promise.all(
  Object.entries(TRUSTED_PROGRAMS).map(async ([name, program]) => ({
    name,
    program,
    lines: await trustedLines(repo, program),
  })),
)

if (flags.json) {
  const figures = programs.map(({ name, program: { budget, aim }, lines: { own, npm, parts } }) => [
    name,
    { own, npm, budget, aim, parts: Object.fromEntries(parts) },
  ])
  print(JSON.stringify(Object.fromEntries(figures), null, 2))
} else {
  for (const { name, program, lines } of programs) {
    const { budget, aim } = program
    print(`${name}: ${lines.own} own lines (budget ${budget.own}, aim ${aim.own})`)
    print(`  ${lines.npm} lines of packages (budget ${budget.npm}, aim ${aim.npm})`)
    for (const [part, count] of lines.parts) print(`  ${String(count).padStart(6)}  ${part}`)
  }
}
