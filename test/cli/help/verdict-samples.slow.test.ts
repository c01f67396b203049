// Goal: the sample verdicts of `help pass` and `help receipts` are what the commands print, line by line, with any text
// in the place of `…`.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { clearRig, newNonce, openRig, receiptKeys } from '../../../scripts/rigs/gateway/attestation.ts'
import { carriedReceipt } from '../../../src/attest/receipt/response.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { outsideGateway } from '../../rigs/enclave/outside-gateway.ts'
import { everything, file, startGateway, writeCaFile } from '../../rigs/gateway/attested-servers.ts'
import { startInstanceApi } from '../../rigs/instances/instance-api.ts'
import { sampleInstance, samplePublicKey } from '../../rigs/instances/instance-attestation.ts'
import { runHere } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-verdict-samples-'))
afterAll(() => rmSync(dir, { recursive: true }))
afterAll(clearRig)

/** Code blocks of a topic that begin with a verdict, in its order. */
function samplesOf(topic: string): string[] {
  const text = readFileSync(join(import.meta.dir, `../../../src/cli/help/${topic}.md`), 'utf8')
  return [...text.matchAll(/```text\n(VERDICT: [\s\S]*?)```/g)].map(([, sample = '']) => sample)
}

/** Each line of the one with what it has to look like. */
function expectSample(sample: string | undefined, printed: string): void {
  const lines = printed.trimEnd().split('\n')
  const patterns = (sample ?? '').trimEnd().split('\n').map(patternOf)
  expect(lines).toEqual(patterns.map(pattern => expect.stringMatching(pattern)))
}

function patternOf(line: string): RegExp {
  const literal = line.split('…').map(text => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
  return new RegExp(`^${literal.join('.*')}$`)
}

const upstreams = [{ name: 'rack-7', url: 'https://10.0.0.5:8000/v1', models: ['llama-70b'] }]

test('goal: an instance', async () => {
  await using api = await startInstanceApi(dir)
  const argv = ['verify', 'instance', sampleInstance.hostname, '--api', api.url, '--no-known-hosts', ...api.options]
  const { code, stdout } = await runHere([...argv, '--public-key', samplePublicKey])
  expect(code).toBe(0)
  expectSample(samplesOf('pass')[0], stdout)
})

test('goal: a gateway with an upstream and a setting that were allowed, and that were not', async () => {
  using server = await startGateway(await outsideGateway(upstreams, { usageLabels: true }))
  const trust = (await everything()).slice(0, 4)
  const argv = ['verify', 'gateway', server.url, '--ca', writeCaFile(), ...trust]
  const allowed = ['--allow-outside', 'rack-7=https://10.0.0.5:8000', '--allow', 'usage-labels']
  const good = await runHere([...argv, ...allowed])
  expect(good.code).toBe(0)
  const [, passed, failed, ...more] = samplesOf('pass')
  expect(more).toEqual([])
  expectSample(passed, good.stdout)
  const bad = await runHere(argv)
  expect(bad.code).toBe(6)
  expectSample(failed, bad.stdout)
})

test('goal: a response', async () => {
  const gateway = await outsideGateway([])
  using rig = await openRig(gateway)
  const nonce = newNonce()
  const attestation = file('attestation.json', (await rig.get(`?nonce=${nonce}`)).body)
  const [request, response] = ['{"model":"tiny"}', '{"id":"req_1"}']
  const by = { clock: systemClock, random: systemRandom, inside: new Set(['built-in']) }
  const sealer = createResponseSealer({ keys: receiptKeys(), ...by })
  const begun = sealer.begin({ id: 'req_1', model: 'tiny', body: utf8(request), keyMadeBy: 'client', owner: 'o1' })
  const sealing = begun.seal('built-in')
  sealing.update(utf8(response))
  const receipt = carriedReceipt(await sealing.finish({ prompt: 3, completion: 4 }), begun.salt)
  writeFileSync(join(dir, 'workload.json'), gateway.workload)
  const { code, stdout } = await runHere([
    ...['verify', 'response', '--request', file('rq.json', request), '--response', file('rs.json', response)],
    ...['--receipt', file('receipt.txt', receipt), '--attestation', attestation, '--nonce', nonce],
    ...['--workload', join(dir, 'workload.json'), ...(await everything()).slice(0, 4)],
  ])
  expect(code).toBe(0)
  expectSample(samplesOf('receipts')[0], stdout)
})
