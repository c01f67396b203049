// Goal: `strongroom status` has a line for the transparency log and for each attested upstream, in words that a hostile
// name cannot turn into a terminal's.

import { expect, test } from 'bun:test'
import { statusText } from '../../../src/cli/operator/status.ts'
import { paintFor } from '../../../src/cli/render.ts'
import { STATUS } from '../../rigs/admin-status.ts'

const line = (text: string, name: string) => text.split('\n').filter(row => row.startsWith(name))

test('goal: log and upstreams with what is wrong, and what to do', () => {
  const text = statusText(
    {
      ...STATUS,
      log: {
        ...{ size: 9, shown: 7, last_entry_at: '2026-11-26T10:00:00.000Z', waiting_since: '2026-11-26T09:00:00.000Z' },
        witnesses: 1,
        problems: [
          { witness: null, severe: true, detail: 'entries wait', remedy: 'see log status' },
          { witness: 'w', severe: false, detail: 'it fails: \u001b[2J', remedy: 'ask' },
        ],
      },
      gateway: {
        ...STATUS.gateway,
        attested_upstreams: [
          { name: 'far', kind: 'tdx', attested: false, last_good_at: null, age_s: null, failures: [] },
        ],
      },
    },
    paintFor(false),
  )
  expect(line(text, 'log').map(row => row.replace(/ {2,}/, ' '))).toEqual([
    'log: 9 entries, the last 2026-11-26T10:00:00.000Z; 1 witnesses; 2 wait for a witness since 2026-11-26T09:00:00.000Z',
    'log: entries wait; see log status',
    'log witness: w: it fails: \\x1b[2J; ask',
  ])
  expect(line(text, 'upstream')[0]).toMatch(/far \(tdx\): not attested, gets no prompts, last -$/)
  expect(line(statusText({ ...STATUS, log: null }, paintFor(false)), 'log')[0]).toContain('unknown')
})
