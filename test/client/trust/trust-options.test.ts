// Flags in reasons of checks.

import { expect, test } from 'bun:test'
import { outsideAdvice } from '../../../src/attest/receipt/outside.ts'
import { withOutsideFlag } from '../../../src/client/trust/trust-options.ts'
import { pastedWords } from '../../rigs/program.ts'

// Goal: the flag in the reason of a check is one word of a shell, whatever name a host gave its upstream.
test.each(['far=https://far.example', 'a"b', '$(echo no)', '`echo no`', "it's", 'a\\b', 'two words'])('%s', name => {
  const { reason } = withOutsideFlag({ reason: `not attested: ${outsideAdvice(name)}` })
  const [, flag = ''] = /^not attested: allow it with (--allow-outside .*)$/.exec(reason) ?? []
  expect(pastedWords(`strongroom ${flag}`)).toEqual(['--allow-outside', name])
})
