// Goal: which settings show more of a request to the host, what each means for a client, and when a gateway has it.

import { expect, test } from 'bun:test'
import { EXPOSURE_WORDS, exposureNames, exposuresIn } from '../../../src/contract/vm/exposure.ts'

type Settings = Parameters<typeof exposuresIn>[0]

test('goal: the names and their meaning, written out', () => {
  expect(EXPOSURE_WORDS).toEqual({
    'usage-labels': 'the host gets `user` and `metadata` of each request',
    'no-padding': 'packets of streams show the length of each token',
    'kept-responses': 'the gateway keeps requests and responses for later requests of the key',
    traces: 'the host gets times, finish reasons, counts and codes of each request',
  })
  expect([...exposureNames]).toEqual(['usage-labels', 'no-padding', 'kept-responses', 'traces'])
})

test('goal: a gateway that keeps nothing, pads and says nothing has none; a setting that is absent is not taken for off', () => {
  const silent = { usageLabels: false, padStreams: 'on', keptResponses: { retentionMs: 0 } } as unknown as Settings
  const traces = {} as NonNullable<Settings['traces']>
  expect(exposuresIn(silent)).toEqual([])
  expect(exposuresIn({ ...silent, usageLabels: true })).toEqual(['usage-labels'])
  expect(exposuresIn({ ...silent, padStreams: 'off' })).toEqual(['no-padding'])
  expect(exposuresIn({ ...silent, padStreams: 'auto' } as Settings)).toEqual([])
  expect(exposuresIn({ ...silent, keptResponses: { retentionMs: 1 } } as unknown as Settings)).toEqual([
    'kept-responses',
  ])
  expect(exposuresIn({ ...silent, keptResponses: undefined } as unknown as Settings)).toEqual(['kept-responses'])
  expect(exposuresIn({ ...silent, traces })).toEqual(['traces'])
  expect(exposuresIn({ usageLabels: true, padStreams: 'off', traces } as unknown as Settings)).toEqual([
    ...['usage-labels', 'no-padding', 'kept-responses', 'traces'],
  ] as never)
})
