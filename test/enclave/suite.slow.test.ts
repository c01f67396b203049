// The gateway's whole suite once more, against the enclave: a process of its own, fed by the host's side of it, over HTTPS.

import { expect, test } from 'bun:test'
import { gatewayTestFiles, runAgainstEnclave, testsOf } from '../rigs/enclave-suite.ts'

const suiteMs = 900_000

test(
  'goal: every test of the gateway passes in the enclave, too, or says why it needs the host',
  async () => {
    const files = gatewayTestFiles()
    const expected = await testsOf(files)
    const run = await runAgainstEnclave(files, suiteMs)
    for (const { test: name, reason } of run.left) process.stdout.write(`not run: in the enclave: ${name}: ${reason}\n`)
    if (run.failed > 0) process.stderr.write(run.output)
    expect([run.failed, run.problems]).toEqual([0, []])
    // None is missing, and each that was left out has a reason of its own.
    const nameOf = ({ file, name }: { file: string; name: string }) => `${file}: ${name}`
    expect(run.cases.map(nameOf).toSorted()).toEqual(expected.map(nameOf).toSorted())
    const skipped = run.cases.filter(one => one.outcome === 'skipped').map(nameOf)
    expect(run.left.map(one => one.test).toSorted()).toEqual(skipped.toSorted())
    expect(run.passed).toBe(expected.length - skipped.length)
    process.stderr.write(`in the enclave: ${run.passed} of ${expected.length} tests of ${files.length} files\n`)
  },
  suiteMs + 60_000,
)
