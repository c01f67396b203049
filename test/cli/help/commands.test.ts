// The commands that pages print exist, with the options that they print; commands that need no host run.

import { expect, test } from 'bun:test'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { Command } from 'commander'
import { silentProgram } from '../../../scripts/package/command-tree.ts'
import { readTree, root } from '../../meta/tree.ts'

const program = silentProgram()
const pages = readTree('README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'src/cli/help/*.md')

/** Lines of code blocks, joined where a backslash ends them, without comments. */
const lines = [...pages].flatMap(([path, text]) => codeLines(text).map(line => ({ path, line })))
const commands = lines.filter(({ line }) => line.startsWith('strongroom '))

function codeLines(text: string): string[] {
  const fenced = [...text.matchAll(/^```sh\n([\s\S]*?)^```/gm)].map(([, code = '']) => code)
  const code = fenced.join('\n').replace(/\\\n\s*/g, ' ')
  return code.split('\n').map(line => line.replace(/\s+#.*$/, '').trim())
}

/** Null, or what the command line would not take. */
function faultOf(line: string): string | null {
  const words = line
    .replaceAll(/"[^"]*"|\$\([^)]*\)/g, 'X')
    .split(/\s+/)
    .slice(1)
  let command: Command = program
  let at = 0
  for (; at < words.length; at += 1) {
    const names = (words[at] ?? '').split('|')
    const found = names.map(name => command.commands.find(candidate => candidate.name() === name))
    if (found.includes(undefined)) break
    command = found[0] ?? command
  }
  if (command === program) return `${line}: no such command`
  const next = words[at]
  const wantsCommand = command.commands.length > 0 && next !== undefined && /^[a-z-]+$/.test(next)
  if (wantsCommand) return `${line}: ${command.name()} has no command ${next}`
  const known = [...command.options, ...program.options].map(option => option.long)
  const options = words.slice(at).flatMap(word => /^\[?(--[a-z0-9-]+)/.exec(word)?.[1] ?? [])
  const unknown = options.filter(option => option !== '--help' && !known.includes(option))
  return unknown.length === 0 ? null : `${line}: no option ${unknown.join(', ')}`
}

test('goal: every command of every page is one of the command line, options included', () => {
  expect(commands.length).toBeGreaterThan(40)
  expect(commands.flatMap(({ path, line }) => faultOf(line)?.replace(/^/, `${path}: `) ?? [])).toEqual([])
})

test('goal: a command and an option that are not there are found', () => {
  expect(faultOf('strongroom nothing')).toContain('no such command')
  expect(faultOf('strongroom org destroy acme')).toContain('no command destroy')
  expect(faultOf('strongroom org create acme --force')).toContain('no option --force')
  expect(faultOf('strongroom org create acme --json')).toBeNull()
})

test('goal: the scripts that pages name are there', () => {
  const scripts = lines.flatMap(({ line }) => line.match(/(?<![\w/.])(?:\.\/)?scripts\/[\w./-]+/g) ?? [])
  expect(scripts.length).toBeGreaterThan(5)
  expect(scripts.filter(path => !existsSync(join(root, path)) && !path.includes('*'))).toEqual([])
})

test('goal: commands that need neither host nor files run as they are printed', async () => {
  const runnable = [
    'strongroom config reference',
    'strongroom verify tcb-floors',
    'strongroom verify policy-example > policy.json',
  ]
  for (const line of runnable) {
    expect(lines.some(({ line: printed }) => printed.startsWith(line))).toBe(true)
    const argv = (line.split(' > ')[0] ?? '').split(' ').slice(1)
    const child = Bun.spawn([process.execPath, join(root, 'src/main.ts'), ...argv], { stdout: 'pipe', stderr: 'pipe' })
    const [text, exitCode] = await Promise.all([new Response(child.stdout).text(), child.exited])
    expect([line, exitCode, text.length > 100]).toEqual([line, 0, true])
  }
})
