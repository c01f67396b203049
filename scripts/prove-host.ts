#!/usr/bin/env bun
// Proves in booted Debians what a host owes to its operator, from the first package to the last: problems, metrics,
// alerts, init, packages, IPv6, own model servers, day two, events, firewalls, and programs that maintain a host.
// Prints each step with its time, and a table at the end. Needs root; builds what is missing.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { messageOf } from '../src/base/fault.ts'
import { runCommand } from './lib/command.ts'
import { runSteps, type Steps } from './lib/steps.ts'
import { print } from './lib/terminal.ts'
import { bootTree } from './prove/host.ts'
import { makePackages, type ProvedPackages } from './prove/packages.ts'
import { PARTS } from './prove/parts.ts'
import { type Proof, service } from './prove/proof.ts'
import { exitStatusOf, type Outcome, tableLines } from './prove/rows.ts'
import { provedDebianTree, type Release } from './rigs/booted/tree.ts'
import { unpackPromtool } from './rigs/monitoring/promtool.ts'
import { createNetns, isRoot } from './rigs/netns.ts'

const usage = `usage: bun scripts/prove-host.ts [12] [13]

  Without arguments both releases of Debian, one after the other. The exit status is 1 if a row of the table is FAIL.
`

const repo = resolve(import.meta.dir, '..')
const insideVariable = 'STRONGROOM_PROVE_INSIDE'
const releaseTimeoutMs = 3_600_000
/** Lines of the service's journal, printed where a part fails. */
const journalLines = 40

type Inside = { readonly directory: string; readonly packages: ProvedPackages; readonly release: Release }

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { help: { type: 'boolean', default: false } },
})
const releases = positionals.length === 0 ? ([12, 13] as const) : positionals.map(releaseOf)

if (values.help) process.stdout.write(usage)
else if (!isRoot) {
  process.stderr.write('prove-host: needs root, for containers and network namespaces\n')
  process.exitCode = 1
} else {
  const inside = process.env[insideVariable]
  // Sessions and receivers that a failed part left open end with this process.
  process.exit(inside === undefined ? await outside() : await prove(JSON.parse(inside) as Inside))
}

/** Builds where the network is, then runs itself again in a namespace for each release, where the container lives. */
async function outside(): Promise<number> {
  for (const release of releases) await provedDebianTree(release)
  const directory = mkdtempSync('/var/tmp/srt-prove-')
  try {
    const packages = await makePackages(repo, directory, print)
    // Its download stays in the cache: the parts run where there is no network.
    const prometheus = await unpackPromtool(join(directory, 'prometheus'))
    if ('reason' in prometheus) print(`Prometheus cannot be got: ${prometheus.reason}`)
    const outcomes: Outcome[] = []
    let status = 0
    for (const release of releases) {
      using netns = createNetns()
      const inside: Inside = { directory, packages, release }
      const argv = netns.argv([process.execPath, import.meta.path])
      const env = { [insideVariable]: JSON.stringify(inside) }
      const { exitCode } = await runCommand(argv, { timeoutMs: releaseTimeoutMs, env, onLine: print })
      status ||= exitCode ?? 1
      outcomes.push(...outcomesOf(inside))
    }
    for (const line of ['', ...tableLines(outcomes, releases)]) print(line)
    return status || exitStatusOf(outcomes)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

function outcomesFile({ directory, release }: Inside): string {
  return join(directory, `outcomes-${release}.json`)
}

/** An interrupted run has those of the parts that had ended. */
function outcomesOf(inside: Inside): Outcome[] {
  try {
    return JSON.parse(readFileSync(outcomesFile(inside), 'utf8')) as Outcome[]
  } catch {
    return []
  }
}

async function prove(inside: Inside): Promise<number> {
  const { release, packages, directory } = inside
  const outcomes: Outcome[] = []
  const status = await runSteps(async ({ step, note, defer, signal }) => {
    const host = await step(`Debian ${release} boots`, async () => {
      const booted = await bootTree(await provedDebianTree(release), [directory])
      defer('the container', () => booted[Symbol.asyncDispose]())
      return booted
    })
    const proof: Proof = { host, packages, release, step, note, defer, directory, state: {} }
    let lost: string | null = null
    for (const part of PARTS) {
      note(`${part.row}: ${part.name}`)
      const startedMs = performance.now()
      const result = lost === null ? await resultOf(part.run(proof), proof, signal) : ({ untried: lost } as const)
      const tookMs = performance.now() - startedMs
      outcomes.push({ row: part.row, release, part: part.name, tookMs, result })
      writeFileSync(outcomesFile(inside), JSON.stringify(outcomes))
      if (part.isGround && result !== 'ok') lost ??= `${part.name} has failed`
    }
  })
  return status || exitStatusOf(outcomes)
}

/** A part that fails ends no other. */
async function resultOf(
  running: Promise<undefined | string>,
  { host, note }: Proof,
  signal: Steps['signal'],
): Promise<Outcome['result']> {
  try {
    const untried = await running
    return untried === undefined ? 'ok' : { untried }
  } catch (error) {
    if (signal.aborted) throw error
    note(error instanceof Error ? (error.stack ?? error.message) : String(error))
    for (const line of host.debian.journal(service).trimEnd().split('\n').slice(-journalLines)) note(line)
    return { failed: messageOf(error) }
  }
}

function releaseOf(text: string): Release {
  if (text === '12') return 12
  if (text === '13') return 13
  throw new Error(`${text}: name 12 or 13`)
}
