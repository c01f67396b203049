// Goal: each question is answered once: a wrong answer is refused at once, a good one is kept for a later run, and a
// host without IPv4 is asked for IPv6.

import { expect, test } from 'bun:test'
import type { AddressFacts } from '../../../src/cli/init/addresses.plan.ts'
import { askQuestions } from '../../../src/cli/init/ask.ts'
import type { KeptAnswers } from '../../../src/cli/init/kept-answers.driver.ts'
import type { Run } from '../../../src/cli/operator-run.ts'
import { defaultConfig } from '../../../src/config/load.ts'

function keptOf(answers: Record<string, string> = {}): KeptAnswers & { answers: Map<string, string> } {
  const map = new Map(Object.entries(answers))
  return {
    answers: map,
    get: name => map.get(name),
    set: (name, answer) => void map.set(name, answer),
    clear: () => map.clear(),
  }
}

const v4: AddressFacts = {
  own: ['192.0.2.10'],
  listensOnAll: true,
  routeV4: '192.0.2.10',
  listening: [],
  daemonPid: null,
}
const v6: AddressFacts = { own: ['2001:db8::10'], listensOnAll: true, routeV4: null, listening: [], daemonPid: null }

/** `null` ends the input. */
async function ask(
  answers: readonly (string | null)[],
  addresses: AddressFacts,
  kept = keptOf(),
  withOrganization = true,
) {
  const prompts: string[] = []
  let remarks = ''
  const left = [...answers]
  const run = {
    io: {
      ask: async (prompt: string) => {
        prompts.push(prompt)
        return left.shift() ?? null
      },
      stderr: async (text: string) => {
        remarks += text
      },
    },
  } as unknown as Run
  const asking = { config: defaultConfig(), kept, addresses, withOrganization }
  const outcome = await askQuestions(run, asking).catch((error: Error) => error)
  return { outcome, prompts, remarks, kept, left }
}

test('goal: a wrong address is refused at its question, and the values of the file need no line', async () => {
  const { outcome, remarks, kept } = await ask(
    ['agents.test', '', '192.0.2.0/24', '', '203.0.113.1:1', '""', '', 'acme'],
    v4,
  )
  expect(outcome).toEqual({
    settings: [
      { path: ['domain'], value: 'agents.test' },
      { path: ['listen', 'inference'], value: '' },
    ],
    organization: 'acme',
  })
  expect(remarks).toContain('contains 192.0.2.10')
  expect(remarks).toContain('no interface of this host has 203.0.113.1')
  expect(Object.fromEntries(kept.answers)).toMatchObject({
    domain: 'agents.test',
    'listen.inference': '',
    organization: 'acme',
  })
})

test('goal: the answers of a run that ended stand in brackets in the next, and enter takes them', async () => {
  const kept = keptOf()
  const stopped = await ask(['agents.test', '198.51.100.1', null], v4, kept)
  expect(stopped.outcome).toMatchObject({ remedy: expect.stringContaining('answers so far are kept') })
  const again = await ask(['', '', '', '', '', ''], v4, kept)
  expect(again.prompts.slice(0, 2)).toEqual([
    expect.stringContaining('[agents.test]'),
    expect.stringContaining('[198.51.100.1]'),
  ])
  expect(again.outcome).toMatchObject({
    settings: [
      { path: ['domain'], value: 'agents.test' },
      { path: ['network', 'public_v4'], value: '198.51.100.1' },
    ],
  })
})

test('goal: a host for a fleet is asked for no organization', async () => {
  const { outcome, left } = await ask(['', '', '', '', '', 'unread'], v4, keptOf(), false)
  expect([outcome, left]).toEqual([{ settings: [], organization: null }, ['unread']])
})

test('goal: a host without IPv4 gets IPv6 questions, and listeners and resolvers of IPv6', async () => {
  const { outcome, prompts } = await ask(['', '', '2001:db8:1::/48', '', '', ''], v6)
  expect(prompts[1]).toContain('[2001:db8::10]')
  expect(prompts.join()).not.toContain('IPv4 network')
  expect(outcome).toMatchObject({
    settings: [
      { path: ['listen', 'instances'], value: '[::]:8441' },
      { path: ['listen', 'dns'], value: '[::]:53' },
      { path: ['network', 'resolvers'], value: ['2620:fe::fe', '2620:fe::9'] },
      { path: ['network', 'public_v6'], value: '2001:db8::10' },
      { path: ['network', 'pool_v6'], value: '2001:db8:1::/48' },
      { path: ['listen', 'inference'], value: '[::]:8442' },
    ],
  })
})
