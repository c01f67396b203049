// Orders of an owner to a real VM: a second key, a first one that is gone, programs inside that try the same, and the
// end of an unused instance. The tests follow each other.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { appendFileSync, copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { executable } from '../../scripts/rigs/appliance.ts'
import { type Started, startWithCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { newOwnerKey, type OwnerKey } from '../rigs/guest/signed-order.ts'
import { loginOf } from '../rigs/instances/login.ts'

/** Not under test: an emulated guest of a busy machine is slow. */
const [timeoutMs, bootedMs, idleMs] = [1_500_000, 900_000, 600_000]

inOwnNetns(
  import.meta.path,
  () => {
    let host: Started
    let home: string
    let second: OwnerKey
    let name: string
    let hostname: string
    beforeAll(async () => {
      host = await startWithCustomer('boot_timeout_ms = 900_000')
      const { appliance, acme } = host
      const record = (await acme.create()).body.data
      ;[name, hostname] = [record.name, record.hostname]
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
      appendFileSync(join(home, '.config/strongroom/client.toml'), 'unattested_gateway = "no-worker"\n')
    }, timeoutMs)
    afterAll(async () => {
      await host?.[Symbol.asyncDispose]()
    })

    async function strongroom(argv: readonly string[]) {
      const env = { PATH: process.env.PATH ?? '', HOME: home }
      const child = Bun.spawn([executable, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
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
        expect(lockout.outcome).toBe('pass')
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
        expect([kept.problem, JSON.parse(kept.stdout)]).toEqual(['', { hostname, idle: null, kept_minutes: 60 }])
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
  { timeoutMs: 2 * timeoutMs },
)
