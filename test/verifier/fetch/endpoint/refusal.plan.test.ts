// Goal: a person reads why a prompt was not sent, or what became of it, and a client repeats only what
// may succeed without a change.

import { expect, test } from 'bun:test'
import { fail, notChecked, pass } from '../../../../src/attest/verdict.ts'
import { Fault } from '../../../../src/base/fault.ts'
import {
  refusalDocument,
  refusalEvent,
  refusalHeaders,
  refusalOf,
} from '../../../../src/verifier/fetch/endpoint/refusal.plan.ts'
import {
  ConnectionError,
  EncryptionError,
  EvidenceError,
  IncompleteResponseError,
  KeyChangedError,
  KeyMakerError,
  OptionError,
  RequestError,
  VerificationError,
} from '../../../../src/verifier/fetch/errors.ts'

const advice = { verify: 'verify it by hand', change: 'accept the change', where: 'on this machine' }
const of = (error: unknown) => refusalOf(error, { host: 'gw.test', sent: 'The prompt', advice })
const certificate = Object.assign(new Error('it is for b.test'), { name: 'CertificateNameError' })

test('goal: status, code and whether a client may repeat it, for each error, and whether the data was sent', () => {
  const rows = [
    new VerificationError('gw.test', [fail('pin-measurement', 'no')]),
    new KeyChangedError('x'),
    new EvidenceError('x', { status: 503 }),
    new RequestError('x'),
    certificate,
    new Fault('config.invalid', 'x'),
    new OptionError('baseUrl', 'x'),
    new ConnectionError('x'),
    new ConnectionError('x', { isUnsent: true }),
    new IncompleteResponseError('x'),
    new EncryptionError('x', { status: 200 }),
    new KeyMakerError('x', { status: 500 }),
    new TypeError('x'),
    'a text',
  ].map(error => {
    const { status, code, again, message } = of(error)
    return `${status} ${code} ${again ? 'again' : '-'} ${message.includes('The prompt was not sent') ? 'unsent' : '-'}`
  })
  expect(rows).toEqual([
    '424 gateway_not_verified - unsent',
    '424 gateway_key_changed - unsent',
    '503 gateway_no_evidence again unsent',
    '400 invalid_request - unsent',
    '424 gateway_certificate - unsent',
    '424 gateway_unusable - unsent',
    '424 gateway_unusable - unsent',
    '502 gateway_connection again -',
    '503 gateway_connection again unsent',
    '502 gateway_connection again -',
    '502 gateway_encryption - -',
    '500 internal - -',
    '500 internal - -',
    '500 internal - -',
  ])
})

test('goal: the first check that tells why is named, with what to do', () => {
  const checks = [
    pass('attestation-nonce'),
    fail('gateway/evidence', 'a check of it failed'),
    notChecked('gateway/nonce', 'not made', true),
    fail('pin-gateway', 'another'),
  ]
  expect(of(new VerificationError('gw.test', checks)).message).toBe(
    'The prompt was not sent: the gateway at gw.test did not prove what it has to: gateway/nonce: not made. ' +
      'What to do: verify it by hand; accept the change',
  )
  const evidence = of(new VerificationError('gw.test', [fail('gateway/evidence', 'expired')]))
  expect(evidence.message).toContain('has to: gateway/evidence: expired. What to do')
  // A successor that does not verify: the failed check is named, and not only that the key is another one.
  const cause = new VerificationError('gw.test', [fail('measurement', 'another')])
  expect(of(new KeyChangedError('x', { cause }))).toEqual({
    status: 424,
    code: 'gateway_key_changed',
    message:
      'The prompt was not sent: the server at gw.test has another key than the attested gateway, and no valid ' +
      'evidence for it: measurement: another. What to do: verify it by hand; accept the change',
    again: false,
  })
  expect(of(new KeyChangedError('x', { cause: new ConnectionError('y') })).message).toEndWith(
    'no valid evidence for it. What to do: verify it by hand',
  )
})

