// Goal: the program, started as users start it, prints what scripts rely on and exits with documented codes.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createClockGuard } from '../../scripts/rigs/clock-guard.ts'
import { PROBLEM_LIST } from '../../scripts/rigs/console/problem-list.ts'
import { systemClock } from '../../src/base/clock.ts'
import { newUuid, systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { version } from '../../src/base/version.ts'
import type { AdminLeak, AdminStatus } from '../../src/contract/admin/admin.ts'
import { offeredModels } from '../../src/contract/key-rules.ts'
import { mintGatewayKey } from '../../src/inference/keys/authenticate.ts'
import { mintKey } from '../../src/instances/http/auth.ts'
import { type AdminServer, listenAdmin } from '../../src/operator/access/socket.ts'
import { createAdmin } from '../../src/operator/api.ts'
import { MIGRATIONS, openStore, type Store, schemaVersionOf } from '../../src/store/db.ts'
import { insertInstance, instanceById } from '../../src/store/directory/instance.query.ts'
import { instances } from '../../src/store/directory/instance.table.ts'
import { findOrganization } from '../../src/store/directory/organization.query.ts'
import { appendEvent } from '../../src/store/ledger/event.query.ts'
import { insertVm } from '../../src/store/ledger/vm.query.ts'
import { NO_ADMINISTRATORS } from '../rigs/admin.ts'
import { STATUS } from '../rigs/admin-status.ts'
import { main, type Result, runHere, runWith } from '../rigs/program.ts'

/** Tests here start dozens of processes at once. */
setDefaultTimeout(120_000)

let dir: string
let store: Store
let server: AdminServer
let leaks: AdminLeak[] = []
const problems: AdminStatus['problems'] = []

const vm = { vm: 'v1', state: 'starting', problem: 'the worker: it is not healthy yet' } as const

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'strongroom-cli-'))
  store = openStore(join(dir, 'strongroom.db'))
  const admin = createAdmin({
    ...NO_ADMINISTRATORS,
    store,
    clock: { ...systemClock, nowMs: () => Date.parse('2026-11-20T12:00:00.000Z') },
    random: systemRandom,
    log: silentLogger,
    mintKey,
    mintGatewayKey,
    offeredModels: offeredModels([]),
    gateway: 'off',
    cancelBuild: null,
    deleteInstance: async instance => {
      store.directory.db.update(instances).set({ desired: 'absent', terminatedReason: instance.terminatedReason }).run()
    },
    applyEgressLimits: async () => {},
    clockGuard: createClockGuard(systemClock),
    vm: () => ({ state: 'running', address: '10.88.0.2', addressV6: '2001:db8::2' }),
    status: () => ({
      ...STATUS,
      host_id: store.hostId,
      tpm: 'missing',
      ready: problems.length === 0,
      problems,
      instances: { ready: 1, failed: 0 },
      pool: { ...STATUS.pool, wanted: 3, warm: 1 },
      gateway: {
        ...STATUS.gateway,
        placement: 'vm',
        ...vm,
        traces: { exported: 7, dropped: 2, waiting: 1, problem: 'status 401' },
      },
    }),
    leaks: async () => leaks,
    collectors: [],
    consoleDir: vmId => join(dir, vmId),
  })
  server = await listenAdmin(join(dir, 'admin.sock'), admin)
})
afterAll(async () => {
  await server.stop()
  store.close()
  rmSync(dir, { recursive: true, force: true })
})

function run(argv: readonly string[], env: Record<string, string> = {}): Promise<Result> {
  return runWith({ STRONGROOM_STATE_DIR: dir, ...env }, argv)
}

async function runJson(...argv: string[]): Promise<{ code: number; document: unknown }> {
  const { code, stdout, stderr } = await run([...argv, '--json'])
  expect([argv, stderr]).toEqual([argv, ''])
  return { code, document: JSON.parse(stdout) }
}

