// Goal: a table of alerts that would notify nobody, or leak what is wrong with a host, is refused with the field.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

const problems = (toml: string) => {
  const verdict = parseConfig(`[alerts]\n${toml}`, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}

const mail = 'smtp_server = "mail.example:587"\nemail_from = "s@example.org"\nemail_to = ["a@example.org"]'

test('goal: complete tables are taken', () => {
  for (const toml of [
    ...['', 'webhook_url = "https://hook.example/x"', 'webhook_url = "http://127.0.0.1:9/x"', mail],
    `${mail}\nsmtp_user = "u"\nsmtp_password_file = "/p"`,
    mail.replace('mail.example', '[2001:db8::1]'),
  ]) {
    expect([toml, problems(toml)]).toEqual([toml, []])
  }
})

test('goal: what is missing or would be sent in the clear is named', () => {
  const table: [string, string][] = [
    ['webhook_url = "http://hook.example/x"', 'alerts.webhook_url: needs https'],
    ['webhook_url = "https://user:pw@hook.example/"', 'alerts.webhook_url: may hold no user'],
    ['webhook_secret_file = "/s"', 'alerts.webhook_secret_file: needs webhook_url'],
    ['webhook_url = "http://127.0.0.1/"\nwebhook_ca_file = "/c"', 'alerts.webhook_ca_file: needs an https URL'],
    ['webhook_url = "ftp://hook.example/"', 'alerts.webhook_url: "ftp://hook.example/" is not allowed'],
    ['smtp_server = "mail.example:587"\nemail_from = "s@example.org"', 'alerts.email_to: must name'],
    ['smtp_server = "mail.example:587"\nemail_to = ["a@example.org"]', 'alerts.email_from: must name'],
    ['email_to = ["a@example.org"]', 'alerts.smtp_server: must name'],
    [`${mail}\nsmtp_user = "u"`, 'alerts.smtp_password_file: smtp_user and'],
    [`${mail}\nsmtp_password_file = "/p"`, 'alerts.smtp_user: smtp_user and'],
    [mail.replace('587', '99999'), 'alerts.smtp_server: "mail.example:99999" has no port'],
    [mail.replace('a@example.org', 'a@example.org\\r\\nBcc: x@y'), 'alerts.email_to.0:'],
    ['severity = "notice"', 'alerts.severity:'],
  ]
  for (const [toml, start] of table) {
    const found = problems(toml)
    expect([toml, found.some(text => text.startsWith(start)), found.length]).toEqual([toml, true, 1])
  }
})
