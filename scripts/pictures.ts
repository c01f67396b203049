#!/usr/bin/env bun
// Makes the pictures that README shows. Usage: bun scripts/pictures.ts console|demo
//   console  the golden pictures of the console, from its page with scripted data (seconds)
//   demo     a recording of scripts/demo, which it runs on this machine as root (2 minutes; 15 if images are built)

import { writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { runCommand } from './lib/command.ts'
import { printError } from './lib/terminal.ts'
import { type RecordedLine, recordingSvg } from './pictures/recording.ts'

const root = resolve(import.meta.dir, '..')
const recording = join(root, 'scripts/pictures/demo.svg')
const consoleTest = 'test/console/web/pictures.slow.test.ts'
const demoTimeoutMs = 7_200_000
const consoleTimeoutMs = 600_000

async function main(argv: readonly string[]): Promise<number> {
  if (argv.length === 1 && argv[0] === 'console') return await pictureConsole()
  if (argv.length === 1 && argv[0] === 'demo') return await recordDemo()
  printError('usage: bun scripts/pictures.ts console|demo')
  return 2
}

async function pictureConsole(): Promise<number> {
  const { exitCode } = await runCommand([process.execPath, 'test', `./${consoleTest}`], {
    cwd: root,
    timeoutMs: consoleTimeoutMs,
    env: { STRONGROOM_GOLDEN: 'write' },
    onLine: printError,
  })
  return exitCode ?? 1
}

/** A failed demonstration leaves the last recording as it is. */
async function recordDemo(): Promise<number> {
  const startMs = performance.now()
  const lines: RecordedLine[] = []
  const { exitCode } = await runCommand([join(root, 'scripts/demo')], {
    cwd: root,
    timeoutMs: demoTimeoutMs,
    onLine: text => {
      printError(text)
      lines.push({ text, atMs: performance.now() - startMs })
    },
  })
  if (exitCode !== 0) return exitCode ?? 1
  writeFileSync(recording, recordingSvg(lines, { command: './scripts/demo', rows: 30, columns: 110, playSeconds: 45 }))
  printError(`written: ${recording}`)
  return 0
}

process.exitCode = await main(process.argv.slice(2))
