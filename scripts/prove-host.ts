#!/usr/bin/env bun
// Proves in booted Debians what a host owes to its operator: install, init with its canary, upgrade under an open SSH
// session, a failed upgrade and its way back, backup to an empty machine, removal. Prints the time of each step.
// Needs root; builds what is missing. A part that the executable has no command for is named, not passed over.

import { mkdtempSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { runCommand } from './lib/command.ts'
import { runSteps } from './lib/steps.ts'
import { print } from './lib/terminal.ts'
import { commandTree } from './package/command-tree.ts'
import { bootHost } from './prove/host.ts'
import { makePackages } from './prove/packages.ts'
import { PARTS } from './prove/parts.ts'
import { bareDebianTree, type Release } from './rigs/booted/tree.ts'
import { createNetns, isRoot } from './rigs/netns.ts'

const usage = `usage: bun scripts/prove-host.ts [12] [13]

  Without arguments both releases of Debian, one after the other.
`

const repo = resolve(import.meta.dir, '..')
const insideVariable = 'STRONGROOM_PROVE_INSIDE'
const wholeTimeoutMs = 1_800_000
/** Lines of the service's journal, printed where a part fails. */
const journalLines = 40

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { help: { type: 'boolean', default: false } },
})
const releases = positionals.length === 0 ? ([12, 13] as const) : positionals.map(releaseOf)

if (values.help) process.stdout.write(usage)
else if (!isRoot) {
  process.stderr.write('prove-host: needs root, for containers and network namespaces\n')
  process.exitCode = 1
} else process.exitCode = process.env[insideVariable] === undefined ? await outside() : await inside()

/** Builds where the network is, then runs itself again in a namespace of its own, in which the containers live. */
async function outside(): Promise<number> {
  for (const release of releases) await bareDebianTree(release)
  const directory = mkdtempSync('/var/tmp/srt-prove-')
  try {
    const packages = await makePackages(repo, directory, print)
    using netns = createNetns()
    const argv = netns.argv([process.execPath, import.meta.path, ...releases.map(String)])
    const env = { [insideVariable]: JSON.stringify({ directory, packages }) }
    const { exitCode } = await runCommand(argv, { timeoutMs: wholeTimeoutMs, env, onLine: print })
    return exitCode ?? 1
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

async function inside(): Promise<number> {
  const { directory, packages } = JSON.parse(process.env[insideVariable] ?? '{}')
  const commands = commandTree().map(({ path }) => path.slice(1).join(' '))
  let status = 0
  for (const release of releases) {
    const ended = await runSteps(async ({ step, note, defer }) => {
      const host = await step(`Debian ${release} boots`, async () => {
        const booted = await bootHost(release, [directory])
        defer('the container', () => booted[Symbol.asyncDispose]())
        return booted
      })
      for (const part of PARTS) {
        const missing = part.needs.filter(name => !commands.includes(name))
        if (missing.length > 0) {
          note(`not proved: ${part.name}: this executable has no command ${missing.join(', ')}`)
          continue
        }
        try {
          await part.run({ host, packages, release, step, note, directory: join(directory) })
        } catch (error) {
          for (const line of host.debian.journal('strongroom.service').trimEnd().split('\n').slice(-journalLines))
            note(line)
          throw error
        }
      }
    })
    status ||= ended
  }
  return status
}

function releaseOf(text: string): Release {
  if (text === '12') return 12
  if (text === '13') return 13
  throw new Error(`${text}: name 12 or 13`)
}
