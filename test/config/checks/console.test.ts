// Goal: a console whose names or identity provider cannot work is refused with the field and what to do.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

const problems = (toml: string) => {
  const verdict = parseConfig(toml, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}

const listen = '[listen]\nconsole = "127.0.0.1:8444"\n'
const group = '[[console.oidc.groups]]\ngroup = "ops"\nrole = "operator"\n'
const client = 'client_id = "a"\nclient_secret_file = "/s"\n'
const oidc = `[console.oidc]\nissuer = "https://id.example/realms/a"\n${client}`

test('goal: complete tables are taken', () => {
  const other =
    'scopes = ["openid", "groups"]\ngroups_claim = "https://example.org/groups"\nemail_domains = ["example.org"]\n'
  for (const toml of [
    '',
    listen,
    listen + oidc + group,
    `${listen}${oidc}${other}contact = "it@example.org"\n${group}`,
  ]) {
    expect([toml, problems(toml)]).toEqual([toml, []])
  }
})

test('goal: each mistake is named with its field and the remedy', () => {
  const table: [string, string][] = [
    [`[console]\nnames = ["*.example"]`, 'console.names.0: "*.example" is not allowed'],
    [`${oidc}${group}`, 'console.oidc.issuer: needs the console; set listen.console'],
    [`${listen}${oidc}`, 'console.oidc.groups: must map at least one group'],
    ...['email', 'preferred_username', 'name', 'nickname', 'given_name'].map((claim): [string, string] => [
      `${listen}${oidc}groups_claim = "${claim}"\n${group}`,
      `console.oidc.groups_claim: ${claim} is no claim for groups`,
    ]),
    [`${listen}${oidc}${group}${group}`, 'console.oidc.groups: maps the group "ops" twice'],
    [
      `${listen}${oidc}${group.replace('operator', 'root')}`,
      'console.oidc.groups.0.role: "root" is not allowed; allowed: one of "admin", "operator", "auditor"',
    ],
    [`${listen}${oidc.replace('client_id = "a"', '')}${group}`, 'console.oidc.client_id: must be'],
    [`${listen}${oidc.replace('client_secret_file = "/s"', '')}${group}`, 'console.oidc.client_secret_file: must name'],
    [`${listen}${oidc}scopes = ["email"]\n${group}`, 'console.oidc.scopes: must have "openid"'],
    [
      `${listen}${oidc.replace('https:', 'http:')}${group}`,
      'console.oidc.issuer: "http://id.example/realms/a" is not allowed; allowed: "" or an https URL',
    ],
    [`${listen}${oidc.replace('id.example', 'u:p@id.example')}${group}`, 'console.oidc.issuer: may hold no user'],
    [
      `${listen}${oidc.replace('realms/a', '.well-known/openid-configuration')}${group}`,
      'console.oidc.issuer: is the issuer alone',
    ],
    [
      `${listen}${oidc}email_domains = ["@example.org"]\n${group}`,
      'console.oidc.email_domains.0: "@example.org" is not allowed; allowed: a DNS name',
    ],
    [`[console.oidc]\n${client}`, 'console.oidc.client_id: needs console.oidc.issuer'],
    [`[console.oidc]\nname = "a\\u001bb"`, 'console.oidc.name: '],
    [group, 'console.oidc.groups: needs console.oidc.issuer'],
  ]
  for (const [toml, start] of table) {
    const [first = ''] = problems(toml)
    expect([toml, first.slice(0, start.length)]).toEqual([toml, start])
  }
})