test('goal: where nothing leaves the machine, what was not sent fails once with that reason, and only that', () => {
  const spent = { ...advice, noRoute: () => 'the limit is spent' }
  const where = { host: 'gw.test', sent: 'The prompt', advice: spent }
  const unsent = {
    status: 424,
    code: 'egress_spent',
    message:
      'The prompt was not sent: the limit is spent. What to do: copy your work away over SSH, or ask the operator to raise the limit',
    again: false,
  }
  const connection = new ConnectionError('refused', { isUnsent: true })
  expect(refusalOf(connection, where)).toEqual(unsent)
  expect(refusalOf(new EvidenceError('no answer', { status: null }), where)).toEqual(unsent)
  // The gateway may have these.
  const cut =
    'The gateway at gw.test did not answer in full: the limit is spent. What to do: copy your work away over SSH, or ask the operator to raise the limit'
  for (const error of [new ConnectionError('cut'), new IncompleteResponseError('cut')]) {
    expect(refusalOf(error, where)).toEqual({ ...unsent, message: cut })
  }
  expect(refusalOf(new RequestError('bad'), where).code).toBe('invalid_request')
  expect(refusalOf(connection, { ...where, advice: { ...advice, noRoute: () => null } }).code).toBe(
    'gateway_connection',
  )
})

test('goal: advice stands once, and what others wrote is one line without control characters, and bounded', () => {
  expect(of(new EvidenceError('it is away. What to do: wait\nlong', { status: null })).message).toBe(
    'The prompt was not sent: it is away. What to do: try again; if it fails again, verify it by hand',
  )
  const { message } = of(new ConnectionError(`a\n\u001b[2J  b${'x'.repeat(1_000)}`))
  expect(message).toStartWith('The gateway at gw.test did not answer in full: a \\x1b[2J bxxx')
  expect(message).toEndWith('x. What to do: try again')
  expect(message.length).toBe('The gateway at gw.test did not answer in full: . What to do: try again'.length + 500)
  expect(of('a text').message).toContain('failed on this machine: no reason. What to do')
})

test('goal: the document and the event are those of the API that the client uses', () => {
  const refusal = (status: number) => ({ status, code: 'c', message: 'm', again: false })
  const typeOf = (path: string, status: number) =>
    Reflect.get(Object(Reflect.get(Object(refusalDocument(path, refusal(status))), 'error')), 'type')
  for (const path of ['/v1/messages', '/v1/chat/completions']) {
    expect([400, 424, 499, 500, 503].map(status => typeOf(path, status))).toEqual([
      ...['invalid_request_error', 'permission_error', 'invalid_request_error', 'api_error', 'api_error'],
    ])
  }
  const anthropic = { type: 'error', error: { type: 'permission_error', message: 'm' } }
  const openai = { error: { message: 'm', type: 'permission_error', param: null, code: 'c' } }
  for (const path of ['/v1/messages', '/v1/messages/count_tokens']) {
    expect(refusalDocument(path, refusal(424))).toEqual(anthropic)
    expect(refusalEvent(path, refusal(424))).toBe(`event: error\ndata: ${JSON.stringify(anthropic)}\n\n`)
  }
  for (const path of ['/v1/responses', '/v1/messagesx', '/v1/models']) {
    expect(refusalDocument(path, refusal(424))).toEqual(openai)
    expect(refusalEvent(path, refusal(424))).toBe(`data: ${JSON.stringify(openai)}\n\n`)
  }
  const headers = { 'content-type': 'application/json', 'cache-control': 'no-store' }
  expect(refusalHeaders(refusal(424), 2)).toEqual({ ...headers, 'x-should-retry': 'false' })
  const retried = (status: number, seconds: number) =>
    refusalHeaders({ ...refusal(status), again: true }, seconds)['retry-after']
  expect(refusalHeaders({ ...refusal(503), again: true }, 4)).toEqual({
    ...headers,
    'x-should-retry': 'true',
    'retry-after': '4',
  })
  // The gateway may have carried out the request of a 502: its client decides when to send it again.
  expect([retried(503, 2), retried(429, 5), retried(502, 2)]).toEqual(['2', '5', undefined])
})
