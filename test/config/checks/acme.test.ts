// Goal: a configuration of ACME that could not work is refused at the field that is wrong, and one that could says how
// each name is proved.

import { expect, test } from 'bun:test'
import { acmeNames, challengeFor } from '../../../src/config/acme.ts'
import { parseConfig } from '../../../src/config/parse.ts'

const acme = (lines: string, others = '') =>
  parseConfig(
    `domain = "agents.example"\n${others}\n[tls.acme]\ndirectory = "https://ca.example/dir"\nterms_agreed = true\n${lines}`,
    'f',
  )
const fieldsOf = (verdict: ReturnType<typeof parseConfig>) =>
  verdict.ok ? [] : verdict.problems.map(problem => problem.field)

test('goal: what cannot work is refused', () => {
  const WRONG: [lines: string, others: string, field: string][] = [
    ['', '[tls]\ncertificate_file = "/a"\nkey_file = "/b"', 'tls.acme.directory'],
    ['eab_kid = "k"', '', 'tls.acme.eab_kid'],
    ['eab_key_file = "/k"', '', 'tls.acme.eab_key_file'],
    ['names = ["api.other.example"]\nhttp_listen = "0.0.0.0:80"', '', 'tls.acme.names.0'],
    ['challenge = "http-01"', '', 'tls.acme.http_listen'],
    ['', '[listen]\ndns = ""', 'tls.acme.http_listen'],
    ['challenge = "dns-01"', '[listen]\ndns = ""', 'tls.acme.challenge'],
    ['challenge = "dns-01"\nnames = ["a.other.example"]', '[tls]\nnames = ["a.other.example"]', 'tls.acme.challenge'],
    ['http_listen = "0.0.0.0:8441"', '', 'tls.acme.http_listen'],
    ['http_listen = "1.2.3:80"', '', 'tls.acme.http_listen'],
    [
      'challenge = "http-01"\nhttp_listen = "0.0.0.0:80"\nnames = ["*.agents.example"]',
      '[tls]\nnames = ["*.agents.example"]',
      'tls.acme.names',
    ],
    ['contact = ["mailto:x"]', '', 'tls.acme.contact.0'],
  ]
  for (const [lines, others, field] of WRONG) expect([lines, fieldsOf(acme(lines, others))]).toEqual([lines, [field]])
  const disagreed = parseConfig('[tls.acme]\ndirectory = "https://ca.example/dir"', 'f')
  expect(fieldsOf(disagreed)).toEqual(['tls.acme.terms_agreed'])
  expect(fieldsOf(parseConfig('[tls.acme]\ndirectory = "http://ca.example/dir"', 'f'))).toContain('tls.acme.directory')
})

test('goal: the names of the services, each by the key that serves it and by the proof that fits', () => {
  const verdict = acme(
    'names = ["api.other.example"]\nhttp_listen = "0.0.0.0:80"',
    '[listen]\nbuilds = "0.0.0.0:8443"\n[tls]\nnames = ["api.other.example"]',
  )
  if (!verdict.ok) throw new Error(JSON.stringify(verdict.problems))
  const { config } = verdict
  expect(acmeNames(config)).toEqual({
    host: ['instances.agents.example', 'builds.agents.example', 'api.other.example'],
    gateway: ['inference.agents.example', 'api.other.example'],
  })
  expect(challengeFor('instances.agents.example', config)).toBe('dns-01')
  expect(challengeFor('api.other.example', config)).toBe('http-01')
  const onHost = { ...config, inference: { ...config.inference, placement: 'host' as const } }
  expect(acmeNames(onHost).gateway).toEqual([])
  expect(acmeNames(onHost).host).toContain('inference.agents.example')
  const off = { ...config, tls: { ...config.tls, acme: { ...config.tls.acme, directory: '' } } }
  expect(acmeNames(off)).toEqual({ host: [], gateway: [] })
})
