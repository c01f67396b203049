// Goal: each fact about a host leads to the right verdict on each platform; nothing unknown is ever called PASS.

import { expect, test } from 'bun:test'
import { encodeTcb } from '../../../src/attest/amd/tcb-encode.ts'
import type { Outcome } from '../../../src/cli/doctor/check.ts'
import type { VmGatewayFacts } from '../../../src/cli/doctor/gateway.plan.ts'
import { type DeviceFacts, type HostFacts, judge } from '../../../src/cli/doctor/host.plan.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import type { AdminGatewayVms } from '../../../src/contract/admin/gateway-vms.ts'
import type { FoundProblem, HostProblem } from '../../../src/contract/admin/problems.ts'
import { collateralProblem, type KeptCollateral } from '../../../src/host/kds/kept.ts'
import type { SnpStatus } from '../../../src/host/sev.ts'

const ok = (text: string) => ({ ok: true, text }) as const
const no = (text: string) => ({ ok: false, text }) as const

const device = (group: string, mode: number, outcome: Outcome): DeviceFacts => ({ outcome, group, mode })
const refused = no('Permission denied')

const genoaTcb = encodeTcb({ bootloader: 9, tee: 0, snp: 255, microcode: 255, fmc: null }, 'genoa')
const nowMs = Date.UTC(2026, 10, 20)
const dayMs = 86_400_000
const kept: KeptCollateral = {
  product: 'genoa',
  veks: { count: 1, fetchedAtMs: nowMs - 3 * dayMs },
  chainFetchedAtMs: nowMs - 30 * dayMs,
  crlFetchedAtMs: nowMs - 3_600_000,
  crlNextUpdateMs: nowMs + 60 * dayMs,
}

const of = (collateral: KeptCollateral) => ({ kept: collateral, problem: collateralProblem(collateral, nowMs) })

const shownVm: AdminGatewayVms['gateways'][number] = {
  vm: 'v1',
  state: 'serving',
  address: '10.88.0.2',
  since: '2026-11-19T00:00:00.000Z',
  current: true,
  workload_sha256: null,
  keys_revision: 1,
  requests_running: 0,
  usage_waiting: 0,
  usage_waiting_since: null,
  usage_booked: 7,
  problem: null,
  reason: null,
}

const snpStatus: SnpStatus = {
  apiMajor: 1,
  apiMinor: 55,
  build: 40,
  isInitialized: true,
  isRmpInitialized: true,
  isChipMasked: false,
  guestCount: 1,
  currentTcb: genoaTcb,
  reportedTcb: genoaTcb,
}

const enforced = 'libvirtd (enforce)\nswtpm (enforce)\nman_groff (enforce)\n'

