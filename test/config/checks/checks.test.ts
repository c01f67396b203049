// Goal: fields that contradict each other are refused before anything starts, each at its own field, with what to
// change; and the closest thing that is allowed passes.

import { expect, test } from 'bun:test'
import { parseConfig } from '../../../src/config/parse.ts'

function problemsOf(text: string): string[] {
  const verdict = parseConfig(text, 'f')
  return verdict.ok ? [] : verdict.problems.map(({ field, message }) => `${field}: ${message}`)
}

const label = 'a'.repeat(63)
const upstream = (name: string) =>
  `[[inference.upstreams]]\nname = "${name}"\nurl = "https://u.example"\nmodels = ["m"]\n`
const dnsName = 'allowed: a DNS name in lowercase (*. may lead it)'

const CASES: readonly (readonly [what: string, refused: string, problems: readonly string[], taken: string])[] = [
  [
    'names that are announced',
    '[tls]\nannounced_names = ["a.example", "192.0.2.1", "A.example", "a.*.example", "*."]',
    [
      `tls.announced_names.1: "192.0.2.1" is not allowed; ${dnsName}`,
      `tls.announced_names.2: "A.example" is not allowed; ${dnsName}`,
      `tls.announced_names.3: "a.*.example" is not allowed; ${dnsName}`,
      `tls.announced_names.4: "*." is not allowed; ${dnsName}`,
    ],
    `[tls]\nannounced_names = ["a.example", "*.a.example", "${label}.example", "a"]`,
  ],
  [
    'names of the certificate',
    `[tls]\nnames = ["-a.example", "${label}a.example", "a..b"]`,
    ['-a.example', `${label}a.example`, 'a..b'].map(
      (name, at) => `tls.names.${at}: "${name}" is not allowed; ${dnsName} or an IP address`,
    ),
    '[tls]\nnames = ["192.0.2.1", "::1", "a-b.example"]',
  ],
  [
    'an administrator twice',
    ['admin', 'auditor'].map(role => `[[operator.admins]]\nuser = "ann"\nrole = "${role}"\n`).join(''),
    ['operator.admins.1.user: ann stands here twice; one user has one role'],
    ['ann', 'ann2'].map(user => `[[operator.admins]]\nuser = "${user}"\nrole = "admin"\n`).join(''),
  ],
  [
    'an address that no host has, for instances',
    '[network]\ngateway_v4 = "127.0.0.1"',
    ['network.gateway_v4: 127.0.0.1 is not an address that a host can have'],
    '[network]\ngateway_v4 = "126.255.255.255"',
  ],
  [
    'an address of multicast',
    '[network]\ngateway_v4 = "224.0.0.1"\npublic_v4 = "0.1.2.3"',
    [
      'network.gateway_v4: 224.0.0.1 is not an address that a host can have',
      'network.public_v4: 0.1.2.3 is not an address that clients can reach',
    ],
    '[network]\ngateway_v4 = "223.255.255.255"\npublic_v4 = "1.0.0.0"',
  ],
  [
    'a pool of addresses that no instance can have',
    '[network]\npool_v4 = "127.0.0.0/24"',
    ['network.pool_v4: 127.0.0.0/24 has no addresses that instances can have; use a unicast network'],
    '[network]\npool_v4 = "128.0.0.0/24"',
  ],
  [
    'peers that are no network',
    '[network]\nprobe_peers = ["1:2/64", "fd00::/129"]',
    ['1:2/64', 'fd00::/129'].map(
      (peers, at) => `network.probe_peers.${at}: "${peers}" is not an IPv6 network ADDRESS/N`,
    ),
    '[network]\nprobe_peers = ["10.0.0.0/24", "fd00::/128"]',
  ],
  [
    'DNS where instances ask for names',
    '[network]\ngateway_v4 = "10.9.0.1"\nallow_names = ["a.example"]\n[listen]\ndns = "10.9.0.1:53"',
    ['listen.dns: 10.9.0.1:53 is where instances ask for names (network.allow_names); choose another address'],
    '[network]\ngateway_v4 = "10.9.0.1"\n[listen]\ndns = "10.9.0.1:53"',
  ],
  [
    'too few user ids',
    '[vm]\nuid_min = 70000\nuid_max = 69999\n[pool]\nwarm = 0',
    ['vm.uid_max: 69999 is below uid_min (70000); each VM needs a user id of its own from this range'],
    '[vm]\nuid_min = 70000\nuid_max = 70000\n[pool]\nwarm = 0',
  ],
  [
    'memory for no instance',
    '[vm]\nmemory_mib = 4096\n[capacity]\nmemory_mib = 4095\n[pool]\nwarm = 0',
    [
      'capacity.memory_mib: 4095 is too small for one instance of vm.memory_mib (4096); raise it, or use 0 for the default',
    ],
    '[vm]\nmemory_mib = 4096\n[capacity]\nmemory_mib = 4096\n[pool]\nwarm = 0',
  ],
  [
    'processors for no instance',
    '[vm]\nvcpus = 3\n[capacity]\nvcpus = 2\n[pool]\nwarm = 0',
    ['capacity.vcpus: 2 is too small for one instance of vm.vcpus (3); raise it, or use 0 for the default'],
    '[vm]\nvcpus = 3\n[capacity]\nvcpus = 3\n[pool]\nwarm = 0',
  ],
  [
    'disk for no instance',
    '[vm]\nscratch_gib = 8\n[capacity]\nscratch_gib = 7\n[pool]\nwarm = 0',
    ['capacity.scratch_gib: 7 is too small for one instance of vm.scratch_gib (8); raise it, or use 0 for the default'],
    '[vm]\nscratch_gib = 8\n[capacity]\nscratch_gib = 8\n[pool]\nwarm = 0',
  ],
  [
    'more warm VMs than memory',
    '[vm]\nmemory_mib = 2048\n[capacity]\nmemory_mib = 6143\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: capacity.memory_mib (6143) has room for 2'],
    '[vm]\nmemory_mib = 2048\n[capacity]\nmemory_mib = 6144\n[pool]\nwarm = 3',
  ],
  [
    'more warm VMs than processors',
    '[vm]\nvcpus = 2\n[capacity]\nvcpus = 5\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: capacity.vcpus (5) has room for 2'],
    '[vm]\nvcpus = 2\n[capacity]\nvcpus = 6\n[pool]\nwarm = 3',
  ],
  [
    'more warm VMs than disk',
    '[vm]\nscratch_gib = 8\n[capacity]\nscratch_gib = 23\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: capacity.scratch_gib (23) has room for 2'],
    '[vm]\nscratch_gib = 8\n[capacity]\nscratch_gib = 24\n[pool]\nwarm = 3',
  ],
  [
    'more warm VMs than ASIDs',
    '[capacity]\nasids = 2\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: capacity.asids (2) has room for 2'],
    '[capacity]\nasids = 3\n[pool]\nwarm = 3',
  ],
  [
    'more warm VMs than addresses',
    '[network]\npool_v4 = "10.9.0.0/30"\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: network.pool_v4 (10.9.0.0/30) has room for 2'],
    '[network]\npool_v4 = "10.9.0.0/29"\n[pool]\nwarm = 3',
  ],
  [
    'more warm VMs than user ids',
    '[vm]\nuid_min = 70000\nuid_max = 70001\n[pool]\nwarm = 3',
    ['pool.warm: 3 VMs do not fit: vm.uid_min to vm.uid_max has room for 2'],
    '[vm]\nuid_min = 70000\nuid_max = 70002\n[pool]\nwarm = 3',
  ],
  [
    'a scratch disk that the memory cannot authenticate',
    '[vm]\nmemory_mib = 1536\nscratch_gib = 25',
    [
      'vm.scratch_gib: 25 is too large: 1536 MiB of memory (vm.memory_mib) hold the authentication of 24 GiB; lower it, or raise that',
    ],
    '[vm]\nmemory_mib = 1536\nscratch_gib = 24',
  ],
  [
    'names of the console',
    '[console]\nnames = ["console.example", "*.example", "[::1]", "Console.example"]',
    ['*.example', '[::1]', 'Console.example'].map(
      (name, at) =>
        `console.names.${at + 1}: "${name}" is not allowed; allowed: a DNS name in lowercase, or an IP address without brackets`,
    ),
    '[console]\nnames = ["console.example", "::1", "192.0.2.1"]',
  ],
  [
    'names of upstreams',
    `${upstream('a')}${upstream('a')}${upstream('built-in')}`,
    [
      'inference.upstreams.1.name: "a" is the name of another upstream too; receipts name upstreams, so choose another',
      'inference.upstreams.2.name: "built-in" is the name of the built-in worker, which receipts vouch for; choose another',
    ],
    `${upstream('a')}${upstream('b')}`,
  ],
  [
    'a disk alone for a worker on the host',
    '[inference]\nplacement = "host"\n[inference.worker]\nmodel_disk = "m"',
    ['inference.worker.model_file: must name the GGUF file of model_disk (m): a gateway on the host serves the file'],
    '[inference]\nplacement = "vm"\n[inference.worker]\nmodel_disk = "m"',
  ],
  [
    'more spans at once than may wait',
    '[inference.traces]\nbatch_max = 101\nqueue_max = 100',
    ['inference.traces.batch_max: 101 is more than may wait (queue_max, 100)'],
    '[inference.traces]\nbatch_max = 100\nqueue_max = 100',
  ],
  [
    'a model twice',
    '[instances]\ninference_models = ["m", "n", "m"]',
    ['instances.inference_models: names a model twice'],
    '[instances]\ninference_models = ["m", "n"]',
  ],
  [
    'an address of the gateway that is no address',
    '[instances]\ninference_base_url = "ftp://a.example"',
    ['instances.inference_base_url: "ftp://a.example" is not allowed; allowed: "" or an http: or https: URL'],
    '[instances]\ninference_base_url = "http://a.example"',
  ],
  [
    'a certificate that is due as soon as it is made',
    '[tls]\nvalidity_days = 30\nrenew_before_days = 30',
    ['tls.renew_before_days: must be less than validity_days (30), else every certificate is already due for renewal'],
    '[tls]\nvalidity_days = 30\nrenew_before_days = 29',
  ],
]

test.each(CASES)('goal: %s', (_, refused, problems, taken) => {
  expect(problemsOf(refused)).toEqual([...problems])
  expect(problemsOf(taken)).toEqual([])
})
