// Goal: every mistake in a configuration file is reported at once, with its line, its field and what is allowed.

import { expect, test } from 'bun:test'
import fc from 'fast-check'
import { casesOf } from '../../scripts/rigs/all.ts'
import { nearestName, parseConfig, problemText } from '../../src/config/parse.ts'

function problems(text: string): string[] {
  const verdict = parseConfig(text, 'f')
  return verdict.ok ? [] : verdict.problems.map(problemText)
}

const MISTAKES: [string, string[]][] = [
  ['a = = 3', ['f:1: Unexpected token (TOML syntax)']],
  ['[tls]\n[tls]', ['f:2: Defining a key multiple times is invalid (TOML syntax)']],
  ['domian = "x"', ['f:1: domian: unknown field; did you mean domain?']],
  ['\n\n[tls]\n# c\nvalidty_days = 3', ['f:5: tls.validty_days: unknown field; did you mean validity_days?']],
  ['validity_days = 3', ['f:1: validity_days: unknown field; it belongs in [tls]']],
  ['[tls]\ndomain = "x"', ['f:2: tls.domain: unknown field; it belongs at the top of the file, before any [table]']],
  [
    '[listen]\nzzz = 1',
    ['f:2: listen.zzz: unknown field; allowed: instances, inference, builds, dns, console, metrics'],
  ],
  ['[lisen]\ndns = ""', ['f:1: lisen: unknown field; did you mean listen?']],
  ['vm = 3', ['f:1: vm: 3 is not allowed; allowed: a table']],
  ['[vm]\nvcpus = "2"', ['f:2: vm.vcpus: "2" is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = 2.5', ['f:2: vm.vcpus: 2.5 is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = 0', ['f:2: vm.vcpus: 0 is not allowed; allowed: an integer from 1 to 255']],
  ['[vm]\nvcpus = nan', ['f:2: vm.vcpus: NaN is not allowed; allowed: an integer from 1 to 255']],
  ['platform = "sev"', ['f:1: platform: "sev" is not allowed; allowed: one of "auto", "snp", "kvm", "tcg"']],
  ['domain = "Foo"', ['f:1: domain: "Foo" is not allowed; allowed: a DNS name in lowercase, at most 180 characters']],
  ['[tls]\nnames = [\n  "a",\n  7,\n]', ['f:4: tls.names.1: 7 is not allowed; allowed: text of 1 to 253 characters']],
  ['tls = { validity_days = 0 }', ['f:1: tls.validity_days: 0 is not allowed; allowed: an integer from 1 to 397']],
  ['\ntls.validity_days = 0', ['f:2: tls.validity_days: 0 is not allowed; allowed: an integer from 1 to 397']],
  ['[tls]\nkey_file = "/k"', ['f:2: tls.key_file: needs certificate_file too; set both or none']],
  ['[tls]\ncertificate_file = "/c"', ['f:2: tls.certificate_file: needs key_file too; set both or none']],
  [
    '[tls]\ncertificate_file = "c"\nkey_file = "k"',
    [
      'f:2: tls.certificate_file: "c" is not allowed; allowed: "" or an absolute path',
      'f:3: tls.key_file: "k" is not allowed; allowed: "" or an absolute path',
    ],
  ],
  [
    '[tls]\nvalidity_days = 20',
    [
      'f:1: tls.renew_before_days: must be less than validity_days (20), else every certificate is already due for renewal',
    ],
  ],
  [
    '[network]\npool_v4 = "10.1.2.3/24"',
    ['f:2: network.pool_v4: 10.1.2.3/24 has bits set after its prefix; write 10.1.2.0/24'],
  ],
  [
    '[network]\npool_v4 = "10.1.0.0/15"',
    ['f:2: network.pool_v4: "10.1.0.0/15" is not allowed; allowed: "" or an IPv4 network A.B.C.D/N, N from 16 to 30'],
  ],
  [
    '[network]\npool_v4 = "224.0.0.0/24"',
    ['f:2: network.pool_v4: 224.0.0.0/24 has no addresses that instances can have; use a unicast network'],
  ],
  [
    '[network]\npublic_v4 = "10.88.0.9"',
    [
      'f:2: network.public_v4: 10.88.0.9 is in pool_v4 (10.88.0.0/24), whose addresses instances get; use the address of this host',
    ],
  ],
  [
    '[network]\npublic_v4 = "127.0.0.1"',
    ['f:2: network.public_v4: 127.0.0.1 is not an address that clients can reach'],
  ],
  [
    '[network]\n\ngateway_v4 = "10.88.0.9"',
    [
      'f:3: network.gateway_v4: 10.88.0.9 is in pool_v4 (10.88.0.0/24), whose addresses instances get; choose one outside it',
    ],
  ],
  [
    '[network]\nresolvers = ["10.88.0.1"]',
    ['f:2: network.resolvers.0: 10.88.0.1 is in pool_v4 (10.88.0.0/24), whose addresses instances get'],
  ],
  [
    '[listen]\ninstances = "1.2.3.4:70000"',
    [
      'f:2: listen.instances: "1.2.3.4:70000" is not allowed; allowed: ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ninference = "999.1.1.1:8442"',
    [
      'f:2: listen.inference: "999.1.1.1:8442" is not allowed; allowed: "" or ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ndns = "[::g]:53"',
    [
      'f:2: listen.dns: "[::g]:53" is not allowed; allowed: "" or ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ninstances = "localhost:1"\ninference = "1.2.3.4"',
    [
      'f:2: listen.instances: "localhost:1" is not allowed; allowed: ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
      'f:3: listen.inference: "1.2.3.4" is not allowed; allowed: "" or ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ninstances = ""',
    [
      'f:2: listen.instances: "" is not allowed; allowed: ADDRESS:PORT with an IPv4 address or an IPv6 address in brackets, port 0 to 65535',
    ],
  ],
  [
    '[listen]\ninstances = "0.0.0.0:53"',
    ['f:1: listen.dns: 0.0.0.0:53 is taken by listen.instances; choose another port'],
  ],
  [
    '[listen]\ninstances = "127.0.0.1:1"\ninference = "127.0.0.1:1"',
    ['f:3: listen.inference: 127.0.0.1:1 is taken by listen.instances; choose another port'],
  ],
  [
    '[listen]\ninstances = "0.0.0.0:1"\n\ninference = "127.0.0.1:1"\ndns = "[::]:1"',
    [
      'f:4: listen.inference: 127.0.0.1:1 is taken by listen.instances (0.0.0.0:1); choose another port',
      'f:5: listen.dns: [::]:1 is taken by listen.instances (0.0.0.0:1); choose another port',
    ],
  ],
  [
    '[listen]\ninference = "0.0.0.0:8441"',
    ['f:2: listen.inference: 0.0.0.0:8441 is taken by listen.instances; choose another port'],
  ],
  ['[listen]\ninference = ""\ndns = ""', []],
  [
    '[listen]\ninstances = "127.0.0.1:0"\ninference = "127.0.0.1:0"\ndns = "127.0.0.1:0"\n[inference]\nplacement = "host"',
    [],
  ],
  [
    '[listen]\ninference = "127.0.0.1:0"',
    [
      'f:2: listen.inference: needs a port: the firewall leads it to the VM of the gateway (inference.placement is "vm")',
    ],
  ],
  [
    '[[inference.upstreams]]\nname = "a"\nmodels = ["m"]',
    [
      'f:1: inference.upstreams.0.url: is missing; allowed: an http or https URL up to and including /v1, without credentials',
    ],
  ],
  ['[vm]\nqemu = ""', ['f:2: vm.qemu: "" is not allowed; allowed: an absolute path']],
  [
    '[[inference.upstreams]]\nname = "built-in"\nurl = "http://a/v1"\nmodels = ["m"]',
    [
      'f:2: inference.upstreams.0.name: "built-in" is the name of the built-in worker, which receipts vouch for; choose another',
    ],
  ],
  [
    '[[inference.upstreams]]\nname = "a"\nurl = "http://a/v1"\nmodels = ["m"]\n[[inference.upstreams]]\nname = "a"\nurl = "http://b/v1"\nmodels = ["m"]',
    [
      'f:6: inference.upstreams.1.name: "a" is the name of another upstream too; receipts name upstreams, so choose another',
    ],
  ],
  [
    '[inference.worker]\nmodel_file = "m.gguf"',
    ['f:2: inference.worker.model_file: "m.gguf" is not allowed; allowed: "" or an absolute path'],
  ],
  [
    '[vm]\nuid_min = 80000',
    ['f:1: vm.uid_max: 79999 is below uid_min (80000); each VM needs a user id of its own from this range'],
  ],
  [
    '[capacity]\nscratch_gib = 7',
    [
      'f:2: capacity.scratch_gib: 7 is too small for one instance of vm.scratch_gib (8); raise it, or use 0 for the default',
    ],
  ],
  [
    '[capacity]\nmemory_mib = 1',
    [
      'f:2: capacity.memory_mib: 1 is too small for one instance of vm.memory_mib (2048); raise it, or use 0 for the default',
    ],
  ],
  ['[pool]\nwarm = 1025', ['f:2: pool.warm: 1025 is not allowed; allowed: an integer from 0 to 1024']],
  [
    '[capacity]\nmemory_mib = 6144\n[pool]\nwarm = 4',
    ['f:4: pool.warm: 4 VMs do not fit: capacity.memory_mib (6144) has room for 3'],
  ],
  [
    '[capacity]\nmemory_mib = 6144\nvcpus = 5\nasids = 3\n[pool]\nwarm = 4',
    ['f:6: pool.warm: 4 VMs do not fit: capacity.vcpus (5) has room for 2'],
  ],
  ['[capacity]\nasids = 3\n[pool]\nwarm = 4', ['f:4: pool.warm: 4 VMs do not fit: capacity.asids (3) has room for 3']],
  [
    '[network]\npool_v4 = "10.1.2.0/30"\n[pool]\nwarm = 3',
    ['f:4: pool.warm: 3 VMs do not fit: network.pool_v4 (10.1.2.0/30) has room for 2'],
  ],
  [
    '[vm]\nuid_min = 70000\nuid_max = 70000\n[pool]\nwarm = 3',
    ['f:5: pool.warm: 3 VMs do not fit: vm.uid_min to vm.uid_max has room for 1'],
  ],
  ['[capacity]\nmemory_mib = 6144\nvcpus = 6\nasids = 3\n[pool]\nwarm = 3', []],
  [
    '[instances]\nretention_days = 29',
    ['f:2: instances.retention_days: 29 is not allowed; allowed: an integer from 30 to 3650'],
  ],
  ['[instances]\ninference_models = ["a", "a"]', ['f:2: instances.inference_models: names a model twice']],
  [
    '[billing]\nsubscription_cost_usd = "1,5"',
    [
      'f:2: billing.subscription_cost_usd: "1,5" is not allowed; allowed: US dollars as text, such as "12.50"; at most six decimals',
    ],
  ],
]

test.each(MISTAKES)('goal: the mistake in %j is reported', (text, expected) => {
  expect(problems(text)).toEqual(expected)
})

test('goal: all mistakes come at once, by line', () => {
  expect(problems('platform = 1\n[vm]\nvcpu = 1\nmemory_mib = 1\n[oops]\n').map(line => line.split(' ')[0])).toEqual([
    'f:1:',
    'f:3:',
    'f:4:',
    'f:5:',
  ])
})

test('goal: dangerous keys are refused and leave no trace', () => {
  expect(problems('__proto__ = { polluted = 1 }')).toHaveLength(1)
  expect(problems('[__proto__]\npolluted = 1')).toHaveLength(1)
  expect(problems('[vm.constructor]\na = 1')).toHaveLength(1)
  expect(Reflect.get({}, 'polluted')).toBeUndefined()
})

test('goal: no text makes the parser throw or hang', () => {
  const piece = fc.constantFrom(
    'a',
    '=',
    '[',
    ']',
    '{',
    '}',
    '"',
    "'",
    '"""',
    '.',
    ',',
    '\n',
    '#',
    '\\',
    '1',
    ' ',
    'tls',
  )
  const text = fc.array(piece, { maxLength: 40 }).map(pieces => pieces.join(''))
  fc.assert(
    fc.property(text, written => {
      parseConfig(written, 'f')
    }),
    { seed: 20261120, numRuns: casesOf(3_000) },
  )
})

test('goal: only near names are suggested', () => {
  expect(nearestName('domian', ['domain', 'platform'])).toBe('domain')
  expect(nearestName('xyz', ['domain', 'dns'])).toBeNull()
})