const SNP: HostFacts = {
  configFile: '/etc/f.toml',
  config: { ...defaultConfig(), builds: { ...defaultConfig().builds, fetch_hosts: ['git.example'] } },
  isRoot: true,
  detected: { platform: 'snp', reasons: ['/dev/sev: present'] },
  snp: ok('C-bit 51, 99 ASIDs'),
  qemu: ok('QEMU emulator version 10.0.2 (Debian)'),
  swtpm: ok('TPM emulator version 0.7.1, Copyright'),
  swtpmPath: '/usr/bin/swtpm',
  appArmorProfiles: 'libvirtd (enforce)\nvirt-swtpm (enforce)\nswtpm (complain)\n',
  qemuObjects: ok('List of user creatable objects:\n  sev-guest\n  sev-snp-guest\n'),
  nft: ok('nftables v1.0.6'),
  ip: ok('ip utility'),
  conntrack: true,
  missingTools: [],
  tunDevice: true,
  routeAddress: '192.0.2.7',
  proxy: null,
  attestedUpstreams: [],
  log: {
    size: 3,
    shown: 3,
    last_entry_at: '2026-11-26T10:00:00.000Z',
    waiting_since: null,
    witnesses: 0,
    problems: [],
  },
  image: ok('image'),
  measurement: ok('bios/EPYC-v4/2: abcd'),
  collateral: of(kept),
  nowMs,
  snpHost: {
    kernel: '6.12.0',
    product: 'genoa',
    cpuid: null,
    asids: { used: 1, total: 99 },
    firmware: ok('firmware.fd'),
    cpu: { ok: true, value: { cbitpos: 51, reducedPhysBits: 6, asidCount: 99 } },
    status: { ok: true, value: snpStatus },
  },
  canary: { kind: 'ran', tookMs: 90 },
  network: {
    forwarding: { forwards: false, interfaces: ['eth0', 'eth1'] },
    forwardingV6: { forwards: false, interfaces: [] },
    firewalls: { dropped: [], unknown: null },
    listening: [],
    isRoot: true,
    provider: null,
  },
  machine: {
    nowMs,
    boardMs: nowMs,
    writtenMs: nowMs,
    clock: { isSynchronised: true, errorMaxMs: 1 },
    freeDiskGib: 80,
    inodes: { total: 0, free: 0 },
    openFilesMax: 1e6,
    systemFilesMax: 1e9,
    tasksMax: 1e6,
    connections: { max: 1e6, count: 0 },
    controllers: ['cpu', 'memory', 'pids'],
    capacity: { ok: true, memoryMib: 20_480, vcpus: 100, addresses: 254, asids: 99, bootingMax: 2 },
  },
  delegation: { kind: 'asked', zone: 'x', by: 'y', nameServers: ['ns'], addresses: ['192.0.2.7', '192.0.2.8'] },
  leaks: { ok: true, kinds: [] },
  acme: null,
  certificates: [],
  problems: [],
  diskProblem: null,
  kvmDevice: device('kvm', 0o660, ok('opened')),
  sevDevice: device('kvm', 0o660, ok('opened')),
  gpus: [],
  gateway: {
    placement: 'vm',
    image: ok('inference'),
    measurement: ok('bios/EPYC-v4/2: 99'),
    model: ok('strongroom-tiny'),
    modelMib: 3,
    controlKey: { kind: 'there', path: '/s/control.key', uid: 0, mode: 0o600 },
    shown: { placement: 'vm', problem: null, gateways: [shownVm] },
  },
  builds: { image: ok('builder'), measurement: ok('bios/EPYC-v4/2: ef'), authorities: null, freeGib: 21 },
  stateDir: '/var/lib/strongroom',
  ...{ stateDirFreeBytes: 10_737_418_240, snapshotBytes: 0 },
  stateDirWritable: true,
  fleet: null,
  database: { kind: 'read', path: '/s/strongroom.db', sizeBytes: 1, problem: null, unchecked: [], schema: 22 },
  schemaNewest: 22,
  systemd: true,
  daemon: ok('version 1'),
  daemonPid: 1,
}
const TCG: HostFacts = { ...SNP, detected: { platform: 'tcg', reasons: [] }, snp: no('no') }
/** Nobody asks these of another platform. */
const snpAlone = {
  'sev-snp': 'SKIP',
  'sev firmware': 'SKIP',
  asids: 'SKIP',
  tcb: 'SKIP',
  firmware: 'SKIP',
  collateral: 'SKIP',
}
const emulated = { kvm: 'SKIP', ...snpAlone }

function not(facts: HostFacts): Record<string, string> {
  const odd = judge(facts).filter(check => check.result !== 'PASS')
  return Object.fromEntries(odd.map(check => [check.name, check.result]))
}

function withBuilds(change: Partial<NonNullable<HostFacts['builds']>>): HostFacts {
  if (SNP.builds === null) throw new Error('the sample has service C')
  return { ...SNP, builds: { ...SNP.builds, ...change } }
}

function withGateway(change: Partial<VmGatewayFacts>): HostFacts {
  if (SNP.gateway.placement !== 'vm') throw new Error('the sample has a gateway in a VM')
  return { ...SNP, gateway: { ...SNP.gateway, ...change } }
}

const keyFile = (uid: number, mode: number) => ({ kind: 'there', path: '/k', uid, mode }) as const
const shows = (
  gateways: AdminGatewayVms['gateways'],
  problem: string | null = null,
  placement: AdminGatewayVms['placement'] = 'vm',
) => withGateway({ shown: { placement, problem, gateways } })

function withVm(change: Partial<Config['vm']>): Config {
  const { config } = SNP
  return { ...config, vm: { ...config.vm, ...change } }
}

const diskProblem: FoundProblem = {
  ...{ name: 'disk', subject: null, severity: 'warning', sinceMs: null },
  ...{ detail: 'the disk is full', remedy: 'free some space' },
}

const igvm = withVm({ snp_boot: 'igvm', igvm: '/i.igvm' })