/** A ready instance with a console, whose escape sequence would retitle a terminal. */
function addInstance(slug: string, name: string): string {
  const organizationId = findOrganization(store.directory.db, slug)?.id ?? ''
  const [id, vmId] = [newUuid(), newUuid()]
  const nowMs = Date.parse('2026-11-20T12:00:00.000Z')
  insertVm(store.ledger.db, { id: vmId, hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
  insertInstance(store.directory.db, {
    id,
    name,
    organizationId,
    vmId,
    nowMs,
    hostId: store.hostId,
    hostname: `${name}.${slug}.agents.test`,
    agent: 'agent',
    publicKey: 'ssh-ed25519 AAAA',
    inferenceMode: 'default_gateway',
    inferenceModel: 'tiny',
  })
  mkdirSync(join(dir, vmId))
  writeFileSync(join(dir, vmId, 'console.log'), 'booted\r\n\u001b]0;owned\u0007login\n')
  return id
}

/** A command and those below it. */
const under = (command: string, ...names: string[]) => [command, ...names.map(name => `${command} ${name}`)]

const COMMANDS = [
  ...['up', 'ls', 'cp', 'usage', 'rm'],
  ...under('client', 'init'),
  ...['serve', 'status', 'ssh', 'doctor', 'version', 'metrics', 'operator-key', 'gateway'],
  ...under('org', 'create', 'list', 'show', 'suspend', 'resume'),
  ...under('key', 'create', 'list', 'revoke'),
  ...under('instance', 'list', 'show', 'delete', 'console', 'logs', 'egress', 'egress raise'),
  ...under('builds', 'list', 'show', 'cancel'),
  ...under('inference', 'show', 'update', 'logs'),
  ...under('model', 'add', 'list', 'remove'),
  ...under('config', 'check', 'show', 'reference'),
  ...under('verify', 'report', 'id-block', 'instance', 'policy-schema', 'policy-example', 'tcb-floors'),
  ...under('measure', 'ovmf', 'igvm'),
  ...under('igvm', 'build', 'show'),
  ...under('show', 'report'),
  ...under('id-block', 'create', 'check'),
  ...under('verity', 'root'),
  ...under('gateway key', 'create', 'list', 'revoke'),
]

test('goal: every command has help with its usage, examples, the global options and the exit codes', async () => {
  const helps = await Promise.all(COMMANDS.map(command => run([...command.split(' '), '--help'])))
  for (const [index, { code, stdout, stderr }] of helps.entries()) {
    const command = COMMANDS[index] ?? ''
    expect([command, code, stderr]).toEqual([command, 0, ''])
    expect(stdout).toStartWith(`Usage: strongroom ${command}`)
    expect(stdout).toMatch(new RegExp(`Examples:\n {2}strongroom ${command}`))
    for (const part of ['--json', '--config <file>', '--state-dir <dir>', 'Exit codes:\n  0  done']) {
      expect([command, stdout.includes(part)]).toEqual([command, true])
    }
  }
})

const BAD_USAGE: [string[], string][] = [
  [[], 'a command is missing'],
  [['org'], 'a command is missing'],
  [['nope'], "unknown command 'nope'"],
  [['statsu'], "unknown command 'statsu'\n(Did you mean status?)"],
  [['org', 'create'], "missing required argument 'slug'"],
  [['status', '--nope'], "unknown option '--nope'"],
  [['status', 'extra'], "too many arguments for 'status'. Expected 0 arguments but got 1: extra."],
  [
    ['key', 'create', 'acme', '--scope', 'all'],
    "option '--scope <scope>' argument 'all' is invalid. Allowed choices are write, read.",
  ],
  [
    ['instance', 'console', 'x', '--tail', '-1'],
    "option '--tail <bytes>' argument '-1' is invalid. It must be a whole number from 0 to 67108864.",
  ],
  [['instance', 'console', 'x', '--follow'], '--follow has no end, so --json cannot print it as one document'],
  [['org', 'create', 'Acme'], 'slug "Acme" may hold lowercase letters a-z, digits and hyphens only'],
  [['org', 'create', 'api'], 'slug "api" is reserved for the appliance itself'],
  [['org', 'create', 'a-'], 'slug "a-" may not begin or end with a hyphen'],
  [['org', 'create', 'xn--a'], 'slug "xn--a" may not have hyphens as its third and fourth characters'],
  [['org', 'create', 'a'.repeat(33)], `slug "${'a'.repeat(33)}" must have 1 to 32 characters`],
]

test('goal: bad usage exits 2 and, with --json, is one document on stdout and nothing on stderr', async () => {
  const results = await Promise.all(BAD_USAGE.map(([argv]) => runJson(...argv)))
  for (const [index, { code, document }] of results.entries()) {
    const [argv, message] = BAD_USAGE[index] ?? []
    expect([argv, code, document]).toMatchObject([argv, 2, { error: { code: 'invalid_request', message } }])
  }
})

test('goal: people get the error with its remedy on stderr, and nothing on stdout', async () => {
  expect(await run(['org', 'show', 'nobody'])).toEqual({
    code: 4,
    stdout: '',
    stderr:
      'strongroom: there is no organization nobody\nremedy: check the name: `strongroom org list`, `strongroom instance list`, `strongroom builds list`\n',
  })
})

test('goal: without a daemon commands exit 3 and say what to do', async () => {
  const empty = mkdtempSync(join(dir, 'empty-'))
  const lost = await run(['status', '--state-dir', empty])
  expect(lost).toEqual({
    code: 3,
    stdout: '',
    stderr: `strongroom: no daemon answers at ${empty}/admin.sock: there is no such socket\nremedy: start \`strongroom serve\`, or check --state-dir\n`,
  })
  expect((await run(['doctor', '--leaks'], { STRONGROOM_STATE_DIR: empty })).code).toBe(3)
})

test('goal: organization, key and instance from creation to the end, with every exit code on the way', async () => {
  const made = await run(['org', 'create', 'acme'])
  expect([made.code, made.stdout]).toEqual([
    0,
    'slug:              acme\nstatus:            active\ncreated:           2026-11-20T12:00:00.000Z\ninstances:         0\nkeys:              0\n' +
      'cost this month:   0.00 USD (no budget)\ntokens this month: 0 (no budget)\n',
  ])
  expect(await runJson('org', 'create', 'acme')).toMatchObject({
    code: 5,
    document: { error: { code: 'conflict', message: 'organization acme exists already', param: 'slug' } },
  })
  expect(await runJson('org', 'create', 'beta')).toMatchObject({ code: 0, document: { slug: 'beta' } })

  const key = await run(['key', 'create', 'acme', '--scope', 'read', '--name', 'ci'])
  expect([key.code, key.stdout]).toEqual([0, expect.stringMatching(/^ca_[a-z0-9]{8}_[a-z0-9]{18}\n$/)])
  const [, prefix = '', secret = ''] = key.stdout.trim().split('_')
  expect(key.stderr).toContain(prefix)
  expect(key.stderr).not.toContain(secret)
  expect((await run(['key', 'list', 'acme'])).stdout).toBe(
    `PREFIX    NAME  SCOPE  STATE   MADE BY             CREATED               LAST USED  REVOKED\n${prefix}  ci    read   active  minted by the host  2026-11-20T12:00:00Z  -          -\n`,
  )
  expect(await runJson('key', 'revoke', prefix)).toMatchObject({
    code: 0,
    document: { prefix, revoked_at: '2026-11-20T12:00:00.000Z' },
  })
  expect((await run(['key', 'revoke', 'zzzzzzzz'])).code).toBe(4)

  const id = addInstance('acme', 'samename')
  addInstance('beta', 'samename')
  expect(await runJson('instance', 'show', 'samename')).toMatchObject({
    code: 2,
    document: { error: { param: 'instance', message: expect.stringContaining('acme/samename or beta/samename') } },
  })
  for (const ref of [id, 'acme/samename']) {
    expect(await runJson('instance', 'show', ref)).toMatchObject({
      code: 0,
      document: { id, vm: { address: '10.88.0.2' } },
    })
  }
  const list = await run(['instance', 'list', '--org', 'beta'])
  expect(list.stdout).toBe(
    'ORGANIZATION  NAME      STATUS        ADDRESS    EGRESS  LIMIT    CREATED               FAILURE\n' +
      'beta          samename  provisioning  10.88.0.2  0 B     5.0 GiB  2026-11-20T12:00:00Z  -\n',
  )
  expect((await run(['instance', 'show', 'acme/samename'])).stdout).toContain(
    'hostname:     samename.acme.agents.test\n',
  )
  expect((await run(['instance', 'delete', 'nothing1'])).code).toBe(4)
  expect((await run(['instance', 'delete', 'acme/samename'])).code).toBe(0)
  expect((await run(['instance', 'logs', id])).stdout).toMatch(
    /^TIME +EVENT +DETAIL\n2026-\S+ +status\.provisioning\n2026-\S+ +instance\.operator_delete +\{.*\}\n$/,
  )
  expect(await runJson('instance', 'logs', id)).toMatchObject({ document: { events: [{}, {}] } })
  const vmId = instanceById(store.directory.db, id)?.vmId ?? ''
  const detail = { qemu: 'Could not access KVM kernel module\nfailed to initialize kvm' }
  appendEvent(store.ledger.db, { nowMs: systemClock.nowMs(), kind: 'vm.last_words', subject: vmId, detail })
  expect((await run(['instance', 'logs', id])).stdout).toMatch(
    /vm\.last_words\n {2}Could not access KVM kernel module\n {2}failed to initialize kvm\n/,
  )

  for (const [verb, status] of [
    ['suspend', 'suspended'],
    ['resume', 'active'],
  ] as const) {
    expect(await runJson('org', verb, 'acme')).toMatchObject({ code: 0, document: { status } })
  }
  expect((await run(['org', 'list'])).stdout.split('\n').map(line => line.split(/ +/)[0])).toEqual([
    'SLUG',
    'acme',
    'beta',
    '',
  ])
})

test('goal: the console goes out byte for byte to a pipe and within bounds, and as text in JSON', async () => {
  await run(['org', 'create', 'consoles'])
  const id = addInstance('consoles', 'console1')
  expect((await run(['instance', 'console', id])).stdout).toBe('booted\r\n\u001b]0;owned\u0007login\n')
  expect((await run(['instance', 'console', id, '--tail', '6'])).stdout).toBe('login\n')
  expect(await runJson('instance', 'console', id, '--tail', '6')).toEqual({ code: 0, document: { console: 'login\n' } })
})

test('goal: status and leaks are shown, and a leak is no success', async () => {
  const status = await run(['status'])
  expect(status.stdout).toContain('platform:      tcg (evidence is SIMULATED)\n')
  expect(status.stdout).toContain('instances:     1 ready\n')
  expect(status.stdout).toContain('warm pool:     1 warm, 0 booting, 3 wanted\n')
  expect(status.stdout).toContain('gateway:       VM v1, starting\n')
  expect(status.stdout).toContain('traces:        7 spans exported, 2 dropped, 1 waiting; the receiver: status 401\n')
  expect(status.stdout).toStartWith('ready:         yes\nproblems:      none is known\n')
  expect(await runJson('status')).toMatchObject({ code: 0, document: { platform: 'tcg', problems: [] } })
  problems.push(...PROBLEM_LIST.slice(0, 1))
  const text = (await run(['status'])).stdout
  expect(text).toMatch(/^ready: +no\nproblems: +1, 0 of them critical\nupstream: +warning since .*far-away/)
  problems.length = 0
  expect(await run(['doctor', '--leaks'])).toEqual({ code: 0, stdout: 'nothing leaked\n', stderr: '' })
  leaks = [{ kind: 'tap', name: 'sr0123456789', detail: 'unknown', vm: null, remedy: 'ip link delete' }]
  expect(await runJson('doctor', '--leaks')).toEqual({ code: 1, document: { leaks } })
  expect((await run(['doctor', '--leaks'])).stdout).toBe(
    'KIND  NAME          DETAIL   VM  REMEDY\ntap   sr0123456789  unknown  -   ip link delete\n',
  )
  leaks = []
})

test('goal: doctor gives a verdict on every point, exits 1 when one fails, and sees the daemon', async () => {
  const config = join(dir, 'doctor.toml')
  writeFileSync(
    config,
    '[vm]\nqemu = "/nonexistent/qemu"\nimage_dir = "/nonexistent/image"\n[inference.worker]\nmodel_file = "/m"\n',
  )
  const { code, document } = await runJson('doctor', '--config', config)
  expect(code).toBe(1)
  const checks: { name: string; result: string; remedy: string | null }[] = Reflect.get(Object(document), 'checks')
  expect(checks.map(check => check.name)).toEqual([
    'configuration',
    'platform',
    'kvm',
    'sev-snp',
    'kernel',
    'sev firmware',
    'asids',
    'tcb',
    'canary',
    'qemu',
    'tpm',
    'firmware',
    'nft',
    'forwarding',
    'firewalls',
    'ports',
    'ip',
    'conntrack',
    'jail',
    'tun',
    'host names',
    'delegation',
    'image',
    'measurement',
    'collateral',
    'gateway image',
    'gateway measurement',
    'gateway model',
    'control key',
    'gateway VM',
    'builds',
    'certificates',
    'transparency log',
    'state directory',
    'database',
    'clock',
    'disk',
    'inodes',
    'open files',
    'connections',
    'processes',
    'control groups',
    'systemd',
    'ledger',
    'daemon',
  ])
  const failed = checks.filter(check => check.result === 'FAIL').map(check => check.name)
  expect(failed).toEqual(expect.arrayContaining(['qemu', 'image', 'gateway image', 'gateway model']))
  for (const check of checks) {
    expect(['PASS', 'WARN', 'FAIL', 'SKIP']).toContain(check.result)
    expect([check.name, check.remedy !== null]).toEqual([check.name, ['WARN', 'FAIL'].includes(check.result)])
  }
  expect(checks.at(-1)).toMatchObject({ name: 'daemon', result: 'PASS' })
})

test('goal: config commands need no daemon and tell good from bad files', async () => {
  const good = join(dir, 'good.toml')
  writeFileSync(good, 'domain = "good.example"\n')
  const bad = join(dir, 'bad.toml')
  writeFileSync(bad, '\nplatfrom = "tcg"\n[vm]\nvcpus = 0\n')
  const checked = await run(['config', 'check', '--config', good])
  expect([checked.code, checked.stdout]).toEqual([0, `${good}: ok\n`])
  const missing = join(dir, 'missing.toml')
  writeFileSync(missing, `\n[vm]\nimage_dir = "/none/i"\n[tls]\ncertificate_file = "/none/c"\nkey_file = "/none/k"\n`)
  expect(await run(['config', 'check', '--config', missing])).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining(
      `${missing}:5: tls.certificate_file: /none/c does not exist\n${missing}:6: tls.key`,
    ),
  })
  expect(await runJson('config', 'check', '--config', missing)).toMatchObject({ code: 2, document: { ok: false } })
  const warned = join(dir, 'warned.toml')
  writeFileSync(warned, '[vm]\nimage_dir = "/none/i"\n')
  const warning = await run(['config', 'check', '--config', warned])
  expect(warning).toMatchObject({ code: 0, stderr: expect.stringContaining(`warning: ${warned}:2: vm.image_dir: `) })
  expect((await run(['config', 'check', '--strict', '--config', warned])).code).toBe(2)
  expect(await run(['config', 'check'], { STRONGROOM_CONFIG: bad })).toEqual({
    code: 2,
    stdout: '',
    stderr:
      `strongroom: ${bad}:2: platfrom: unknown field; did you mean platform?\n` +
      `${bad}:4: vm.vcpus: 0 is not allowed; allowed: an integer from 1 to 255\n` +
      'remedy: correct the named field of the configuration file\n',
  })
  expect(await runJson('config', 'check', '--config', bad)).toMatchObject({
    code: 2,
    document: {
      ok: false,
      file: bad,
      problems: [
        { line: 2, field: 'platfrom' },
        { line: 4, field: 'vm.vcpus' },
      ],
    },
  })
  expect(await runJson('config', 'show', '--config', bad)).toMatchObject({
    code: 2,
    document: { error: { code: 'config.invalid' } },
  })
  expect(await runJson('config', 'show', '--config', good)).toMatchObject({
    code: 0,
    document: { domain: 'good.example', vm: { vcpus: 2 } },
  })
  const shown = join(dir, 'shown.toml')
  writeFileSync(shown, (await run(['config', 'show', '--config', good])).stdout)
  expect((await runJson('config', 'show', '--config', shown)).document).toMatchObject({ domain: 'good.example' })
  expect((await run(['config', 'reference'])).stdout).toStartWith('# Configuration of strongroom.')
  expect(await runJson('config', 'reference')).toMatchObject({ document: { type: 'object', properties: { vm: {} } } })
  expect((await run(['serve', '--config', bad])).code).toBe(2)
})

test('goal: the version is printed for people and for programs', async () => {
  expect((await run(['--version'])).stdout).toBe(`${version}\n`)
  const document = { version, schema: schemaVersionOf(MIGRATIONS), bun: Bun.version }
  expect(await runJson('version')).toEqual({ code: 0, document: { ...document, provenance: expect.any(Object) } })
  // A program from sources has none.
  const sources = await runHere(['version', '--json'])
  expect(JSON.parse(sources.stdout)).toEqual({ ...document, provenance: null })
})

test('goal: a reader that goes away early ends the program without a word', async () => {
  const child = Bun.spawn(['sh', '-c', `"$1" "$2" config reference | head -c 10`, 'sh', process.execPath, main], {
    stdout: 'pipe',
    stderr: 'pipe',
  })
  expect([await child.stdout.text(), await child.stderr.text()]).toEqual(['# Configur', ''])
})
