// Goal: what each failure of an upstream leads to, written out: another upstream, an ejection, a retry, a bill.

import { expect, test } from 'bun:test'
import { REASONS, UpstreamFault, type UpstreamReason } from '../../src/inference/failure.ts'

test('goal: a row that changes what follows fails', () => {
  const lines = (Object.keys(REASONS) as UpstreamReason[]).map(reason => {
    const { code, row } = new UpstreamFault(reason)
    const follows = [
      row.retryable ? 'another-upstream' : '-',
      row.countsAgainstHealth ? 'ejects' : '-',
      row.clientShouldRetry ? 'retry' : '-',
      row.isCharged ? 'charged' : '-',
    ]
    return `${reason} ${code} ${follows.join(' ')}`
  })
  expect(lines).toEqual([
    'none_healthy upstream_failed - - retry -',
    'unattested attestation_unavailable another-upstream - retry -',
    'unreachable upstream_failed another-upstream ejects retry -',
    'first_byte_timeout upstream_failed another-upstream ejects - -',
    'status upstream_failed another-upstream ejects retry -',
    'credentials upstream_failed another-upstream - - -',
    'no_such_route upstream_failed another-upstream - - -',
    'content_type upstream_failed another-upstream ejects - -',
    'cut upstream_failed another-upstream ejects retry -',
    'idle_timeout upstream_failed another-upstream ejects - -',
    'too_large upstream_failed - ejects - -',
    'malformed upstream_failed another-upstream ejects - -',
    'out_of_memory upstream_failed another-upstream ejects retry -',
    'reported_error upstream_failed another-upstream ejects retry -',
    'unfinished upstream_failed another-upstream ejects - -',
    'wrong_dimensions upstream_failed another-upstream - - -',
    'wrong_tool upstream_failed - - - charged',
    'bad_arguments upstream_failed - - - charged',
    'not_json upstream_failed - - - charged',
    'no_summary upstream_failed - - - charged',
    'check_unavailable upstream_failed - - retry -',
    'schema_violated upstream_failed - - - charged',
  ])
})

test('goal: only a failure of the model itself is charged', () => {
  const tokens = { prompt: 1, completion: 2 }
  expect(new UpstreamFault('not_json').charged(tokens).tokens).toEqual(tokens)
  const cut = new UpstreamFault('cut')
  expect([cut.charged(tokens), cut.tokens]).toEqual([cut, null])
})