const listed = (...problems: Partial<HostProblem>[]): HostFacts => ({
  ...SNP,
  problems: problems.map(problem => ({
    ...{ name: 'tpm', subject: null, severity: 'warning', since: '2026-11-19T00:00:00.000Z' },
    ...{ detail: 'what is wrong', affects: 'clients', remedy: 'mend it', ...problem },
  })),
})
const acmeName: NonNullable<HostFacts['acme']>[number] = {
  ...{ name: 'i.example', holder: 'host', expires_at: '2027-01-01T00:00:00.000Z' },
  ...{ next_at: '2026-12-01T00:00:00.000Z', failure: null },
}

const TABLE: [string, HostFacts, Record<string, string>][] = [
  ['a complete SNP host', SNP, {}],
  ['a development host', TCG, emulated],
  ['an image without a digest for the shape', { ...SNP, measurement: no('none') }, { measurement: 'FAIL' }],
  ['no image', { ...SNP, image: no('none'), measurement: null }, { image: 'FAIL', measurement: 'SKIP' }],
  ['no first start yet', { ...SNP, collateral: null }, { collateral: 'SKIP' }],
  ['no CRL', { ...SNP, collateral: of({ ...kept, crlFetchedAtMs: null }) }, { collateral: 'FAIL' }],
  ['a CRL that has ended', { ...SNP, collateral: of({ ...kept, crlNextUpdateMs: nowMs }) }, { collateral: 'FAIL' }],
  ['no daemon to name certificates', { ...SNP, certificates: null }, { certificates: 'SKIP' }],
  ['a warning of the daemon', listed({ name: 'pool' }), { pool: 'WARN' }],
  ['a critical problem', listed({ name: 'models', severity: 'critical' }), { models: 'FAIL' }],
  ['a certificate in the list', listed({ name: 'certificate', subject: 'guest' }), { certificates: 'WARN' }],
  ['a clock that is held', listed({ name: 'clock', severity: 'critical' }), { clock: 'FAIL' }],
  ['a log without cosignatures', listed({ name: 'log', severity: 'critical' }), { 'transparency log': 'FAIL' }],
  ['a witness that fails', listed({ name: 'log', subject: 'w.example' }), { 'log witness': 'WARN' }],
  ['leaks in the list', listed({ name: 'leaks' }), { ledger: 'WARN' }],
  ['a gateway that does not serve', listed({ name: 'gateway', severity: 'critical' }), { 'gateway VM': 'FAIL' }],
  ['a name by ACME', { ...SNP, acme: [acmeName] }, {}],
  [
    'a name by ACME with a problem',
    { ...listed({ name: 'acme', subject: 'i.example' }), acme: [acmeName] },
    { 'acme i.example': 'WARN' },
  ],
  ['SNP without the CPU facts', { ...SNP, snp: no('open cpuid') }, { 'sev-snp': 'FAIL' }],
  ['a QEMU too old for SNP', { ...SNP, qemu: ok('QEMU emulator version 9.0.9') }, { qemu: 'FAIL' }],
  ['the oldest QEMU for SNP', { ...SNP, qemu: ok('QEMU emulator version 9.1.0') }, {}],
  ['a QEMU too old to emulate', { ...TCG, qemu: ok('QEMU emulator version 7.1.9') }, { ...emulated, qemu: 'FAIL' }],
  ['the oldest QEMU that emulates', { ...TCG, qemu: ok('QEMU emulator version 7.2.0') }, emulated],
  ['no swtpm', { ...TCG, swtpm: no('no such program') }, { ...emulated, tpm: 'WARN' }],
  // As a kernel lists them: Ubuntu's package swtpm has such a profile, Debian's has none.
  ['an swtpm that AppArmor confines', { ...TCG, appArmorProfiles: enforced }, { ...emulated, tpm: 'WARN' }],
  ['another swtpm beside it', { ...TCG, appArmorProfiles: enforced, swtpmPath: '/opt/swtpm' }, emulated],
  ['no swtpm on snp', { ...SNP, swtpm: no('no such program') }, {}],
  ['a QEMU without SNP', { ...SNP, qemuObjects: ok('sev-guest') }, { qemu: 'FAIL' }],
  ['a QEMU that does not list objects', { ...SNP, qemuObjects: no('exit code 1') }, { qemu: 'FAIL' }],
  ['IGVM wanted of a QEMU without it', { ...SNP, config: igvm }, { qemu: 'FAIL' }],
  ['IGVM with a QEMU that has it', { ...SNP, config: igvm, qemuObjects: ok('igvm-cfg sev-snp-guest') }, {}],
  ['no QEMU', { ...SNP, qemu: no('ENOENT') }, { qemu: 'FAIL' }],
  ['something else in place of QEMU', { ...SNP, qemu: ok('hello') }, { qemu: 'FAIL' }],
  ['no worker in the VM', withGateway({ model: null }), { 'gateway model': 'SKIP' }],
  ['a model without its disk', withGateway({ model: no('no model m') }), { 'gateway model': 'FAIL' }],
  ['a model as large as the VM', withGateway({ modelMib: 4096 }), { 'gateway model': 'WARN' }],
  ['a model just smaller', withGateway({ modelMib: 4095 }), {}],
  [
    'no gateway image',
    withGateway({ image: no('none'), measurement: null }),
    { 'gateway image': 'FAIL', 'gateway measurement': 'SKIP' },
  ],
  ['a gateway image without the shape', withGateway({ measurement: no('none') }), { 'gateway measurement': 'FAIL' }],
  ['no control key yet', withGateway({ controlKey: { kind: 'unmade', path: '/k' } }), { 'control key': 'SKIP' }],
  ['a control key that is lost', withGateway({ controlKey: { kind: 'lost', path: '/k' } }), { 'control key': 'FAIL' }],
  [
    'a control key behind a wall',
    withGateway({ controlKey: { kind: 'unknown', path: '/k' } }),
    { 'control key': 'SKIP' },
  ],
  ['a control key of another user', withGateway({ controlKey: keyFile(1000, 0o600) }), { 'control key': 'FAIL' }],
  ['a control key for a group', withGateway({ controlKey: keyFile(0, 0o640) }), { 'control key': 'FAIL' }],
  ['a control key for nobody else', withGateway({ controlKey: keyFile(0, 0o400) }), {}],
  ['a daemon that does not answer', withGateway({ shown: null }), { 'gateway VM': 'SKIP' }],
  ['a daemon with another placement', shows([], null, 'host'), { 'gateway VM': 'WARN' }],
  ['no gateway VM that serves', shows([{ ...shownVm, state: 'starting' }]), { 'gateway VM': 'SKIP' }],
  ['a gateway VM that serves', shows([shownVm]), {}],
  [
    'a gateway on the host, without a worker',
    { ...SNP, gateway: { placement: 'host', user: null, worker: null } },
    { gateway: 'SKIP', user: 'SKIP', worker: 'SKIP' },
  ],
  [
    'a gateway on the host whose worker cannot run',
    { ...SNP, gateway: { placement: 'host', user: no('there is no user x'), worker: no('not installed: bwrap') } },
    { gateway: 'SKIP', user: 'FAIL', worker: 'FAIL' },
  ],
  ['no firmware', { ...SNP, snpHost: { ...SNP.snpHost, firmware: no('ENOENT') } }, { firmware: 'FAIL' }],
  ['a canary that hangs', { ...SNP, canary: { kind: 'silent', tookMs: 5_000, isGone: true } }, { canary: 'FAIL' }],
  [
    'a router',
    {
      ...SNP,
      network: {
        ...SNP.network,
        forwarding: { forwards: true, interfaces: ['eth0', 'eth1'] },
      },
    },
    { forwarding: 'WARN' },
  ],
  [
    'a proxy that connects to all',
    { ...SNP, proxy: { url: 'http://p:1', hosts: [{ host: 'a', outcome: ok('status 404') }], unread: [] } },
    {},
  ],
  ['a proxy for nothing', { ...SNP, proxy: { url: 'http://p:1', hosts: [], unread: [] } }, {}],
  [
    'a proxy that refuses one host',
    {
      ...SNP,
      proxy: {
        url: 'http://p:1',
        unread: [],
        hosts: [
          { host: 'a', outcome: ok('status 200') },
          { host: 'b', outcome: no('refused') },
        ],
      },
    },
    { proxy: 'FAIL' },
  ],
  ['a clock of nobody', { ...SNP, machine: { ...SNP.machine, clock: null } }, { clock: 'SKIP' }],
  ['a domain that is not delegated', { ...SNP, delegation: { kind: 'none', reason: 'no' } }, { delegation: 'SKIP' }],
  ['a ledger that differs', { ...SNP, leaks: { ok: true, kinds: ['tap unknown'] } }, { ledger: 'WARN' }],
  ['a daemon that does not look', { ...SNP, leaks: no('host.command_timeout') }, { ledger: 'SKIP' }],
  ['not root', { ...SNP, isRoot: false, nft: null }, { kvm: 'SKIP', 'sev-snp': 'SKIP', nft: 'SKIP' }],
  ['no nft', { ...SNP, nft: no('ENOENT') }, { nft: 'FAIL' }],
  ['no conntrack', { ...SNP, conntrack: false }, { conntrack: 'FAIL' }],
  ['no prlimit', { ...SNP, missingTools: ['prlimit'] }, { jail: 'FAIL' }],
  ['no address for the host names', { ...SNP, routeAddress: null }, { 'host names': 'FAIL', delegation: 'SKIP' }],
  [
    'an address for the host names in the configuration',
    {
      ...SNP,
      routeAddress: null,
      config: { ...SNP.config, network: { ...SNP.config.network, public_v4: '192.0.2.8' } },
    },
    {},
  ],
  [
    'no DNS of our own',
    { ...SNP, routeAddress: null, config: { ...SNP.config, listen: { ...SNP.config.listen, dns: '' } } },
    { 'host names': 'SKIP', delegation: 'SKIP' },
  ],
  ['no service C', { ...SNP, builds: null }, { builds: 'SKIP' }],
  [
    'no builder image',
    withBuilds({ image: no('none'), measurement: null }),
    { 'builder image': 'FAIL', 'builder measurement': 'SKIP' },
  ],
  ['a builder image without the shape', withBuilds({ measurement: no('none') }), { 'builder measurement': 'FAIL' }],
  ['authorities to fetch with', withBuilds({ authorities: ok('/ca.pem') }), {}],
  ['authorities that cannot be read', withBuilds({ authorities: no('ENOENT') }), { 'builder fetch': 'FAIL' }],
  ['builds that fetch nothing', { ...SNP, config: defaultConfig() }, { 'builder fetch': 'SKIP' }],
  ['a disk just too small for a build', withBuilds({ freeGib: 20 }), { 'builder disk': 'FAIL' }],
  ['a disk of unknown room', withBuilds({ freeGib: null }), { 'builder disk': 'SKIP' }],
  ['no tun', { ...SNP, tunDevice: false }, { tun: 'FAIL' }],
  ['no image', { ...SNP, image: no('ENOENT') }, { image: 'FAIL' }],
  ['a first start', { ...SNP, stateDirFreeBytes: null, stateDirWritable: false }, { 'state directory': 'SKIP' }],
  ['a state directory of others', { ...SNP, stateDirWritable: false }, { 'state directory': 'FAIL' }],
  ['a full disk', { ...SNP, diskProblem: { ...diskProblem, severity: 'critical' } }, { 'state directory': 'FAIL' }],
  ['a disk that is nearly full', { ...SNP, diskProblem }, { 'state directory': 'WARN' }],
  ['no systemd', { ...SNP, systemd: false }, { systemd: 'SKIP', 'control groups': 'SKIP' }],
  [
    'no daemon',
    { ...SNP, daemon: no('no daemon answers'), daemonPid: null, leaks: null },
    { ledger: 'SKIP', daemon: 'WARN' },
  ],
  [
    'no daemon before the first start',
    { ...SNP, daemon: no('no daemon answers'), database: { kind: 'none', path: '/s', leftovers: [] }, problems: null },
    { database: 'SKIP', daemon: 'SKIP' },
  ],
]

