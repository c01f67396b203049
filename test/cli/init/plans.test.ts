// Questions of `strongroom init`, and the file that answers make.

import { describe, expect, test } from 'bun:test'
import { candidateOf } from '../../../src/cli/init/candidate.ts'
import { presentAnswer, QUESTIONS, questionsFor, readAnswer } from '../../../src/cli/init/questions.ts'
import { defaultConfig } from '../../../src/config/load.ts'

const [domain, publicV4, poolV4, inference, , organization] = QUESTIONS

test('goal: a host is asked for IPv6 if it has no other IPv4 address than that of the link to VMs', () => {
  const fields = (...own: string[]) => questionsFor(own).questions.map(({ field }) => field?.join('.') ?? null)
  for (const own of [['2001:db8::10'], ['169.254.88.1', '2001:db8::10']]) {
    expect(fields(...own)).toContain('network.public_v6')
    expect(fields(...own)).not.toContain('network.public_v4')
  }
  for (const own of [[], ['169.254.88.1'], ['192.0.2.10'], ['192.0.2.10', '2001:db8::10']])
    expect(fields(...own)).toContain('network.public_v4')
})

test('goal: there are these six questions, and the default of each is an answer to it', () => {
  expect(QUESTIONS.map(({ field, text }) => [field?.join('.') ?? null, text])).toEqual([
    ['domain', 'Domain of the instances, which you delegate to this host'],
    ['network.public_v4', 'IPv4 address at which clients reach this host ("" for that of its default route)'],
    ['network.pool_v4', 'IPv4 network for instances, which you route to this host'],
    ['listen.inference', 'Address of the inference gateway ("" for none)'],
    ['listen.builds', 'Address of attested builds ("" for none)'],
    [null, 'Name of the first organization, a part of its host names'],
  ])
  for (const question of QUESTIONS) {
    if (question.field === null) continue
    const present = presentAnswer(defaultConfig(), question.field)
    expect(readAnswer(question, present)).toMatchObject({ ok: true, setting: { path: question.field, value: present } })
  }
})

describe('goal: an answer is judged by the row of the schema, and the refusal says what is allowed', () => {
  const refused = [
    [domain, 'Not A Name', 'a DNS name in lowercase'],
    [publicV4, '300.1.1.1.1', 'an IPv4 address'],
    [poolV4, '10.0.0.0/31', 'N from 16 to 30'],
    [inference, 'everywhere', 'allowed'],
    [organization, 'has space', 'lowercase letters'],
  ] as const
  // Goal: each is refused, in words that help.
  test.each(refused)('%p %p', (question, answer, words) => {
    const read = question === undefined ? null : readAnswer(question, answer)
    expect(read).toMatchObject({ ok: false })
    expect(JSON.stringify(read)).toContain(words)
  })
})

test('goal: "" means empty, for the fields that may be', () => {
  if (inference === undefined || domain === undefined) throw new Error('a question is missing')
  expect(readAnswer(inference, '""')).toMatchObject({ ok: true, setting: { value: '' } })
  expect(readAnswer(domain, '""')).toMatchObject({ ok: false })
})

describe('goal: the file as it would be is judged as a whole, before anything is written', () => {
  const wanted = [{ path: ['network', 'pool_v4'], value: '10.9.0.0/24' }]
  // Goal: idempotent.
  test('a second run changes nothing', () => {
    const first = candidateOf('# mine\n', wanted, 'f')
    if (!first.ok) throw new Error('refused')
    expect(first.changes).toEqual(['network.pool_v4 = "10.9.0.0/24"'])
    expect(first.config.network.pool_v4).toBe('10.9.0.0/24')
    expect(candidateOf(first.text, wanted, 'f')).toMatchObject({ ok: true, changes: [], text: first.text })
  })
  // Goal: fields are checked against each other.
  test('a contradiction with a field that is there already', () => {
    const clash = [{ path: ['listen', 'builds'], value: '0.0.0.0:8441' }]
    expect(candidateOf('', clash, 'f')).toMatchObject({ ok: false, problems: [{ file: 'f' }] })
  })
  // Goal: no file that means something else.
  test('what a program cannot set is left to a person, not written wrongly', () => {
    const closed = candidateOf('network = { mtu_bytes = 1400 }\n', wanted, 'f')
    expect(closed.ok).toBe(false)
  })
})
