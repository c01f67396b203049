// Goal: contradictions in the table `builds` are found before a build finds them, each at its field.

import { expect, test } from 'bun:test'
import { parseFetchHost } from '../../src/config/fetch-hosts.ts'
import { parseConfig, problemText } from '../../src/config/parse.ts'

const on = '[listen]\nbuilds = "127.0.0.1:8443"\n'

const MISTAKES: [text: string, fields: string[]][] = [
  ['', []],
  [on, []],
  ['[listen]\nbuilds = "0.0.0.0:8441"', ['listen.builds']],
  [`${on}[builds]\nfetch_port = 8443`, []],
  ['[listen]\nbuilds = "0.0.0.0:8443"\n[builds]\nfetch_port = 8443', ['builds.fetch_port']],
  ['[listen]\nbuilds = "0.0.0.0:8443"\n[builds]\nfetch_port = 8442', ['builds.fetch_port']],
  ['[builds]\nfetch_hosts = ["git.example", "https://git.example"]', ['builds.fetch_hosts.1']],
  ['[builds]\nfetch_hosts = ["git.example:8443=10.1.2.3"]', []],
  ['[builds]\ncrates_mirror = "sparse+https://mirror.example/index/"', ['builds.crates_mirror']],
  [
    '[builds]\ncrates_mirror = "sparse+https://mirror.example:444/"\nfetch_hosts = ["mirror.example"]',
    ['builds.crates_mirror'],
  ],
  ['[builds]\ncrates_mirror = "sparse+https://mirror.example/index/"\nfetch_hosts = ["mirror.example"]', []],
  ['[builds]\ncrates_mirror = "https://mirror.example/index/"', ['builds.crates_mirror']],
  ['[builds]\nrust_mirror = "https://rust.example"', ['builds.rust_mirror']],
  ['[builds]\nrust_mirror = "https://rust.example/a/b"\nfetch_hosts = ["rust.example"]', []],
  ['[builds]\nrust_mirror = "https://rust.example:444"\nfetch_hosts = ["rust.example"]', ['builds.rust_mirror']],
  ['[builds]\nrust_mirror = "https://rust.example/"\nfetch_hosts = ["rust.example"]', ['builds.rust_mirror']],
  ['[builds]\nrust_mirror = "http://rust.example"\nfetch_hosts = ["rust.example"]', ['builds.rust_mirror']],
  ['[builds]\nartifact_mib = 1024', ['builds.exchange_gib']],
  ['[builds]\nexchange_gib = 32', ['builds.results_gib_max']],
  ['[builds]\nwarm = 3', ['builds.warm']],
  ['[builds]\nbuild_memory_mib = 4096', ['builds.build_memory_mib']],
  ['[builds]\nbuild_disk_gib = 20', ['builds.build_disk_gib']],
  ['[builds]\nscratch_gib = 64', []],
  ['[builds]\nscratch_gib = 65', ['builds.scratch_gib']],
  ['[vm]\nscratch_gib = 32', []],
  ['[vm]\nscratch_gib = 33', ['vm.scratch_gib']],
  ['[builds]\nbase_url = "http://builds.example"', ['builds.base_url']],
  ['[builds]\nbase_url = "https://builds.example/x"', ['builds.base_url']],
  ['[builds]\nbase_url = "https://builds.example:8443"', []],
  [`${on}[capacity]\nmemory_mib = 2048`, ['capacity.memory_mib']],
  ['[capacity]\nmemory_mib = 2048', []],
  [`${on}[capacity]\nscratch_gib = 20`, ['capacity.scratch_gib']],
]

test.each(MISTAKES)('goal: what %j contradicts is named', (text, fields) => {
  const verdict = parseConfig(text, 'f')
  const lines = verdict.ok ? [] : verdict.problems.map(problemText)
  expect(lines.map(line => line.split(': ')[1] ?? '')).toEqual(fields)
})

test('goal: a host to fetch from is read exactly', () => {
  const table: [string, ReturnType<typeof parseFetchHost>][] = [
    ['git.example', { host: 'git.example', port: 443, address: null }],
    ['git.example:8443', { host: 'git.example', port: 8443, address: null }],
    ['git.example:8443=10.0.0.5', { host: 'git.example', port: 8443, address: '10.0.0.5' }],
    ['git=127.0.0.1', { host: 'git', port: 443, address: '127.0.0.1' }],
    ...[
      ...['', '*', '*.example', 'Git.example', 'git.example.', '.example', '-a.example', 'a..b', 'git.example:0'],
      ...[
        'git.example:65536',
        'git.example/x',
        'user@git.example',
        '10.0.0.5',
        '10.0.0.5:443',
        '1.2.3',
        'git.example=',
      ],
      ...[
        'git.example=1.2.3',
        'git.example=999.1.1.1',
        'git.example=::1',
        '[::1]:443',
        'git .example',
        'git.example\n',
      ],
    ].map((text): [string, null] => [text, null]),
  ]
  for (const [text, expected] of table) expect([text, parseFetchHost(text)]).toEqual([text, expected])
})