test.each(TABLE)('goal: verdicts on %s', (_, facts, odd) => {
  expect(not(facts)).toEqual(odd)
  for (const check of judge(facts))
    expect([check.name, check.remedy !== null]).toEqual([
      check.name,
      check.result === 'FAIL' || check.result === 'WARN',
    ])
})

test('goal: a pinned platform must be there; pinning a lesser one is a choice', () => {
  const pinned = (platform: 'snp' | 'kvm' | 'tcg', facts: HostFacts) =>
    judge({ ...facts, config: { ...defaultConfig(), platform } }).find(check => check.name === 'platform')?.result
  expect([pinned('snp', TCG), pinned('kvm', TCG), pinned('tcg', TCG), pinned('tcg', SNP), pinned('snp', SNP)]).toEqual([
    'FAIL',
    'FAIL',
    'PASS',
    'PASS',
    'PASS',
  ])
  const kvm: HostFacts = { ...TCG, detected: { platform: 'kvm', reasons: ['/dev/kvm: present'] } }
  expect((['snp', 'kvm', 'tcg'] as const).map(name => pinned(name, kvm))).toEqual(['FAIL', 'PASS', 'PASS'])
})

test('goal: a device that VMs cannot open fails the check and names the command that helps, by the group and mode it has', () => {
  const kvm = { ...SNP, detected: { platform: 'kvm', reasons: [] } } as const satisfies HostFacts
  const of = (facts: HostFacts, name: string) => judge(facts).find(check => check.name === name)
  const remedy =
    'write KERNEL=="kvm", GROUP="kvm", MODE="0660" to /etc/udev/rules.d/60-strongroom.rules; ' +
    'run udevadm control --reload; udevadm trigger --name-match=kvm; QEMU gets the group by itself'
  expect(of({ ...kvm, kvmDevice: device('kvm', 0o660, refused) }, 'kvm')).toEqual({
    name: 'kvm',
    result: 'FAIL',
    detail: 'VMs cannot open /dev/kvm (as uid 70000): Permission denied; it has group kvm, mode 660',
    remedy,
  })
  expect(of({ ...kvm, kvmDevice: device('root', 0o600, refused) }, 'kvm')?.remedy).toBe(remedy)
  expect(of({ ...SNP, sevDevice: device('root', 0o600, refused) }, 'sev-snp')?.remedy).toContain('KERNEL=="sev"')
  // Where permission is not what is missing, a group does not help.
  expect(of({ ...kvm, kvmDevice: device('kvm', 0o660, no('No such device')) }, 'kvm')?.remedy).toContain('modprobe')
  expect(of({ ...kvm, kvmDevice: null }, 'kvm')?.result).toBe('FAIL')
  expect(of({ ...kvm, isRoot: false }, 'kvm')?.result).toBe('SKIP')
  expect(of({ ...SNP, isRoot: false }, 'sev-snp')?.result).toBe('SKIP')
  expect(of({ ...kvm, kvmDevice: null, isRoot: false }, 'kvm')?.result).toBe('FAIL')
})

