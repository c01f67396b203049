// A VM and the orders of its owner. Its create request lists what its programs reach: an agent under prompt injection
// in it, and changes; then a second key, a first one that is gone, programs inside that try the same, and the end of an
// unused instance. The tests follow each other.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { once } from 'node:events'
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { connect } from 'node:tls'
import { executable } from '../../scripts/rigs/appliance.ts'
import { type Envelope, type Started, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { toHex } from '../../src/base/bytes.ts'
import type { EgressPolicy } from '../../src/contract/http/egress-policy.ts'
import type { InstanceRecord } from '../../src/contract/http/instance.ts'
import { run } from '../../src/linux/command.ts'
import { spkiDigestOf } from '../../src/linux/keys/spki.ts'
import { type Pebble, startPebble } from '../rigs/acme/pebble.ts'
import { openWorld, type World } from '../rigs/broker/open-world.ts'
import { WORLD } from '../rigs/broker/world-facts.ts'
import { newOwnerKey, type OwnerKey } from '../rigs/guest/signed-order.ts'
import { agentModel, agentUpstream } from '../rigs/instances/inside.ts'
import { loginOf } from '../rigs/instances/login.ts'

/** Not under test: an emulated guest of a busy machine is slow. */
const [timeoutMs, bootedMs, idleMs] = [1_500_000, 900_000, 600_000]
const closed = WORLD.addresses[2]
const policy: EgressPolicy = {
  default: 'refuse',
  allow: [22, 80, 443].map(port => ({ host: 'github.com', port })),
}
const words = 'only github.com, github.com:22, github.com:80'

inOwnNetns(
  import.meta.path,
  () => {
    const stack = new AsyncDisposableStack()
    let host: Started
    let world: World
    let pebble: Pebble
    let home: string
    let second: OwnerKey
    let name: string
    let hostname: string

    beforeAll(async () => {
      world = await openWorld(stack, {
        name: 'uplink',
        addresses: ['192.0.2.9/24', '2a0f:ffff::9/64'],
        nextHops: ['192.0.2.1', '2a0f:ffff::1'],
      })
      const links = `ip address add 192.0.2.1/24 dev uplink; ip -6 address add 2a0f:ffff::1/64 dev uplink nodad
        ip link set uplink up; ip route add 21.0.0.0/8 via 192.0.2.9; ip -6 route add 2600:1f18::/32 via 2a0f:ffff::9`
      await run(['sh', '-ec', links], { timeoutMs: 60_000, outputBytesMax: 10_000 })
      const agent = await agentUpstream()
      stack.defer(() => agent.upstream.stop())
      const acmeDir = mkdtempSync(join(tmpdir(), 'strongroom-owner-'))
      stack.defer(() => rmSync(acmeDir, { recursive: true }))
      pebble = stack.use(await startPebble({ directory: acmeDir, dnsServer: '127.0.0.1:53', httpPort: 80 }))
      const issuer = `directory = "${pebble.directoryUrl}"\nca_file = "${pebble.caFile}"\nterms_agreed = true`
      const network = `resolvers = ["${WORLD.resolver}"]\npool_v6 = "2001:db8:88::/64"`
      const lines = {
        listen: 'inference = "[::]:8442"',
        instances: `inference_models = ["${agentModel}"]`,
        'tls.acme': `${issuer}\npublished_per_week = 4`,
        network,
      }
      const tables = `[inference]\nplacement = "host"\n${agent.table}`
      host = stack.use(await startWithCustomer('boot_timeout_ms = 900_000', 'vm', undefined, tables, lines))
      const { appliance, acme } = host
      // While a listener is replaced, for a new certificate, connections that nobody has accepted yet are reset.
      type Status = { tls: { acme: { expires_at: string | null }[] } }
      await until('its own certificates are there', 120_000, async () => {
        return (await appliance.admin<Status>('status')).tls.acme.every(({ expires_at }) => expires_at !== null)
      })
      const body = { public_key: appliance.publicKey, egress: policy }
      const created = await appliance.http<Envelope<InstanceRecord>>('POST', '/v1/instances', { key: acme.key, body })
      expect(created.status).toBe(202)
      ;[name, hostname] = [created.body.data.name, created.body.data.hostname]
      await acme.reached(name, 'ready', bootedMs)
      home = join(appliance.directory, 'owner')
      mkdirSync(join(home, '.ssh'), { recursive: true })
      for (const end of ['', '.pub']) {
        copyFileSync(join(appliance.directory, `client${end}`), join(home, `.ssh/id_ed25519${end}`))
      }
      second = newOwnerKey(home, 'second')
      writeFileSync(join(home, 'key.txt'), acme.key, { mode: 0o600 })
      const files = ['--key-file', join(home, 'key.txt'), '--trust-first-use']
      const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
      expect((await strongroom(['client', 'init', appliance.url, ...files, ...root])).problem).toBe('')
      // Nothing attests the gateway of this appliance.
      appendFileSync(join(home, '.config/strongroom/client.toml'), 'unattested_gateway = "host"\n')
    }, timeoutMs)
    afterAll(() => stack.disposeAsync())

    async function strongroom(argv: readonly string[], input = '') {
      const env = { PATH: process.env.PATH ?? '', HOME: home }
      const child = Bun.spawn([executable, ...argv], { env, stdin: Buffer.from(input), stdout: 'pipe', stderr: 'pipe' })
      const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
      return { stdout, code, problem: code === 0 ? '' : stderr }
    }
    const batch = ['--', '-o', 'BatchMode=yes']
    /** Output of a login with this key alone, whatever the client would verify. */
    const bare = async (keyFile: string) => {
      const options = [
        'StrictHostKeyChecking=no',
        'UserKnownHostsFile=/dev/null',
        'IdentitiesOnly=yes',
        'BatchMode=yes',
      ]
      const address = (await host.appliance.resolve(hostname)) ?? ''
      const argv = ['ssh', '-F', 'none', '-i', keyFile, ...options.flatMap(option => ['-o', option])]
      const child = Bun.spawn([...argv, `agent@${address}`, 'echo in'], {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'ignore',
      })
      return await child.stdout.text()
    }
    const inside = () => loginOf(host.appliance, hostname)
    const connects = (address: string, port: number) =>
      `timeout 20 bash -c 'exec 3<>/dev/tcp/${address}/${port}' 2>/dev/null && echo connected || echo refused`

    test(
      'the owner sees the policy in the verdict, pins it, and no other passes',
      async () => {
        // Goal: the request's policy is what the VM states and enforces from its first login on.
        const verify = await strongroom(['verify', 'instance', hostname, '--no-known-hosts'])
        expect([verify.problem, verify.stdout]).toEqual([
          '',
          expect.stringMatching(new RegExp(`^reach +${words}; the VM`, 'm')),
        ])
        const file = (text: EgressPolicy) => {
          writeFileSync(join(home, 'reach.json'), JSON.stringify(text))
          return ['--egress-policy', join(home, 'reach.json'), '--json', '--no-known-hosts']
        }
        expect((await strongroom(['verify', 'instance', hostname, ...file(policy)])).code).toBe(0)
        const wider = { ...policy, allow: [...policy.allow, { host: 'evil.example.org', port: 443 }] }
        const refused = await strongroom(['verify', 'instance', hostname, ...file(wider)])
        expect([refused.code === 0, refused.stdout]).toEqual([false, expect.stringContaining('as you expect')])
      },
      timeoutMs,
    )

    test(
      'programs reach listed hosts without any setting, and the gateway',
      async () => {
        // Goal: curl, Python, a private root and prompts work as before; nothing else is asked of them.
        const { prints } = inside()
        expect(await prints('curl --silent --max-time 60 http://github.com/')).toMatch(
          /^21\.0\.0\.10:80 has \d+ bytes$/,
        )
        const banner = `python3 -c 'import socket; print(socket.create_connection(("github.com", 22), 30).recv(20).decode())'`
        expect(await prints(banner)).toBe('SSH-2.0-world')
        expect(await prints('private-root curl --silent --max-time 60 http://github.com/')).toStartWith('21.0.0.10:80')
        const models =
          'curl --silent --max-time 60 --header "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/models'
        expect(await prints(models)).toContain(agentModel)
      },
      timeoutMs,
    )

    test(
      'the injected agent gets nowhere',
      async () => {
        // Goal: no trick of a program of the login user, of a private root or of a namespace lets a packet out, or
        // shows it anything of the broker.
        const { prints } = inside()
        const script = readFileSync(join(import.meta.dir, '../rigs/guest/injected-agent.py'))
        await prints(`echo ${script.toString('base64')} | base64 --decode >injected.py`)
        const [leaked, seen] = [await world.leaked(), (await world.seen()).length]
        const pids = await prints('pgrep --full "broker.js$"; pgrep --full "strongroom-guest agent$"')
        expect(pids.split('\n').length).toBe(2)
        const asked = {
          ...{ address: closed, v6: WORLD.v6, resolver: WORLD.resolver, device: '' },
          ...{ allowed: 'github.com', closed: 'evil.example.org', namespace_users: [0, 5] },
          pids: pids.split('\n').map(Number),
          files: ['broker.json', 'claim.json', 'log/broker.log'].map(file => `/run/strongroom/${file}`),
        }
        asked.device = await prints("ip -oneline -4 route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/'")
        const given = Buffer.from(JSON.stringify(asked)).toString('base64')
        const results = JSON.parse(await prints(`echo ${given} | base64 --decode | python3 injected.py`))
        const reached = Object.entries(results).filter(([, result]) => !String(result).startsWith('refused: '))
        expect(Object.fromEntries(reached)).toEqual({
          'groups joined': 'counted outside',
          'dns tunnel': 'code 3, 0 answers',
          'dns tunnel below the allowed name': 'code 3, 0 answers',
          'dns of a closed name': 'code 3, 0 answers',
          'dns of the allowed name': 'code 0, 1 answers',
          'allowed host': 'answered',
          'http on the allowed host': 'answered',
        })
        expect(await world.leaked()).toEqual(leaked)
        const after = (await world.seen()).slice(seen)
        expect(after.filter(line => /injected|evil|c2VjcmV0|tunnel/.test(line))).toEqual([])
      },
      timeoutMs,
    )

    test(
      'what the VM proves about itself stays whole',
      async () => {
        // Goal: the modules and listeners of the policy are those of the measured image.
        const lines = JSON.parse(await inside().prints('strongroom-verify --json || true'))
        const lockout = lines.lines.find((line: { name: string }) => line.name === 'external-access lockout')
        const outcomes = lockout.checks.map(
          ({ name, outcome }: { name: string; outcome: string }) => `${name} ${outcome}`,
        )
        // Nothing here trusts the simulated root, so the claim's key is not compared.
        expect([lines.lines.length, outcomes.filter((text: string) => text.endsWith(' fail'))]).toEqual([5, []])
        expect(outcomes).toEqual(
          expect.arrayContaining([
            'accounts pass',
            'listening-sockets pass',
            'kernel-modules pass',
            'kernel-lockdown pass',
          ]),
        )
      },
      timeoutMs,
    )

    test(
      'the owner changes the policy by orders, and reads what was tried',
      async () => {
        // Goal: an order is in force with its answer; the log is the broker's.
        const log = await strongroom(['egress', 'log', name, ...batch])
        expect(log.problem).toBe('')
        expect(log.stdout).toMatch(/refused +evil\.example\.org \(looked up\)/)
        expect(log.stdout).toMatch(/refused +github\.com:443 +\d+ +its ClientHello names another host/)
        const narrower = await strongroom(['egress', 'set', name, '--reach', 'raw.githubusercontent.com:80', ...batch])
        expect([narrower.problem, narrower.stdout]).toEqual([
          '',
          `${hostname}: programs reach only raw.githubusercontent.com:80\n`,
        ])
        const { prints } = inside()
        expect(await prints(connects('github.com', 80))).toBe('refused')
        expect(await prints('curl --silent --max-time 60 http://raw.githubusercontent.com/')).toStartWith(
          '21.0.0.11:80',
        )
        const open = await strongroom(['egress', 'set', name, '--default', 'allow', ...batch])
        expect([open.problem, open.stdout]).toEqual(['', `${hostname}: programs reach any destination\n`])
        expect(await prints(connects(closed, 443))).toBe('connected')
        const again = await strongroom(['egress', 'set', name, '--reach', 'github.com', ...batch])
        expect(again.problem).toBe('')
        expect(await prints(connects(closed, 443))).toBe('refused')
      },
      timeoutMs,
    )

    test(
      'the owner puts a secret that programs use and cannot read',
      async () => {
        // Goal: new sessions have a placeholder, unmodified programs trust the broker, and no program finds the value.
        const value = 'ghp_0123456789abcdefghij'
        const put = await strongroom(['secret', 'put', name, 'GITHUB_TOKEN', '--host', 'github.com', ...batch], value)
        expect([put.problem, put.stdout]).toEqual(['', 'GITHUB_TOKEN, in Authorization of requests to github.com\n'])
        const verify = await strongroom(['verify', 'instance', hostname, '--no-known-hosts'])
        expect(verify.stdout).toMatch(/^secrets +1, not readable by the agent$/m)
        const { prints } = inside()
        expect(await prints('echo $GITHUB_TOKEN')).toBe('strongroom-placeholder-GITHUB_TOKEN')
        // No server of this world has a certificate: the broker says so, over TLS that the program trusts.
        const refusal = /no verified connection to the server/
        const url = 'https://github.com/'
        expect(await prints(`curl --silent --max-time 120 ${url}`)).toMatch(refusal)
        expect(await prints(`private-root curl --silent --max-time 120 ${url}`)).toMatch(refusal)
        expect(await prints(`node --eval 'fetch("${url}").then(r => r.text()).then(console.log)'`)).toMatch(refusal)
        const python =
          'import urllib.request as u, urllib.error as e\ntry: u.urlopen("URL")\nexcept e.HTTPError as error: print(error.read())'
        expect(await prints(`python3 -c '${python.replace('URL', url)}'`)).toMatch(refusal)
        expect(await prints(`git ls-remote ${url}a/b 2>&1 || true`)).toContain('502')
        const places = 'find /run /tmp /home /dev/shm -xdev -type f -readable'
        const look = 'grep --text --files-with-matches ghp_0123456789'
        expect(await prints(`${places} -exec ${look} {} + 2>/dev/null || true`)).toBe('')
        expect(await prints(`${look} /proc/[0-9]*/environ 2>/dev/null || true`)).toBe('')
        const removed = await strongroom(['secret', 'rm', name, 'GITHUB_TOKEN', ...batch])
        expect([removed.problem, removed.stdout]).toEqual(['', 'no secrets\n'])
        expect(await prints('printenv GITHUB_TOKEN SSL_CERT_FILE || echo none')).toBe('none')
      },
      timeoutMs,
    )

    test(
      'anyone reaches a published port, by a key of the VM',
      async () => {
        // Goal: the certificate is for the key that the statement names; programs inside neither publish a port, read
        // its key nor take its place; unpublished, nothing is left.
        const { prints, fails } = inside()
        const web = `web.${hostname}`
        await fails(`python3 -c 'import socket; socket.create_server(("", 443))'`)
        await prints('mkdir -p site && echo hello >site/index.html')
        const serve = 'python3 -m http.server 3000 --bind 127.0.0.1 --directory site'
        await prints(`setsid ${serve} </dev/null >/dev/null 2>&1 & echo started`)
        const put = await strongroom(['publish', name, '3000', ...batch])
        const [, key = ''] = /by the key sha256:([0-9a-f]{64})\n$/.exec(put.stdout) ?? []
        expect([put.problem, put.stdout]).toEqual(['', `https://${web} → port 3000, by the key sha256:${key}\n`])
        const address = (await host.appliance.resolve(web)) ?? ''
        expect(address).toBe((await host.appliance.resolve(hostname)) ?? 'none')
        const root = await pebble.root()
        const asked = async (servername: string) => {
          const socket = connect({ host: address, port: 443, servername, ca: root })
          await once(socket, 'secureConnect')
          const { raw } = socket.getPeerCertificate(true)
          socket.write('GET / HTTP/1.0\r\n\r\n')
          let text = ''
          for await (const piece of socket) text += piece
          return [toHex(spkiDigestOf(new Uint8Array(raw))), text.split('\r\n\r\n')[1]]
        }
        expect(await asked(web)).toEqual([key, 'hello\n'])
        const other = await asked(`api.${hostname}`).catch(() => 'refused')
        expect(other).toBe('refused')
        const verify = await strongroom(['verify', 'instance', hostname, '--no-known-hosts'])
        expect(verify.stdout).toContain(
          `published   ${web} → port 3000, by TLS\n            by the key sha256:${key}\n`,
        )
        const inner = JSON.parse(await prints('strongroom-verify --json || true'))
        const lockout = inner.lines.find((line: { name: string }) => line.name === 'external-access lockout')
        // Nothing here trusts the simulated root, so the claim's key is not compared.
        expect(lockout.checks.filter((check: { outcome: string }) => check.outcome === 'fail')).toEqual([])
        const sockets = lockout.checks.find((check: { name: string }) => check.name === 'listening-sockets')
        expect(sockets.reason).toContain('port 443 of user 903')
        await fails('cat /run/strongroom/published.json')
        await fails('kill $(pgrep -f "strongroom-guest published")')
        const ended = await strongroom(['unpublish', name, ...batch])
        expect([ended.problem, ended.stdout]).toEqual(['', 'no published ports\n'])
        expect(await asked(web).catch(() => 'refused')).toBe('refused')
        expect((await strongroom(['verify', 'instance', hostname, '--no-known-hosts'])).stdout).not.toContain('publish')
      },
      timeoutMs,
    )

    test(
      'a second key logs in, and is stated from outside and inside',
      async () => {
        // Goal: an order by the first key lets the second one in; every verdict has both.
        const added = await strongroom(['keys', 'add', name, `${second.file}.pub`, '--json', ...batch])
        expect(added.problem).toBe('')
        const { keys } = JSON.parse(added.stdout)
        expect(keys).toEqual([expect.stringMatching(/^SHA256:/), second.fingerprint])
        const bySecond = ['--public-key', `${second.file}.pub`]
        const login = await strongroom(['ssh', name, ...bySecond, ...batch, '-i', second.file, 'id -un'])
        expect([login.stdout, login.problem]).toEqual(['agent\n', ''])
        expect((await strongroom(['keys', 'ls', name])).stdout).toContain(second.fingerprint)
        const lines = JSON.parse(await inside().prints('strongroom-verify --json || true'))
        const lockout = lines.lines.find((line: { name: string }) => line.name === 'external-access lockout')
        expect([lockout.outcome, lockout.outcome === 'pass' ? '' : JSON.stringify(lockout)]).toEqual(['pass', ''])
        // The new key may sign, too; a removed key logs in no more.
        expect(await bare(second.file)).toBe('in\n')
        expect((await strongroom(['keys', 'rm', name, second.fingerprint, ...bySecond, ...batch])).problem).toBe('')
        expect([await bare(second.file), await bare(join(home, '.ssh/id_ed25519'))]).toEqual(['', 'in\n'])
        expect((await strongroom(['ssh', name, ...bySecond, ...batch, 'id -un'])).code).toBe(6)
      },
      timeoutMs,
    )

    test(
      'programs of the login user have no way to the same',
      async () => {
        // Goal: no file of the orders can be written, and no line that they send is carried out.
        const { fails, prints } = inside()
        await fails('echo >>/run/strongroom/authorized_keys')
        await fails('touch /run/strongroom/orders/keys')
        await fails('cat /run/strongroom/orders/counter')
        expect(await prints('echo x | strongroom-order')).toContain('"refused"')
        expect(await prints('head -c 300000 /dev/zero | tr "\\0" a | strongroom-order')).toContain('"refused"')
        await fails('strongroom-order </dev/null')
        const flood = 'for n in $(seq 40); do echo {} | strongroom-order >/dev/null 2>&1 & done; wait; echo done'
        expect(await prints(flood)).toBe('done')
        // The agent still answers its owner.
        const kept = await strongroom(['keep', name, '1h', '--json', ...batch])
        expect([kept.problem, JSON.parse(kept.stdout)]).toEqual([
          '',
          { hostname, idle: null, kept_minutes: 60, snapshot_every: null },
        ])
      },
      timeoutMs,
    )

    test(
      'an unused instance ends',
      async () => {
        // Goal: it ends for this reason once its time is over, and not while it is kept.
        const { acme } = host
        const idle = await strongroom(['idle', name, '1m', ...batch])
        expect([idle.stdout, idle.problem]).toEqual([
          'idle end: after 1 minute without use, not within 60 minutes\n',
          '',
        ])
        const kept = await strongroom(['keep', name, '1m', ...batch])
        expect(kept.problem).toBe('')
        await until('it ends', idleMs, async () => (await acme.retrieve(name)).terminated_reason !== null)
        expect((await acme.retrieve(name)).terminated_reason).toBe('idle')
        await acme.reached(name, 'terminated', idleMs)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2_400_000 },
)
