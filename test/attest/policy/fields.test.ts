// Goal: the fields of policies are deliberate: what each must be in JSON, and what the strict policy asks of it.

import { test } from 'bun:test'
import { POLICY_FIELDS } from '../../../src/attest/policy/schema.ts'
import { TDX_POLICY_FIELDS } from '../../../src/attest/tdx/policy.ts'
import { expectGolden } from '../../rigs/golden.ts'

test('goal: a field that is loosened, dropped or added shows up in the golden text', () => {
  const shown = (_: string, value: unknown) => (typeof value === 'bigint' ? `${value}n` : value)
  const lines = (fields: object) =>
    Object.entries(fields).map(([name, { schema, strict, whenMissing = 'required' }]) =>
      [
        name,
        `  schema ${JSON.stringify(schema)}`,
        `  strict ${JSON.stringify(strict, shown)}`,
        `  when missing ${whenMissing}`,
      ].join('\n'),
    )
  const text = ['SEV-SNP', ...lines(POLICY_FIELDS), '', 'TDX', ...lines(TDX_POLICY_FIELDS)].join('\n')
  expectGolden('policy-fields.txt', `${text}\n`)
})