test('goal: the age of the collateral is told, and what to do before it is too late', () => {
  const said = (collateral: KeptCollateral) =>
    judge({ ...SNP, collateral: of(collateral) }).find(check => check.name === 'collateral')
  expect(said(kept)).toMatchObject({
    detail: '1 VEKs, the newest 3 days old; chain 30 days old; CRL 1 h old, next update 2027-01-19T00:00:00.000Z',
    remedy: null,
  })
  for (const change of [{ crlNextUpdateMs: nowMs + dayMs }, { crlFetchedAtMs: nowMs - 3 * dayMs }]) {
    expect(said({ ...kept, ...change })?.remedy).toContain('kds.base_url')
  }
})

test('goal: what service C lacks comes with the field to change', () => {
  const remedy = (facts: HostFacts, name: string) => judge(facts).find(check => check.name === name)?.remedy ?? ''
  expect(remedy(withBuilds({ image: no('x') }), 'builder image')).toContain('build-image.ts builder')
  expect(remedy(withBuilds({ measurement: no('x') }), 'builder measurement')).toContain('builds.vcpus (2)')
  expect(remedy(withBuilds({ authorities: no('x') }), 'builder fetch')).toContain('builds.fetch_ca_file')
  const small = withBuilds({ freeGib: 20 })
  expect(remedy(small, 'builder disk')).toStartWith('free space in the state directory')
  const config = { ...SNP.config, capacity: { ...SNP.config.capacity, scratch_gib: 20 } }
  expect(remedy({ ...small, config }, 'builder disk')).toStartWith('raise capacity.scratch_gib')
})

test('goal: what the gateway lacks comes with what to do, and what it costs', () => {
  const said = (facts: HostFacts, name: string) => judge(facts).find(check => check.name === name)
  expect(said(withGateway({ image: no('x') }), 'gateway image')?.remedy).toContain('build-image.ts inference')
  expect(said(withGateway({ measurement: no('x') }), 'gateway measurement')?.remedy).toContain('inference.vcpus (2)')
  expect(said(withGateway({ model: no('x') }), 'gateway model')?.remedy).toContain('strongroom model add')
  expect(said(withGateway({ controlKey: { kind: 'lost', path: '/k' } }), 'control key')?.detail).toContain('HOST_DATA')
  expect(said(withGateway({ controlKey: keyFile(0, 0o644) }), 'control key')?.remedy).toContain('chmod 600 /k')
})
