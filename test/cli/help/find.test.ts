// Goal: `strongroom help NAME` explains what doctor prints: the source is searched for the names of its checks. A word
// of a user leads to the passage that answers it, and what is for clients comes first.

import { describe, expect, test } from 'bun:test'
import { findInHelp, passageAt } from '../../../src/cli/help/find.ts'
import { readMarkdown, terminalText } from '../../../src/cli/help/markdown.ts'
import { WORD_INDEX } from '../../../src/cli/help/word-index.ts'
import { paintFor } from '../../../src/terminal/render.ts'
import { readTree } from '../../meta/tree.ts'

const helpOf = (name: string) => findInHelp(name, { columns: 80, paint: paintFor(false) }) ?? ''

const plans = readTree('src/cli/doctor/**/*.plan.ts', 'src/cli/doctor/log.plan.ts')

/** Names of checks as the plans write them. An image has two, after a prefix; a name with a placeholder ends there. */
function checkNames(): string[] {
  const found = [...plans.values()].flatMap(text => [
    ...text.matchAll(/\b(?:pass|fail|warn|skip|fromOutcome|sameCheck|deviceCheck)\(\s*'([a-z][a-z0-9 -]+)',/g),
    ...text.matchAll(/^ *(?:const )?name = '([a-z][a-z0-9 -]+)'$/gm),
    ...text.matchAll(/\['([a-z ]+)', '([a-z ]+)', '([a-z ]+)'\]\.map\(name => skip\(name/g),
  ])
  const written = found.flatMap(([, ...names]) => names)
  const ofImages = ['', 'gateway ', 'builder '].flatMap(prefix => [`${prefix}image`, `${prefix}measurement`])
  return [...new Set([...written, ...ofImages, 'forwarding of IPv6', 'acme NAME', 'gpu ADDRESS'])]
}

test('goal: every check of doctor has a row in `daily`, which `strongroom help CHECK` prints', () => {
  const names = checkNames()
  for (const name of ['tcb', 'canary', 'sev firmware', 'fleet peers', 'transparency log']) expect(names).toContain(name)
  expect(names.length).toBeGreaterThan(55)
  const row = 'For operators: strongroom help daily, "What `doctor` checks"\n\ncheck | what it compares\n'
  expect(names.filter(name => !helpOf(name).includes(row))).toEqual([])
})

/** The lines above each part: for whom it is, and where it is from. */
function titlesOf(name: string): string[] {
  return helpOf(name)
    .split('\n')
    .filter(line => /^(?:For \w+|For clients and operators|Security|Reference): strongroom help /.test(line))
}

describe('a word of a user', () => {
  // Goal: the first part is the one that answers a customer, and has the sentence that does.
  test.each([
    ['memory', 'pass', '**With PASS the host cannot read the memory of this VM**'],
    ['cap', 'egress, "For the owner of an instance"', '**At the cap nothing leaves the VM**'],
    ['private', 'builds', 'A build has no credentials, and no option or field takes any.'],
    ['credentials', 'builds', 'A build has no credentials, and no option or field takes any.'],
    ['vendor', 'builds', 'mkdir -p .cargo && cargo vendor >> .cargo/config.toml'],
    ['token', 'client', 'Each prints a registration line, and replaces no file.'],
    ['token', 'client', 'A build has no credentials, and no option or field takes any.'],
    ['login', 'instances', '    strongroom up work'],
    ['login', 'instances', 'A build has no credentials, and no option or field takes any.'],
    ['submodule', 'builds', 'A clone fetches submodules, each by the commit'],
    ['git', 'builds', 'Redirected repository addresses are refused.'],
    ['host', 'pass, "Words"', 'the machine that runs the VMs, with root and all other programs on it'],
    ['operator', 'pass, "Words"', 'the person or company that runs the host'],
    ['toolchain', 'builds, "Before you start"', 'artifacts: programs, cdylibs, staticlibs of your own packages'],
    ['Idempotency-Key', 'instances, "What can go wrong"', 'you get the first answer, and no second instance.'],
    ['idempotency-key', 'instances, "What can go wrong"', 'you get the first answer, and no second instance.'],
    ['browser', 'instances, "Create, verify, log in"', 'strongroom connect --instance NAME 3000'],
    ['egress policy', 'instances', '{ "default": "refuse", "allow": [{ "host": "github.com", "port": 443 }] }'],
    ['cron', 'instances', '`--from work:2` takes number 2.'],
    ['exit 6', 'pass', 'the evidence is genuine, but your policy refuses it'],
    ['invoice', 'instances, "What can go wrong"', 'set 62 or more, before the month begins'],
    ['ssh_unreachable', 'instances, "What can go wrong"', '**After `ssh_unreachable`** you can change nothing'],
  ])('%s', (word, place, sentence) => {
    expect(titlesOf(word)[0]).toBe(`For clients: strongroom help ${place}`)
    expect(helpOf(word)).toContain(sentence)
  })

  test.each(['vulnerability', 'vulnerabilities', 'disclose', 'Disclosure'])('%s leads to security', word => {
    // Goal: a person with a finding learns where to report it, before what counts.
    expect(titlesOf(word)).toEqual(['Security: strongroom help security', 'Security: strongroom help security'])
    const found = helpOf(word)
    expect(found.indexOf('No address for reports has been published yet.')).toBeGreaterThan(0)
    expect(found.indexOf('What counts\n')).toBeGreaterThan(found.indexOf('How to report\n'))
  })

  test('parts for operators come last, and a configuration field right before them', () => {
    // Goal: a customer does not read the runbook of the operator first.
    expect(titlesOf('ssh_unreachable')).toEqual([
      'For clients: strongroom help instances, "What can go wrong"',
      'For operators: strongroom help 3am',
    ])
    const found = helpOf('operator')
    const at = ['pass, "Words"', 'Configuration field operator:', 'help operators,'].map(text => found.indexOf(text))
    expect(at).toEqual(at.toSorted((a, b) => a - b))
    expect(at[0]).toBeGreaterThan(0)
    expect(titlesOf('egress_bytes')).toContain('For clients: strongroom help egress, "For the owner of an instance"')
    expect(titlesOf('witness without an address')).toEqual(['For operators: strongroom help log, "For the operator"'])
  })

  test('a word in the other number is found, a part of a word is not, and a word of every topic leads nowhere', () => {
    // Goal: `repositories` finds `repository`; an answer that is a list of accidents is none.
    expect(helpOf('submodules')).toBe(helpOf('submodule'))
    expect(helpOf('measurements')).toContain('For clients: strongroom help ')
    for (const word of ['unreachable', 'the', 'x', '', 'no such phrase'])
      expect([word, helpOf(word)]).toEqual([word, ''])
  })

  test('a word that texts mention shows at most four parts, each passage once, and the other topics by name', () => {
    // Goal: the answer fits a screen or two.
    expect(titlesOf('429').length).toBe(4)
    expect(helpOf('429')).toContain('These topics mention it too: ')
    const paragraphs = helpOf('submodule').split('\n\n')
    expect(paragraphs.filter((text, index) => paragraphs.indexOf(text) !== index)).toEqual([])
  })

  test('code and a table that a text announces are printed with it', () => {
    // Goal: a sentence that ends with a colon is not left alone.
    expect(helpOf('file inside')).toContain('    dpkg-deb --extract strongroom_*.deb unpacked\n')
    expect(helpOf('follows from these files')).toContain('files: `Cargo.toml` + `Cargo.lock`')
  })

  test('every entry of the index leads to a passage, and no word has two entries', () => {
    // Goal: a heading that is renamed takes its words along.
    const places = WORD_INDEX.flatMap(entry => entry.places)
    expect(places.length).toBeGreaterThan(20)
    expect(places.filter(place => passageAt(place) === null)).toEqual([])
    expect(passageAt({ topic: 'builds', title: 'No such heading' })).toBeNull()
    const words = WORD_INDEX.flatMap(entry => entry.words)
    expect(words.filter((word, index) => words.indexOf(word) !== index || word !== word.toLowerCase())).toEqual([])
  })
})

test('goal: a check that a verdict names, and the option that waives it, lead to the table of both', () => {
  for (const name of ['chain-revocation', 'pin-measurement', 'pin-gpu', 'any-measurement', 'any-rtmr']) {
    const found = findInHelp(name, { columns: 80, paint: paintFor(false) })
    expect([name, found]).toEqual([name, expect.stringContaining('Required checks, and how to waive one')])
  }
})

test('goal: a link is printed as the command of its topic, and any other with its address', () => {
  const blocks = readMarkdown('See ([log](log.md)), the [rule](verify.md) and [age](https://age-encryption.org/v1).')
  expect(terminalText(blocks, { columns: 200, paint: paintFor(false) })).toBe(
    'See (`strongroom help log`), the rule (`strongroom help verify`) and age (https://age-encryption.org/v1).\n',
  )
})
