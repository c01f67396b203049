// strongroom-verify over a real agent and a real sshd, as far as that goes without a VM.

import { expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { makeHostEnd, makePortPaths } from '../../../scripts/rigs/guest/agent-port.ts'
import {
  attestedGateway,
  makeClaim,
  makeCustomerKey,
  makeSandbox,
  type Sandbox,
  seal,
} from '../../../scripts/rigs/guest/root.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { encodePolicy } from '../../../src/attest/policy/encode.ts'
import { strictPolicy } from '../../../src/attest/policy/policy.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { policyText } from '../../../src/client/verify/policy-text.ts'
import { verify } from '../../../src/guest/verify/command.ts'
import { simulatedLaunch, vouchFor } from '../../rigs/enclave/vouch.ts'
import { ask, startAgent } from '../../rigs/guest/agent-process.ts'

async function verifyIn({ paths, sshPort }: Sandbox, argv: readonly string[]) {
  let printed = ''
  let complaint = ''
  const exitCode = await verify(argv, {
    paths,
    sshPort,
    name: 'abcd1234',
    nowMs: systemClock.nowMs,
    write: text => {
      printed += text
    },
    complain: text => {
      complaint += text
    },
  })
  return { exitCode, complaint, printed, words: printed.split('\n').map(line => line.split(':')[0]) }
}

// Goal: the five lines come from the receipt through the agent, the key that sshd presents and the agent's own facts;
// before the claim nothing is good; the same receipt in another instance, or with another key behind sshd, fails.
test('five lines', async () => {
  await using sandbox = await makeSandbox()
  const { publicKey } = makeCustomerKey(sandbox)
  const port = makePortPaths(sandbox)
  await using _agent = startAgent(sandbox, port)
  using host = await makeHostEnd(port)
  const { hello } = await ask(host, { id: 'h', op: 'hello' })
  const unclaimed = await verifyIn(sandbox, [])
  expect(unclaimed.exitCode).toBe(1)
  expect(unclaimed.words).toEqual([
    'NOT CHECKED  hardware attestation',
    'NOT CHECKED  TPM measurements',
    'FAIL         host-key binding',
    'NOT CHECKED  inference provider attestation',
    'FAIL         external-access lockout',
    '',
  ])

  const inference = {
    baseUrl: 'https://127.0.0.1:1/v1',
    address: null,
    model: 'none',
    drawsKey: false,
    gateway: { ...attestedGateway, simulatedRoot: null },
  }
  await ask(host, { id: 'c', op: 'claim', sealed: seal(makeClaim(publicKey, { inference }), hello.boxKey) })
  const nonce = toBase64Url(systemRandom(32))
  const { evidence } = await ask(host, { id: 'e', op: 'evidence', nonce, simulated: simulatedLaunch })
  const { receipt, rootPem } = await vouchFor(evidence)
  expect(await ask(host, { id: 'r', op: 'receipt', receipt })).toEqual({ id: 'r', ok: true })
  const rootPath = `${sandbox.root}/root.pem`
  fs.writeFileSync(rootPath, rootPem)
  const trusting = ['--trust-simulated-root', rootPath]
  const found = await verifyIn(sandbox, trusting)
  expect(found.words.slice(0, 4)).toEqual([
    'FAIL         hardware attestation',
    'NOT CHECKED  TPM measurements',
    'PASS         host-key binding',
    'NOT CHECKED  inference provider attestation',
  ])
  expect(found.printed).toContain(
    'hardware attestation: SIMULATED: no hardware attests this VM; the rest of its evidence is good',
  )
  // Only the claim's key is there; other checks fail, because the sandbox is no VM. The agent repeats its last answer
  // for a second: here that was before the claim.
  let document = JSON.parse('{}')
  await until("the claim's key is seen", 60_000, async () => {
    document = JSON.parse((await verifyIn(sandbox, ['--json', ...trusting])).printed)
    const keys = document.lines.at(-1).checks.find((check: { name: string }) => check.name === 'authorized-keys')
    return keys.outcome === 'pass'
  })
  expect(document.lines.at(-1).checks).toHaveLength(12)
  expect(document).toMatchObject({ schemaVersion: 1, ok: false, simulated: true, excused: [] })
  expect((await verifyIn(sandbox, [])).words[2]).toBe('NOT CHECKED  host-key binding')

  fs.appendFileSync(sandbox.paths.authorizedKeys, `${publicKey} second\n`)
  // The agent repeats its last answer for a second.
  await until('the second key is seen', 60_000, async () => {
    const { printed } = await verifyIn(sandbox, ['--verbose', ...trusting])
    return printed.includes("FAIL         authorized-keys: 2 keys can log in, not only the owner's")
  })
})

// Goal: the owner's policy file may have the comments of `verify policy init`.
test('a policy with comments', async () => {
  await using sandbox = await makeSandbox()
  const file = `${sandbox.root}/policy.json`
  fs.writeFileSync(file, policyText(encodePolicy(strictPolicy())))
  expect(await verifyIn(sandbox, ['--policy', file])).toMatchObject({ exitCode: 1, complaint: '' })
})

// Goal: wrong arguments and files are named, with the usage, and exit with 2.
test('wrong arguments', async () => {
  await using sandbox = await makeSandbox()
  const file = `${sandbox.root}/file`
  fs.writeFileSync(file, '{}')
  for (const [argv, words] of [
    [['--nonsense'], 'nonsense'],
    [['extra'], 'extra'],
    [['--policy', '/nonexistent'], '--policy /nonexistent: '],
    [['--policy', file], `--policy ${file}: `],
    [['--allowlist', file], `--allowlist ${file}: `],
    [['--trust-simulated-root', file], `--trust-simulated-root ${file}: `],
    [['--waive-floor', 'snp'], '--waive-floor snp: it is not part=reason'],
    [['--waive-floor', 'all=a lab'], '--waive-floor all=a lab: there is no part "all"'],
    [['--waive-floor', 'snp=a', '--waive-floor', 'snp=b'], 'snp is waived twice'],
  ] as const) {
    const { exitCode, complaint, printed } = await verifyIn(sandbox, argv)
    expect([exitCode, printed]).toEqual([2, ''])
    expect(complaint).toContain(words)
    expect(complaint).toContain('usage: strongroom-verify')
  }
})
