// Goal: `strongroom init` at a real terminal: a person sees each question, corrects an answer, and stops at any time
// with nothing changed and the terminal in order.

import { afterEach, beforeEach, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { atTerminal, CTRL_C, CTRL_D, type Typed } from '../../../scripts/rigs/terminal.ts'
import { QUESTIONS } from '../../../src/cli/init/questions.ts'

const main = resolve(import.meta.dir, '../../../src/main.ts')
const patienceMs = 30_000
const enter = '\r'
const [domain = '', address = '', network = '', inference = '', builds = '', organization = ''] = QUESTIONS.map(
  ({ text }) => text,
)

let directory: string
let text: string
let init: Typed

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'strongroom-init-'))
  // The check of the host ends here, before a canary.
  text = `platform = "tcg"\n[vm]\nimage_dir = "${directory}/none"\n`
  writeFileSync(join(directory, 'strongroom.toml'), text)
  const words = ['--config', join(directory, 'strongroom.toml'), '--state-dir', join(directory, 'state'), 'init']
  // Afterwards the terminal says how it was left.
  const script = '"$@"; echo "ended with $?"; stty -a'
  init = atTerminal(['sh', '-c', script, 'sh', process.execPath, main, ...words])
})

afterEach(() => {
  init.kill()
  rmSync(directory, { recursive: true })
})

const asked = (question: string) => init.printed(question, patienceMs)
const ends = async (exitCode: number) => {
  await init.printed(`ended with ${exitCode}\n`, patienceMs)
  await init.exited
  const settings = init.screen().split(/\s+/)
  expect(['icanon', 'echo', 'isig'].filter(name => !settings.includes(name))).toEqual([])
  expect(readFileSync(join(directory, 'strongroom.toml'), 'utf8')).toBe(text)
  expect(readdirSync(directory)).toEqual(['strongroom.toml'])
}

test('goal: each question shows its default, a wrong answer is explained and asked for again', async () => {
  await asked(`${domain} [agents.internal]: `)
  init.type(`Not A Name${enter}`)
  await init.printed('a DNS name in lowercase', patienceMs)
  await asked(domain)
  init.type(`agents.tess\x7ft${enter}`)
  await asked(`${address} [""]: `)
  init.type(`192.0.2.1${enter}`)
  await asked(network)
  init.type(enter)
  await asked(inference)
  init.type(`""${enter}`)
  await asked(builds)
  init.type(enter)
  await asked(`${organization} [first]: `)
  init.type(`acme${enter}`)
  await init.printed('image', patienceMs)
  await ends(1)
})

test('goal: what is pasted at once answers one question after the other', async () => {
  await asked(domain)
  init.type(`agents.test${enter}192.0.2.1${enter}10.9.0`)
  await asked(`${address} [""]: `)
  await init.printed('192.0.2.1\n', patienceMs)
  await asked(network)
  init.type(`.0/24${enter}`)
  await init.printed('10.9.0.0/24', patienceMs)
  await asked(inference)
  init.type(CTRL_D)
  await init.printed('nothing was changed', patienceMs)
  await ends(2)
})

test('goal: Ctrl-C at any question ends it by SIGINT, as everywhere', async () => {
  await asked(domain)
  init.type(`agents.test${enter}`)
  await asked(address)
  init.type(`192.0.2${CTRL_C}`)
  await ends(130)
})

test('goal: three wrong answers end it', async () => {
  for (let attempt = 0; attempt < 3; attempt += 1) {
    await asked(domain)
    init.type(`${attempt}!${enter}`)
  }
  await init.printed('nothing was changed', patienceMs)
  await ends(2)
})
