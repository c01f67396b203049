// strongroom verify response: a saved exchange, with the receipt beside it or in the stream.

import { afterAll, expect, test } from 'bun:test'
import { clearRig, newNonce, openRig, receiptKeys } from '../../../scripts/rigs/gateway/attestation.ts'
import { carriedReceipt, receiptComment } from '../../../src/attest/receipt/response.ts'
import { utf8 } from '../../../src/base/bytes.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { makeReceiptKeys } from '../../../src/inference/attestation/receipt-keys.ts'
import { createResponseSealer } from '../../../src/inference/attestation/response-sealer.ts'
import { everything, file } from '../../rigs/gateway/attested-servers.ts'
import { checksOf, expectUsageError, runHere } from '../../rigs/program.ts'

afterAll(clearRig)

const rig = await openRig()
afterAll(() => rig[Symbol.dispose]())
const nonce = newNonce()
const attestation = file('attestation.json', (await rig.get(`?nonce=${nonce}`)).body)
const all = await everything()

const request = '{"model":"tiny","prompt":"x"}'
const plain = '{"id":"req_1"}'
const events = ['data: {"n":1}\n\n', 'data: [DONE]\n\n']

type Exchange = { readonly request?: string; readonly response: string; readonly receipt?: string }

async function seal(body: string, { keys = receiptKeys(), upstream = 'built-in' } = {}): Promise<string> {
  const sealer = createResponseSealer({ keys, clock: systemClock, random: systemRandom, inside: new Set(['built-in']) })
  const begun = sealer.begin({ id: 'req_1', model: 'tiny', body: utf8(request), keyMadeBy: 'client', owner: 'o1' })
  const item = begun.seal(upstream)
  item.update(utf8(body))
  return carriedReceipt(await item.finish({ prompt: 3, completion: 4 }), begun.salt)
}

async function verify(files: Exchange, ...more: string[]) {
  return await verifyBy(all, files, ...more)
}

async function verifyBy(trust: readonly string[], files: Exchange, ...more: string[]) {
  const { response, receipt } = files
  const beside = receipt === undefined ? [] : ['--receipt', file('receipt.txt', receipt)]
  const argv = [
    ...['verify', 'response', '--request', file('request.json', files.request ?? request)],
    ...['--response', file('response.txt', response), '--attestation', attestation, ...beside, ...trust, ...more],
  ]
  const [people, programs] = [await runHere(argv), await runHere([...argv, '--json'])]
  expect(people.code).toBe(programs.code)
  const document = JSON.parse(programs.stdout)
  return { code: people.code, text: people.stdout, document, failed: checksOf(document, 'FAIL') }
}

test('goal: a plain response and a stream verify, offline, and the document says what the receipt claims', async () => {
  const [first = '', end = ''] = events
  const receipt = await seal(events.join(''))
  const exchanges = [
    { response: plain, receipt: `${await seal(plain)}\n` },
    { response: first + receiptComment(receipt) + end },
    { response: first + receiptComment(receipt) + end, receipt },
  ]
  for (const exchange of exchanges) {
    const { code, text, document, failed } = await verify(exchange, '--nonce', nonce)
    expect([failed, code, document.ok, document.simulated]).toEqual([[], 0, true, true])
    expect(document.response).toMatchObject({
      request_id: 'req_1',
      model: 'tiny',
      upstream: 'built-in',
      coverage: 'inside',
      prompt_tokens: 3,
      completion_tokens: 4,
    })
    expect(text).toContain('answered by model tiny, inside the measured VM, by the upstream built-in\n')
    expect(text).toContain('VERDICT: PASS SIMULATED')
    expect(text).toMatch(
      /^you may +trust this response, for tests alone\n +it is the answer to this very request, req_1, /m,
    )
  }
})

test('goal: without the nonce the attestation may be an old one, and the verdict says so', async () => {
  const { code, document } = await verify({ response: plain, receipt: await seal(plain) })
  expect([code, checksOf(document, 'NOT CHECKED')]).toEqual([0, ['attestation-nonce', 'tls-binding']])
})

