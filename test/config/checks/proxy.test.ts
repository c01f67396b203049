// Goal: a table of the proxy that could not work, or would be read as something else than it says, is refused with the
// field.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

const problems = (toml: string) => {
  const verdict = parseConfig(toml, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}
const proxy = (toml: string) => `[network.proxy]\n${toml}\n`
const secure = proxy('url = "https://proxy.example:3128"')
const acme = '[tls.acme]\ndirectory = "https://ca.example/dir"\nterms_agreed = true\nca_file = "/ca.pem"\n'
const oidc = `[listen]
console = "127.0.0.1:8444"
[console.oidc]
issuer = "https://id.example"
client_id = "a"
client_secret_file = "/secret"
ca_file = "/ca.pem"
[[console.oidc.groups]]
group = "a"
role = "operator"
`
const alerts = '[alerts]\nwebhook_url = "https://hook.example/x"\nwebhook_ca_file = "/ca.pem"\n'

test('goal: complete tables are taken', () => {
  for (const toml of [
    ...['', proxy('url = "http://proxy.example:80"'), proxy('url = "http://[2001:db8::1]:3128"'), secure],
    ...[proxy('url = "http://192.0.2.1:3128"'), proxy('url = "https://proxy-1:443"')],
    proxy('url = "http://127.0.0.1:3128"\nuser = "a b"\npassword_file = "/p"'),
    proxy('no_proxy = ["intranet", "*.example.org", "10.0.0.0/8", "2001:db8::/32"]'),
    // Both certificates come from the system's authorities, or the proxy has none.
    `${secure}[alerts]\nwebhook_url = "https://hook.example/x"\n`,
    `${proxy('url = "http://proxy.example:3128"')}${acme}${alerts}`,
    `${secure}no_proxy = ["ca.example", "*.example"]\n${acme}${alerts}`,
  ]) {
    expect([toml, problems(toml)]).toEqual([toml, []])
  }
})

test('goal: what is missing or has another form is named', () => {
  const table: [string, string][] = [
    ...[
      ...['proxy.example:3128', 'http://proxy.example', 'http://u:p@proxy.example:3128', 'http://proxy.example:3128/x'],
      ...['socks5://proxy.example:1080', 'HTTP://proxy.example:3128', 'http://proxy.example:3128?x', ' '],
      ...['http://proxy.example:99999', 'http://proxy.example:0', 'http://256.1.1.1:3128'],
      ...['http://0x7f000001:3128', 'http://127.1:3128', 'http://010.0.0.1:3128', 'http://proxy.example.:3128'],
      ...['http://a..b:3128', 'http://-proxy.example:3128', 'http://[2001:db8:0::1]:3128', 'http://.:3128'],
    ].map((url): [string, string] => [proxy(`url = ${JSON.stringify(url)}`), 'network.proxy.url: ']),
    [proxy('user = "u"\npassword_file = "/p"'), 'network.proxy.url: is needed'],
    [proxy('url = "http://p.example:1"\nuser = "u"'), 'network.proxy.password_file: user and'],
    [proxy('url = "http://p.example:1"\npassword_file = "/p"'), 'network.proxy.user: user and'],
    [proxy('url = "http://p.example:1"\nuser = "u:v"\npassword_file = "/p"'), 'network.proxy.user: '],
    [proxy('url = "http://p.example:1"\nuser = "u\\r\\nX: y"\npassword_file = "/p"'), 'network.proxy.user: '],
    [proxy('no_proxy = ["a.example", ".example.org"]'), 'network.proxy.no_proxy.1: ".example.org" is not allowed'],
    [`${secure}${acme}`, 'tls.acme.ca_file: does not work through a proxy with https: add ca.example to'],
    [`${secure}${oidc}`, 'console.oidc.ca_file: does not work through a proxy with https: add id.example to'],
    [`${secure}${alerts}`, 'alerts.webhook_ca_file: does not work through a proxy with https: add hook.example to'],
  ]
  for (const [toml, start] of table) {
    const found = problems(toml)
    expect([toml, found.length, found[0]?.slice(0, start.length)]).toEqual([toml, 1, start])
  }
})
