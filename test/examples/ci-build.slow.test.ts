// Goal: the CI job ends with 0 only where both verdicts are PASS, and uses options that the executable has.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runCommand } from '../../scripts/lib/command.ts'
import { root } from '../meta/tree.ts'

const script = join(root, 'examples/ci-build/build.sh')
const work = mkdtempSync(join(tmpdir(), 'strongroom-ci-'))

/** Stands for the executable: keeps its arguments, ends as the test says. */
const executable = `#!/bin/sh
echo "$*" >> "$ASKED"
case $1 in
  build) printf '{"state":"ok","archive":"out/job.tar.gz","directory":"out/demo"}\\n'; exit "$SUBMIT" ;;
  verify) echo "VERDICT: $WORD"; exit "$VERIFY" ;;
esac
`

beforeAll(() => writeFileSync(join(work, 'strongroom'), executable, { mode: 0o755 }))
afterAll(() => rmSync(work, { recursive: true, force: true }))

async function run(env: Readonly<Record<string, string>>) {
  const asked = join(work, 'asked')
  rmSync(asked, { force: true })
  const settings = {
    STRONGROOM_BUILDS_API: 'https://builds.example:8443',
    STRONGROOM_POLICY: 'policy.json',
    ASKED: asked,
    ...{ PATH: `${work}:${process.env.PATH}`, SUBMIT: '0', VERIFY: '0', WORD: 'PASS', ...env },
  }
  const { exitCode, output } = await runCommand([script, 'source'], { timeoutMs: 60_000, cwd: work, env: settings })
  return { exitCode, output, calls: readFileSync(asked, 'utf8').trim().split('\n') }
}

test('goal: a job that passes verifies the archive again, for the same fresh nonce', async () => {
  const [first, second] = [await run({}), await run({})]
  expect([first.exitCode, first.output]).toEqual([0, 'VERDICT: PASS'])
  const nonces = first.calls.map(call => /--nonce ([0-9a-f]{32}) /.exec(call)?.[1])
  expect([first.calls.length, new Set(nonces).size]).toEqual([2, 1])
  expect(first.calls[1]).toStartWith('verify build out/job.tar.gz')
  expect(second.calls[0]).not.toBe(first.calls[0] ?? '')
})

test('goal: a job writes nothing into its source but the directory that no source includes', async () => {
  rmSync(join(work, 'strongroom-out'), { recursive: true, force: true })
  await run({})
  expect(readdirSync(work).toSorted()).toEqual(['asked', 'strongroom', 'strongroom-out'])
  expect(readdirSync(join(work, 'strongroom-out')).toSorted()).toEqual(['submit.json', 'verdict.txt'])
})

test('goal: a build or a verdict that fails is the exit status of the job', async () => {
  expect(await run({ SUBMIT: '1' })).toMatchObject({ exitCode: 1, calls: [expect.stringContaining('build submit')] })
  expect(await run({ VERIFY: '1', WORD: 'FAIL' })).toMatchObject({ exitCode: 1, output: 'VERDICT: FAIL' })
})

test('goal: the executable has every option that the job uses', async () => {
  const text = readFileSync(script, 'utf8').replaceAll(/^ *#.*$/gm, '')
  for (const [words, pattern] of [
    [['build', 'submit'], /build submit[\s\S]*?>/],
    [['verify', 'build'], /verify build[\s\S]*?>/],
  ] as const) {
    const argv = [process.execPath, join(root, 'src/main.ts'), ...words, '--help']
    const { output } = await runCommand(argv, { timeoutMs: 60_000 })
    const options = [...(pattern.exec(text)?.[0] ?? '').matchAll(/--[a-z-]+/g)].map(String)
    expect(options.length).toBeGreaterThan(2)
    for (const option of options) expect(output).toContain(option)
  }
})
