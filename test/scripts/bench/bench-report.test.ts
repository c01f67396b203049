import { expect, test } from 'bun:test'
import { type Figures, isMet, reportLines, reportOf } from '../../../scripts/bench/bench-report.ts'

const machine = {
  cpu: 'A Processor',
  cores: 2,
  memoryMiB: 4096,
  kernel: '6.1.0',
  platform: 'tcg',
  bun: '1.4.5',
} as const
const figures: Figures = {
  direct_ms: { value: 2, unit: 'ms', aim: null },
  through_ms: { value: 3.5678, unit: 'ms', aim: { atMost: 3 }, baseline: 'direct_ms' },
  requests_per_second: { value: 12345.6, unit: '1/s', aim: { atLeast: 1000 } },
}

// Goal: the table is exact: values, aims, verdicts and ratios.
test('reportLines', () => {
  expect(reportLines('gateway', machine, figures)).toEqual([
    'gateway on A Processor, 2 cores, 4096 MiB, Linux 6.1.0, platform tcg, Bun 1.4.5',
    'figure               value  unit  aim      met  ratio',
    'direct_ms                2  ms    -',
    'through_ms           3.568  ms    <= 3     NO   1.78x direct_ms',
    'requests_per_second  12346  1/s   >= 1000  yes',
  ])
})

// Goal: the JSON form holds value, unit and aim of each figure and nothing else.
test('reportOf', () => {
  expect(reportOf('gateway', machine, figures)).toEqual({
    bench: 'gateway',
    machine,
    figures: {
      direct_ms: { value: 2, unit: 'ms', aim: null },
      through_ms: { value: 3.5678, unit: 'ms', aim: { atMost: 3 } },
      requests_per_second: { value: 12345.6, unit: '1/s', aim: { atLeast: 1000 } },
    },
  })
})

// Goal: an aim includes its boundary.
test('isMet', () => {
  expect(isMet({ value: 3, unit: 'ms', aim: { atMost: 3 } })).toBe(true)
  expect(isMet({ value: 3, unit: 'ms', aim: { atLeast: 3 } })).toBe(true)
  expect(isMet({ value: 3, unit: 'ms', aim: null })).toBeNull()
})
