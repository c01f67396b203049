// Goal: usage as CSV is read by a spreadsheet as the text and numbers that it is.

import { expect, test } from 'bun:test'
import { csvCell, type UsageRows, usageCsv } from '../../../src/contract/http/usage-rows.ts'
import { nanoUsdText } from '../../../src/contract/http/usd.ts'

test('goal: no cell is a formula, and none breaks its line or column', () => {
  const table: [string | number | null, string][] = [
    ['tiny', 'tiny'],
    [7, '7'],
    [null, ''],
    ['=1+1', "'=1+1"],
    ['+1', "'+1"],
    ['-1', "'-1"],
    ['@SUM(A1)', "'@SUM(A1)"],
    ['\t=1', "'\t=1"],
    ['  =1', "'  =1"],
    ['\r=1', `"'\r=1"`],
    ['a,b', '"a,b"'],
    ['a"b', '"a""b"'],
    ['=HYPERLINK("x","y")', `"'=HYPERLINK(""x"",""y"")"`],
    ['a\nb', '"a\nb"'],
    ['a=b', 'a=b'],
  ]
  for (const [value, cell] of table) expect([value, csvCell(value)]).toEqual([value, cell])
})

test('goal: only the columns that were asked for, and money is exact', () => {
  const sums = { requests: 2, prompt_tokens: 30, completion_tokens: 4, cost_usd: nanoUsdText(1_500_000_001n) }
  const usage: UsageRows = {
    from: '2026-11-01',
    to: '2026-11-30',
    by: ['model'],
    total: sums,
    rows: [{ day: null, key: null, model: '=tiny', user: null, tags: null, ...sums }],
  }
  expect(usageCsv(usage)).toBe(
    "model,requests,prompt_tokens,completion_tokens,cost_usd\r\n'=tiny,2,30,4,1.500000001\r\n",
  )
  expect([0n, 1n, 999_999_999n, 1_000_000_000n].map(nanoUsdText)).toEqual([
    '0.000000000',
    '0.000000001',
    '0.999999999',
    '1.000000000',
  ])
})