test('goal: another request, response, receipt, gateway or nonce fails, each in its own line', async () => {
  const good = await seal(plain)
  const receipt = await seal(events.join(''))
  const [first = '', end = ''] = events
  const stream = first + receiptComment(receipt) + end
  const signatures = ['response-signature-ed25519', 'response-signature-mldsa65']
  const found = [
    await verify({ request: `${request} `, response: plain, receipt: good }),
    await verify({ response: plain.replace('1', '2'), receipt: good }),
    await verify({ response: plain, receipt: good.slice(0, -2) }),
    await verify({ response: plain }),
    await verify({ response: stream, receipt: good }),
    await verify({ response: `${stream}data: {}\n\n` }),
    await verify({ response: first + receiptComment(receipt) + receiptComment(receipt) + end }),
    await verify({ response: plain, receipt: await seal(plain, { keys: makeReceiptKeys(systemRandom) }) }),
    await verify({ response: plain, receipt: good }, '--nonce', newNonce()),
  ]
  expect(found.map(found => found.failed)).toEqual([
    ['response-request'],
    ['response-answer'],
    ['response-format'],
    ['response-receipt'],
    ['response-receipt'],
    ['response-receipt'],
    ['response-receipt'],
    ['response-keys', ...signatures],
    ['attestation-nonce'],
  ])
  // One has no form that could be read.
  expect(found.map(found => found.code)).toEqual([1, 1, 2, 1, 1, 1, 1, 1, 1])
})

test('goal: a receipt that was fetched later verifies with the salt of its response, and says which header has it when it is missing', async () => {
  const [bare = '', salt = ''] = (await seal(plain)).split('.')
  const without = await verify({ response: plain, receipt: bare })
  expect([without.code, without.failed]).toEqual([1, ['response-salt']])
  expect(without.text).toContain("give the value of the response's X-Strongroom-Receipt-Salt")
  expect((await verify({ response: plain, receipt: bare }, '--salt', salt)).code).toBe(0)
})

test('goal: an answer from an upstream that nothing vouches for fails, unless its name is allowed, which the verdict repeats', async () => {
  const outside = { response: plain, receipt: await seal(plain, { upstream: 'other' }) }
  const refused = await verify(outside)
  expect([refused.code, refused.failed]).toEqual([6, ['response-upstream']])
  expect(refused.text).toContain('upstream "other" answered, OUTSIDE what the attestation covers')
  expect(refused.text).toMatch(/^try next +strongroom verify response .* --allow-outside other$/m)
  const accepted = await verify(outside, '--allow-outside', 'other')
  expect([accepted.code, accepted.failed]).toEqual([0, []])
  expect(accepted.document.response).toMatchObject({ upstream: 'other', coverage: 'outside' })
  expect(accepted.text).toContain(
    'answered by model tiny, upstream "other", OUTSIDE what the attestation covers: the caller allowed its name\n',
  )
  const inside = await verify({ response: plain, receipt: await seal(plain) }, '--allow-outside', 'other')
  expect(inside.text).toContain('answered by model tiny, inside the measured VM')
})

test('goal: whatever else was accepted or not checked, the summary names the upstream from outside among what was accepted', async () => {
  const [, root = ''] = all
  const waivers = [
    ...['measurement', 'allowlist', 'vmpl', 'crl', 'tcb'].map(pin => `--any-${pin}`),
    ...['--allow-outside', 'other'],
  ]
  const outside = { response: plain, receipt: await seal(plain, { upstream: 'other' }) }
  const { code, text } = await verifyBy(['--trust-simulated-root', root], outside, ...waivers)
  const lines = text.trimEnd().split('\n')
  const outsideLines = lines.filter(line => line.includes('upstream "other", OUTSIDE what the attestation covers'))
  expect([code, outsideLines.map(line => line.slice(0, 12).trim())]).toEqual([0, ['answered by', '']])
  expect(lines.length).toBeLessThanOrEqual(24)
})

test('goal: a receipt is worth nothing when the attestation is not trusted', async () => {
  const exchange = { response: plain, receipt: await seal(plain) }
  const { code, failed } = await verifyBy(all.slice(2), exchange)
  expect([code, failed]).toEqual([1, expect.arrayContaining(['gateway/evidence'])])
})

test('goal: bad input is refused with exit code 2', async () => {
  const argv = ['verify', 'response', '--request', file('r', request), '--response', file('a', plain)]
  await expectUsageError(argv, '--attestation')
  await expectUsageError([...argv, '--attestation', '/nonexistent'], '--attestation /nonexistent')
  await expectUsageError([...argv, '--attestation', attestation, '--nonce', 'AAAA'], '32 bytes in base64url')
})
