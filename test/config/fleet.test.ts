// Goal: a configuration of a fleet that could not work, or that would show the directory to others, is refused at the
// field that is wrong.

import { expect, test } from 'bun:test'
import { databaseText, parseDatabaseUrl } from '../../src/config/fleet/database-url.ts'
import { parseConfig } from '../../src/config/parse.ts'

const local = 'database = "postgres://u@127.0.0.1/d"\n'
const problemsOf = (lines: string) => {
  const verdict = parseConfig(`[fleet]\n${lines}`, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}

test('goal: what cannot work or is not safe is refused', () => {
  const WRONG: [lines: string, problem: RegExp][] = [
    ['password_file = "/p"', /^fleet\.password_file: needs database too/],
    ['ca_file = "/c"', /^fleet\.ca_file: needs database too/],
    ['database = "mysql://u@127.0.0.1/d"', /^fleet\.database: .*postgres:/],
    ['database = "postgres://127.0.0.1/d"', /^fleet\.database: names no user/],
    ['database = "postgres://u@127.0.0.1/"', /^fleet\.database: names no database/],
    ['database = "postgres://u@127.0.0.1/a/b"', /^fleet\.database: names no database/],
    ['database = "postgres://u:p@127.0.0.1/d"', /^fleet\.database: holds a password; put it into fleet\.password_file/],
    ['database = "postgres://u@127.0.0.1/d?sslmode=disable"', /^fleet\.database: has the parameter sslmode/],
    ['database = "postgres://u@localhost/d?host=relative"', /^fleet\.database: host= must be/],
    ['database = "postgres://u@db.example/d"', /^fleet\.ca_file: is needed: db\.example is another machine/],
    ['database = "postgres://u@[2001:db8::1]/d"', /^fleet\.ca_file: is needed/],
    ['database = "postgres://u@localhost/d?host=/run/postgresql"\nca_file = "/c"', /^fleet\.ca_file: must be ""/],
    ['peer_listen = "192.0.2.1:7443"', /^fleet\.peer_listen: needs database too/],
    [`${local}peer_listen = "192.0.2.1"`, /^fleet\.peer_listen: .*allowed/],
    [`${local}peer_listen = "192.0.2.1:99999"`, /^fleet\.peer_listen: .*is no address with a port/],
    [`${local}peer_listen = "0.0.0.0:7443"`, /^fleet\.peer_address: is needed: 0\.0\.0\.0:7443 does not say/],
    [`${local}peer_listen = "[0::0]:7443"`, /^fleet\.peer_address: is needed/],
    [`${local}peer_listen = "192.0.2.1:8441"`, /^fleet\.peer_listen: .*taken by listen\.instances/],
    [`${local}peer_address = "rack-1.example:7443"`, /^fleet\.peer_address: needs peer_listen too/],
    [`${local}peer_listen = "0.0.0.0:7443"\npeer_address = "rack-1.example"`, /^fleet\.peer_address: .*host:port/],
    ['name = "-a"', /^fleet\.name: /],
    ['host_lost_after_s = 9', /^fleet\.host_lost_after_s: /],
  ]
  for (const [lines, problem] of WRONG) {
    const [first, ...others] = problemsOf(lines)
    expect([lines, others]).toEqual([lines, []])
    expect(first).toMatch(problem)
  }
})

test('goal: what works is taken', () => {
  for (const lines of [
    '',
    'database = "postgres://u@127.0.0.1/d"',
    'database = "postgresql://u@localhost:6000/d"\nca_file = "/c"\npassword_file = "/p"\nname = "rack-1"',
    'database = "postgres://u@db.example/d"\nca_file = "/c"',
    'database = "postgres://u@localhost/d?host=/run/postgresql"',
    `${local}peer_listen = "192.0.2.1:7443"`,
    `${local}peer_listen = "[2001:db8::1]:7443"\npeer_address = "[2001:db8::2]:443"`,
    `${local}peer_listen = "0.0.0.0:7443"\npeer_address = "rack-1.example:7443"`,
  ]) {
    expect([lines, problemsOf(lines)]).toEqual([lines, []])
  }
})

test('goal: an address is read as it is written, and shown without its password', () => {
  const CASES: [text: string, address: object, shown: string][] = [
    [
      'postgres://a%40b:p%3Aw@h.example:6000/d%20e',
      { host: 'h.example', port: 6000, user: 'a@b', password: 'p:w', database: 'd e' },
      'postgres://a@b@h.example:6000/d e',
    ],
    [
      'postgres://u@[::1]/d',
      { host: '::1', port: 5432, user: 'u', password: null, database: 'd' },
      'postgres://u@[::1]:5432/d',
    ],
    [
      'postgres://u@localhost:5433/d?host=/run/x',
      { host: '/run/x', port: 5433, user: 'u', password: null, database: 'd' },
      'postgres://u@localhost:5433/d?host=/run/x',
    ],
  ]
  for (const [text, address, shown] of CASES) {
    const parsed = parseDatabaseUrl(text)
    expect(parsed).toEqual({ ok: true, address: address as never })
    if (parsed.ok) expect(databaseText(parsed.address)).toBe(shown)
  }
  expect(parseDatabaseUrl('postgres://u:%ff@h/d')).toMatchObject({ ok: false })
  expect(parseDatabaseUrl('')).toMatchObject({ ok: false })
})
