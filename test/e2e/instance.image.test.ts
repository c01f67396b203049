// The whole life of one instance with both IP families in one real VM: made, verified, used, named,
// held to its list of names and to its cap, deleted. The packaged agent runs in it from the beginning,
// beside the other tests: emulated, its start takes minutes. The tests follow each other.

import { Database } from 'bun:sqlite'
import { afterAll, beforeAll, expect, test } from 'bun:test'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Value } from '@sinclair/typebox/value'
import { type Appliance, createAppliance, imageDir } from '../../scripts/rigs/appliance.ts'
import { createModelFile, gatewayClient, gatewayTables } from '../../scripts/rigs/gateway/appliance-gateway.ts'
import type { TestUpstream } from '../../scripts/rigs/gateway/upstream-server.ts'
import { type Customer, createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { holdings, NOTHING } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import {
  addUplinkV6,
  hostAddress,
  openUplink,
  sizeOf,
  type Uplink,
  worldAddress,
  worldAddressV6,
} from '../../scripts/rigs/network/tap-wire.ts'
import { until } from '../../scripts/rigs/until.ts'
import { InstanceRecord, UsageSummary } from '../../src/contract/http/instance.ts'
import { type OneAddressResolver, oneAddressResolver } from '../rigs/dns/one-address.ts'
import { expectNoSecret } from '../rigs/guest/no-secret.ts'
import { openTerminal, theRaisedLimit, theSpentLimit } from '../rigs/instances/at-cap.ts'
import { takesLittleAtRest } from '../rigs/instances/at-rest.ts'
import {
  type Attested,
  ask,
  attestation,
  fingerprintsOf,
  newNonce,
  readyDespiteKill,
  theEvidence,
  theEvidenceLater,
  trustOf,
} from '../rigs/instances/attested-owner.ts'
import { copies } from '../rigs/instances/copies.ts'
import { theCustomersCommands } from '../rigs/instances/customer-commands.ts'
import { theDayToDay } from '../rigs/instances/day-to-day.ts'
import { expectNetwork } from '../rigs/instances/expect-network.ts'
import {
  agentModel,
  agentUpstream,
  type Inside,
  theAgent,
  theConnections,
  theGateway,
  theLimits,
  theOtherKeys,
  thePrivateRoot,
  theTools,
} from '../rigs/instances/inside.ts'
import { loginOf } from '../rigs/instances/login.ts'
import { thePrivateInference } from '../rigs/instances/private-inference.ts'
import { sharedConnection } from '../rigs/instances/shared-connection.ts'
import { blast, capOf, datagramBytes, flood } from '../rigs/network/cap.ts'
import { checksOf } from '../rigs/program.ts'

/** Not under test: an emulated guest of a busy machine is slow. */
const [timeoutMs, bootedMs, stepMs] = [1_500_000, 600_000, 600_000]
const [listed, other] = ['198.51.100.7', '198.51.100.8']
const [capBytes, etherTypeV6, udp] = [1_048_576, 0x86dd, 17]
/** A flood begins at half of the cap or below: there is something to overshoot by. */
const remainingMin = capBytes / 2

inOwnNetns(
  import.meta.path,
  () => {
    const ending = new AsyncDisposableStack()
    let appliance: Appliance
    let acme: Customer
    let stranger: Customer
    let uplink: Uplink
    let resolver: OneAddressResolver
    let image: string
    let created: Awaited<ReturnType<Customer['create']>>
    let agent: { readonly upstream: TestUpstream; readonly table: string }
    let agentEnds: () => Promise<void>
    let takesSnapshot: () => Promise<void>
    let attested: Attested
    /** For the gateway; from inside. */
    let ownKey: string
    const [name, hostname] = [() => created.body.data.name, () => created.body.data.hostname]

    beforeAll(async () => {
      image = await imageDir()
      uplink = ending.use(await openUplink())
      await addUplinkV6()
      resolver = ending.use(await oneAddressResolver(hostAddress, listed))
      Bun.spawnSync(['ip', 'route', 'add', '198.51.100.0/24', 'via', worldAddress])
      const model = ending.use(createModelFile())
      agent = await agentUpstream()
      ending.defer(() => agent.upstream.stop())
      const network = `allow_names = ["crates.example"]\nresolvers = ["${hostAddress}"]\npool_v6 = "2001:db8:88::/64"`
      const lines = { listen: 'inference = "[::]:8442"', instances: `inference_models = ["${agentModel}"]`, network }
      const egress = `[network.egress]\nallow = ["${worldAddress}", "${worldAddressV6}"]\n`
      const tables = egress + (await gatewayTables(model.path)) + agent.table
      const settings = 'boot_timeout_ms = 900_000\nsnp_boot = "igvm"'
      appliance = ending.use(await createAppliance(settings, 'vm', image, tables, lines))
      await appliance.start()
      acme = await createCustomer(appliance, 'acme')
      stranger = await createCustomer(appliance, 'other')
    }, timeoutMs)
    afterAll(() => ending.disposeAsync())

    /** Runs checks of a login over one connection. */
    const inside = async (run: (inside: Inside, options: readonly string[]) => Promise<unknown>) => {
      await using connection = await sharedConnection(appliance, hostname())
      await run({ ...bare(), ...loginOf(appliance, hostname(), ...connection.options) }, connection.options)
    }
    const bare = (): Inside => ({ ...loginOf(appliance, hostname()), appliance, hostname: hostname() })
    const file = (path: string, text: string) => {
      writeFileSync(join(appliance.directory, path), text)
      return join(appliance.directory, path)
    }
    const known = () => join(appliance.directory, 'verified_hosts')
    /** Where the owner's commands ask, and as whom. */
    const asOwner = () => [
      ...['--api', appliance.url, '--ca', join(appliance.stateDir, 'ca/ca.pem')],
      ...['--key-file', file('key.txt', acme.key)],
    ]
    const verify = async (...more: string[]) => {
      const words = ['verify', 'instance', hostname(), '--known-hosts', known(), ...asOwner(), ...more, '--json']
      const { exitCode, stdout } = await appliance.cli(...words)
      return { exitCode, document: JSON.parse(stdout) }
    }

    test(
      'an instance is made: a record of the contract, nothing to verify yet, ready in time',
      async () => {
        // Goal: create, boot and claim, with a daemon that is killed meanwhile; every response of the contract's form;
        // no other organization sees it.
        created = await acme.create('life-1')
        expect(created.status).toBe(202)
        expect(hostname()).toBe(`${name()}.acme.agents.test`)
        expect(Object.keys(created.body.data)).toEqual([
          ...['name', 'status', 'agent', 'hostname', 'public_key', 'inference_mode', 'inference_model'],
          ...['egress_limit_bytes', 'created_at'],
        ])
        expect((await stranger.list()).length).toBe(0)
        const early = await verify()
        expect([early.exitCode, early.document.error]).toMatchObject([5, { code: 'conflict' }])
        expect(await ask(appliance, acme, name())).toMatchObject({ status: 409, body: { error: { code: 'conflict' } } })
        const ready = await readyDespiteKill(appliance, acme, name(), bootedMs)
        expect(Value.Check(InstanceRecord, ready)).toBe(true)
        expect(ready.ready_at).not.toBeNull()
        const kept = await attestation(appliance, acme, name())
        attested = { appliance, acme, name: name(), hostname: hostname(), kept, trust: await trustOf(appliance) }
      },
      timeoutMs,
    )

    test('goal: an unused VM takes little of a processor', () => takesLittleAtRest(appliance), timeoutMs)
    test(
      'the packaged agent begins a task',
      async () => {
        // Goal: what a login offers works as the login user; how the task ends is seen below.
        await inside(async login => {
          agentEnds = await theAgent(login, agent.upstream)
        })
      },
      timeoutMs,
    )

    test(
      'its user works in it as configured, has no power over it, and its use is metered',
      async () => {
        // Goal: log in, use, meter; what must fail in a guest fails.
        await using connection = await sharedConnection(appliance, hostname())
        const clock = '/sys/devices/system/clocksource/clocksource0/current_clocksource'
        const session = await appliance.sshWith(connection.options, hostname(), [
          `id -un; hostname; command -v opencode; nproc; cat ${clock}; cat ~/.config/opencode/opencode.json`,
        ])
        expect(session.exitCode, session.stderr).toBe(0)
        const [user, host, agent, processors, clocksource, ...settings] = session.stdout.split('\n')
        expect([user, host, agent, processors]).toEqual([
          'agent',
          name(),
          expect.stringMatching(/^\/.*\/opencode$/),
          '2',
        ])
        // A clock, which its kernel learns of from tables that nothing may write over.
        expect(clocksource).not.toMatch(/jiffies/)
        expect(JSON.parse(settings.join('\n'))).toMatchObject({ model: expect.stringContaining(agentModel) })

        const root = await appliance.sshWith(connection.options, hostname(), [
          'cat /etc/shadow; touch /usr/bin/x; sudo true',
        ])
        expect(root.stdout).toBe('')
        expect((await appliance.sshWith(['-o', 'PubkeyAuthentication=no'], hostname(), ['true'])).exitCode).toBe(255)
        expect((await appliance.sshWith(['-l', 'root'], hostname(), ['true'])).exitCode).toBe(255)
        const privileged = ['-o', 'ExitOnForwardFailure=yes', '-R', '127.0.0.1:99:127.0.0.1:22']
        expect((await appliance.sshWith(privileged, hostname(), ['true'])).exitCode).toBe(255)

        const seen = async () => (await acme.usage()).usage.egress_bytes > 1000
        await until('the sampler has seen the traffic', stepMs, seen)
        const usage = await acme.usage()
        expect(Value.Check(UsageSummary, usage)).toBe(true)
        expect(usage.usage.instance_hours_used).toBeGreaterThan(0)
        expect((await stranger.usage()).usage.egress_bytes).toBe(0)
        expect((await appliance.cli('instance', 'console', `acme/${name()}`)).stdout).toContain('agent started')
        expect(await appliance.admin('doctor', '--leaks')).toMatchObject({ leaks: [] })
      },
      timeoutMs,
    )

    test(
      'it is named and logged in to by IPv6 beside IPv4',
      async () => {
        // Goal: both families in DNS and in the guest; programs in it reach the gateway by both.
        const address = (await appliance.resolveV6(hostname())) ?? ''
        expect(address).toBe('2001:db8:88::1')
        expect((await appliance.resolve(hostname()))?.includes(':')).toBe(false)
        await expectNetwork(appliance, hostname(), {
          address,
          families: ['inet', 'inet6'],
          holds: ['nameserver fd73:7472:6f6e:67::1\n', '169.254.88.1 inference.strongroom.internal\n'],
        })
      },
      timeoutMs,
    )

    test(
      'it asks this host for names, which opens what a listed name leads to and nothing else',
      async () => {
        // Goal: an instance reaches the world by the list of names alone.
        const connects = (address: string) => `timeout 3 bash -c 'exec 3<>/dev/tcp/${address}/80'`
        const script = `cat /etc/resolv.conf
          getent ahostsv4 evil.example || echo blocked $?
          ${connects(listed)}; ${connects(other)}
          echo asking; getent ahostsv4 crates.example | grep STREAM
          timeout 12 bash -c 'exec 3<>/dev/tcp/crates.example/80'; ${connects(other)}; echo done`
        uplink.left()
        const { stdout } = await appliance.ssh(hostname(), [script])
        expect(stdout).toContain('nameserver 169.254.88.1\nnameserver fd73:7472:6f6e:67::1\n')
        expect(stdout).toContain('blocked 2\n')
        expect(stdout.split('asking\n')[1]).toMatch(new RegExp(`^${listed.replaceAll('.', '\\.')} +STREAM.*\ndone\n$`))
        // Packets sent before the query did not leave.
        const destinations = uplink.left().map(packet => packet.subarray(16, 20).join('.'))
        expect(new Set(destinations)).toEqual(new Set([listed]))
        expect(new Set(resolver.asked)).toEqual(new Set(['A crates.example', 'AAAA crates.example']))
        const { names } = await appliance.admin<{ names: unknown }>('status')
        expect(names).toMatchObject({ entries: 1, addresses: 1, listening: ['169.254.88.1', 'fd73:7472:6f6e:67::1'] })
        expect(appliance.log()).not.toContain('"level":"error"')
      },
      timeoutMs,
    )

    test(
      'its owner verifies it, keeps its host key, and logs in with exactly that key',
      async () => {
        // Goal: a real VM's evidence passes with image, operator and root named, fails without, and ssh follows the
        // verdict.
        const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
        // The operator publishes the image and the key.
        const { stdout: pem } = await appliance.cli('operator-key')
        const key = ['--operator-key', file('operator-key.pub.pem', pem)]
        const example = await appliance.cli('verify', 'policy-example', '--image', image, ...key)
        const policy = ['--policy', file('policy.json', example.stdout), '--image', image]
        const own = ['--public-key', file('own.pub', appliance.publicKey)]
        // Nothing vouches for a gateway in the host's own process, so only its owner's waiver accepts it.
        const outside = await verify(...root, ...policy, ...own)
        expect([outside.exitCode, checksOf(outside.document, 'FAIL')]).toEqual([6, ['pin-gateway', 'prompts']])
        expect(existsSync(known())).toBe(false)
        policy.push('--unattested-gateway', 'host')

        const good = await verify(...root, ...policy, ...own)
        expect(good.document.operator_key).toBe(JSON.parse(example.stdout).idKeyDigest)
        expect([good.exitCode, checksOf(good.document, 'FAIL'), good.document.simulated]).toEqual([0, [], true])
        expect(checksOf(good.document, 'PASS')).toEqual(
          expect.arrayContaining(['image', 'own-key', 'launch-host-data', 'prompts', 'receipt/host-key']),
        )
        const line = readFileSync(known(), 'utf8')
        expect(line).toBe(`${good.document.host_key.line}\n`)
        const untrusted = await verify(...policy, ...own)
        expect([untrusted.exitCode, checksOf(untrusted.document, 'FAIL')]).toEqual([1, ['receipt/evidence']])

        // Plain ssh with nothing but the line that was written, and ours.
        const strict = ['-o', 'StrictHostKeyChecking=yes', '-o', `UserKnownHostsFile=${known()}`]
        await using connection = await sharedConnection(appliance, hostname(), strict)
        const printed = await appliance.sshWith(connection.options, hostname(), ['hostname'])
        expect(printed.stdout).toBe(`${name()}\n`)
        await copies(appliance, hostname(), { login: connection.options, strict })
        const address = (await appliance.resolve(hostname())) ?? ''
        const login = [
          ...['-o', `HostName=${address}`, '-i', join(appliance.directory, 'client'), '-o', 'IdentitiesOnly=yes'],
          ...['-o', 'BatchMode=yes', 'hostname; exit 7'],
        ]
        const inside = await appliance.cli('ssh', hostname(), ...asOwner(), ...root, ...policy, ...own, '--', ...login)
        expect([inside.exitCode, inside.stdout]).toEqual([7, `${name()}\n`])
        const refused = await appliance.cli('ssh', hostname(), ...asOwner(), ...policy, ...own, '--', ...login)
        expect([refused.exitCode, refused.stdout]).toEqual([1, ''])

        // A stranger's key sees nothing of it.
        const asStranger = [...asOwner().slice(0, -1), file('other.txt', stranger.key)]
        const unseen = await appliance.cli(
          ...['verify', 'instance', hostname(), '--no-known-hosts', ...asStranger, ...root],
        )
        expect([unseen.exitCode, unseen.stdout]).toEqual([4, ''])
        expect(existsSync(`${known()}.tmp`)).toBe(false)
        takesSnapshot = await theCustomersCommands(appliance, { name: name(), hostname: hostname(), key: acme.key })
      },
      timeoutMs,
    )

    test(
      'its owner verifies it before the first login, and again with a nonce of their own',
      async () => {
        // Goal: the receipt is good with the simulated root only, for this nonce, instance and organization only;
        // plain ssh can use it.
        await theEvidence(attested, stranger)
      },
      timeoutMs,
    )

    test(
      'its private inference, by its own key, verified from inside',
      async () => {
        // Goal: inside an instance its own key and the endpoint are all that inference needs.
        ownKey = await thePrivateInference(appliance, acme, hostname())
        expect((await gatewayClient(appliance, ownKey).get('/v1/models')).status).toBe(200)
      },
      timeoutMs,
    )

    test('goal: programs of a login reach the gateway by its environment', () => inside(theGateway), timeoutMs)
    test('goal: a developer finds the usual tools', () => inside(theTools), timeoutMs)
    test('goal: copies, git, editors and tools of administrators work over SSH', () => inside(theDayToDay), timeoutMs)
    test('goal: terminals, forwardings and agents of ssh work', () => theConnections(bare()), timeoutMs)
    test("goal: other people's keys do not lock the owner out", () => theOtherKeys(bare()), timeoutMs)
    test('goal: the packaged agent has written a file', () => agentEnds(), timeoutMs)
    test('goal: its files outlive it in a snapshot that its owner alone opens', () => takesSnapshot(), timeoutMs)
    test('goal: neither a fork bomb nor a hog of memory keeps the owner out', () => theLimits(bare()), timeoutMs)
    test('goal: packages go into a private root without power', () => inside(thePrivateRoot), timeoutMs)

    test(
      'when it floods the world it ends at its cap, for both families and with the daemon killed, and goes on where an operator has raised it',
      async () => {
        // Goal: never a byte over, at most 64 KiB under, counted where it leaves the host; both families share the cap;
        // the owner sees the block, keeps SSH, and sees it lifted.
        // The host's own messages to its neighbours do not count.
        const left = () => uplink.left()
        const leftV6 = () => uplink.left(etherTypeV6).filter(packet => packet[6] === udp)
        /** By a login of its own: the owner keeps SSH. */
        const sends = async (address: string, count: number) =>
          (await appliance.ssh(hostname(), [blast(address, count)])).stdout

        await appliance.kill()
        const cap = capOf().used + capBytes
        const ledger = new Database(join(appliance.stateDir, 'strongroom.db'))
        ledger.run('UPDATE vms SET egress_limit_bytes = ?', [cap])
        ledger.close()
        await appliance.start()
        await until('the cap is in the kernel', stepMs, () => capOf().bytes === cap)

        const terminal = await openTerminal(appliance, hostname())
        const byV6 = await flood(appliance, hostname(), { address: worldAddressV6, left: leftV6, remainingMin })
        expect(new Set(byV6.map(packet => packet.length))).toEqual(new Set([datagramBytes + 48]))
        // Each look takes the packets of both families.
        leftV6()
        expect(await sends(worldAddressV6, 10)).toBe('blasted\n')
        expect(leftV6()).toEqual([])
        expect(await sends(worldAddress, 10)).toBe('blasted\n')
        expect(left()).toEqual([])
        await until('the owner sees the block', stepMs, async () => (await acme.usage()).usage.egress_blocked)
        const blocked = (await acme.usage()).usage
        expect(blocked).toMatchObject({ egress_bytes: cap, egress_block_applied_at: expect.any(String) })
        await theSpentLimit(appliance, hostname(), terminal)
        const ref = `acme/${name()}`
        const raised = cap + capBytes
        const terms = ['--to', `${raised}`, '--reason', 'ticket 7']
        const granted = { egress_limit_bytes: raised, egress_block_applied_at: null }
        expect(await appliance.admin('instance', 'egress', 'raise', ref, ...terms)).toMatchObject(granted)
        expect((await acme.usage()).usage).toMatchObject({ egress_blocked: false, egress_block_applied_at: null })
        await theRaisedLimit(appliance, hostname(), raised)
        expect(await sends(worldAddress, 100)).toBe('blasted\n')
        const whole = 100 * (datagramBytes + 28)
        const passed = left()
        await until('all of it has left', stepMs, () => {
          passed.push(...left())
          return sizeOf(passed) >= whole
        })
        expect(sizeOf(passed)).toBe(whole)
        await appliance.kill()
        await appliance.start()
        await until('it is counted', stepMs, async () => (await acme.usage()).usage.egress_bytes > cap + whole)
        expect((await acme.usage()).usage.egress_blocked).toBe(false)

        const whileKilled = { remainingMin, started: () => appliance.kill() }
        await flood(appliance, hostname(), { address: worldAddress, left, ...whileKilled })
        await appliance.start()
        await until('the owner sees the second block', stepMs, async () => (await acme.usage()).usage.egress_blocked)
        expect((await acme.usage()).usage.egress_bytes).toBe(raised)
        const { events } = await appliance.admin<{ events: { kind: string }[] }>('instance', 'logs', ref)
        const kinds = events.map(({ kind }) => kind).filter(kind => kind.startsWith('instance.egress'))
        expect(kinds).toEqual(['instance.egress_blocked', 'instance.egress_raised', 'instance.egress_blocked'])
      },
      timeoutMs,
    )

    test(
      'its owner verifies it after a restart, and after the operator has taken another key',
      async () => {
        // Goal: nothing of an attested claim lives in the daemon alone, and the VM keeps the key of its launch.
        await theEvidenceLater(attested, async () => {
          await appliance.stop()
          for (const key of ['operator-key.pem', 'operator-key.pub.pem']) rmSync(join(appliance.stateDir, key))
          await appliance.start()
        })
      },
      timeoutMs,
    )

    test(
      'it is deleted, with a daemon that is killed meanwhile, and leaves nothing behind',
      async () => {
        // Goal: the end is on record at once, its names lead nowhere, its key opens nothing, the next daemon releases
        // everything, and repetitions change nothing. The claim's evidence stays.
        const removed = await acme.remove(name())
        expect(removed.status).toBe(202)
        const ended = { status: 'terminating', terminated_reason: 'deleted_via_api', terminated_at: null }
        expect(removed.body.data).toMatchObject(ended)
        expect([await appliance.resolveV6(hostname()), await appliance.resolve(hostname())]).toEqual([null, null])
        await appliance.kill()
        await appliance.start()
        const gone = await acme.reached(name(), 'terminated', stepMs)
        expect(gone.terminated_at).not.toBeNull()
        expect(await appliance.resolve(hostname())).toBeNull()
        expect(holdings(appliance.stateDir)).toEqual(NOTHING)
        expect((await gatewayClient(appliance, ownKey).get('/v1/models')).status).toBe(401)
        expect((await ask(appliance, acme, name(), newNonce())).status).toBe(409)
        expect(await attestation(appliance, acme, name())).toEqual(attested.kept)
        expect(await fingerprintsOf(hostname())).toBeNull()

        expect((await acme.remove(name())).body.data).toEqual(gone)
        expect((await acme.create('life-1')).body.data).toEqual(created.body.data)
        expect((await acme.list()).map(record => record.name)).toEqual([name()])
        await expectNoSecret(appliance, [ownKey, acme.key])
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
