// The client's side of a real appliance with a real VM: verified first, logged in then.

import { expect, test } from 'bun:test'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, createAppliance, imageDir } from '../../scripts/rigs/appliance.ts'
import { createCustomer } from '../../scripts/rigs/instances/instances-client.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { startSshAgent } from '../rigs/instances/ssh-agent.ts'
import { checksOf } from '../rigs/program.ts'

const timeoutMs = 600_000

const contentBytes = 1 << 20

/** Copies a file there and back by all three programs over SSH: other bytes each way, equal bytes at both ends. */
async function copies(appliance: Appliance, hostname: string, options: readonly string[]): Promise<void> {
  const address = (await appliance.resolve(hostname)) ?? ''
  const own = ['-i', join(appliance.directory, 'client'), '-o', 'IdentitiesOnly=yes', '-o', 'BatchMode=yes']
  const ssh = [...options, ...own, '-o', `HostKeyAlias=${hostname}`]
  const run = async (argv: readonly string[], stdin = '') => {
    const process = Bun.spawn([...argv], { stdin: new Blob([stdin]), stdout: 'ignore', stderr: 'pipe' })
    const said = await new Response(process.stderr).text()
    if ((await process.exited) !== 0) throw new Error(`${argv[0]}: ${said}`)
  }
  const local = (name: string) => join(appliance.directory, name)
  const digestOf = (bytes: Uint8Array) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
  const there = async (path: string) => {
    const { stdout } = await appliance.sshWith(options, hostname, [`sha256sum <${path}`])
    return stdout.split(' ')[0]
  }
  const BY = {
    scp: [
      (name: string) => run(['scp', '-q', ...ssh, local(name), `agent@${address}:up/${name}`]),
      (name: string) => run(['scp', '-q', ...ssh, `agent@${address}:down/${name}`, local(`${name}.back`)]),
    ],
    sftp: [
      (name: string) => run(['sftp', '-q', ...ssh, `agent@${address}`], `put ${local(name)} up/${name}\n`),
      (name: string) => run(['sftp', '-q', ...ssh, `agent@${address}`], `get down/${name} ${local(`${name}.back`)}\n`),
    ],
  } as const
  await appliance.sshWith(options, hostname, ['mkdir up down'])
  for (const [by, [up, down]] of Object.entries(BY)) {
    const content = crypto.getRandomValues(new Uint8Array(contentBytes / 16))
    writeFileSync(local(by), content)
    await up(by)
    expect([by, await there(`up/${by}`)]).toEqual([by, digestOf(content)])
    await appliance.sshWith(options, hostname, [`head --bytes=${contentBytes} /dev/urandom >down/${by}`])
    await down(by)
    const back = readFileSync(local(`${by}.back`))
    expect([by, back.length, digestOf(back)]).toEqual([by, contentBytes, (await there(`down/${by}`)) ?? ''])
  }
  // rsync's two ends are both in the instance, with its sshd between them: no machine that runs this test needs one.
  using agent = await startSshAgent(appliance.directory, local('client'))
  const remote = "rsync --archive -e 'ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes'"
  const synced = await appliance.sshWith([...options, ...agent.options], hostname, [
    `${remote} down/ 127.0.0.1:pushed && ${remote} 127.0.0.1:pushed/ pulled && diff -r down pulled && ls pulled`,
  ])
  expect([synced.exitCode, synced.stdout]).toEqual([0, 'scp\nsftp\n'])
}

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'an owner verifies an instance, keeps its host key, and logs in with exactly that key',
      async () => {
        // Goal: a real VM's evidence passes with image, operator and root named, fails without, and ssh follows the
        // verdict.
        const image = await imageDir()
        await using appliance = await createAppliance('', 'vm', image)
        await appliance.start()
        const acme = await createCustomer(appliance, 'acme')
        const { name, hostname } = (await acme.create('client-1')).body.data
        const file = (path: string, text: string) => {
          writeFileSync(join(appliance.directory, path), text)
          return join(appliance.directory, path)
        }
        const where = [
          ...['--api', 'https://127.0.0.1:8441', '--ca', join(appliance.stateDir, 'ca/ca.pem')],
          ...['--key-file', file('key.txt', acme.key)],
        ]
        const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
        const known = join(appliance.directory, 'verified_hosts')
        const verify = async (...more: string[]) => {
          const { exitCode, stdout } = await appliance.cli(
            ...['verify', 'instance', hostname, '--known-hosts', known, ...where, ...more, '--json'],
          )
          return { exitCode, document: JSON.parse(stdout) }
        }

        const early = await verify()
        expect([early.exitCode, early.document.error]).toMatchObject([5, { code: 'conflict' }])
        await acme.reached(name, 'ready', 300_000)

        // The operator publishes the image and the key.
        const { stdout: pem } = await appliance.cli('operator-key')
        const key = ['--operator-key', file('operator-key.pub.pem', pem)]
        const example = await appliance.cli('verify', 'policy-example', '--image', image, ...key)
        const policy = ['--policy', file('policy.json', example.stdout), '--image', image]
        const own = ['--public-key', file('own.pub', appliance.publicKey)]
        // The gateway of this appliance has no worker: nothing vouches for it, so only its owner's waiver accepts it.
        const outside = await verify(...root, ...policy, ...own)
        expect([outside.exitCode, checksOf(outside.document, 'FAIL')]).toEqual([6, ['pin-gateway', 'prompts']])
        expect(existsSync(known)).toBe(false)
        policy.push('--unattested-gateway', 'no-worker')

        const good = await verify(...root, ...policy, ...own)
        expect(good.document.operator_key).toBe(JSON.parse(example.stdout).idKeyDigest)
        expect([good.exitCode, checksOf(good.document, 'FAIL'), good.document.simulated]).toEqual([0, [], true])
        expect(checksOf(good.document, 'PASS')).toEqual(
          expect.arrayContaining(['image', 'own-key', 'launch-host-data', 'prompts', 'receipt/host-key']),
        )
        const line = readFileSync(known, 'utf8')
        expect(line).toBe(`${good.document.host_key.line}\n`)
        const untrusted = await verify(...policy, ...own)
        expect([untrusted.exitCode, checksOf(untrusted.document, 'FAIL')]).toEqual([1, ['receipt/evidence']])

        // Plain ssh with nothing but the line that was written, and ours.
        const strict = ['-o', 'StrictHostKeyChecking=yes', '-o', `UserKnownHostsFile=${known}`]
        expect((await appliance.sshWith(strict, hostname, ['hostname'])).stdout).toBe(`${name}\n`)
        await copies(appliance, hostname, strict)
        const address = (await appliance.resolve(hostname)) ?? ''
        const login = [
          ...['-o', `HostName=${address}`, '-i', join(appliance.directory, 'client'), '-o', 'IdentitiesOnly=yes'],
          ...['-o', 'BatchMode=yes', 'hostname; exit 7'],
        ]
        const inside = await appliance.cli('ssh', hostname, ...where, ...root, ...policy, ...own, '--', ...login)
        expect([inside.exitCode, inside.stdout]).toEqual([7, `${name}\n`])
        const refused = await appliance.cli('ssh', hostname, ...where, ...policy, ...own, '--', ...login)
        expect([refused.exitCode, refused.stdout]).toEqual([1, ''])

        // A stranger's key sees nothing of it.
        const other = await createCustomer(appliance, 'other')
        const stranger = await appliance.cli(
          ...['verify', 'instance', hostname, '--no-known-hosts', ...where, ...root, '--key-file'],
          file('other.txt', other.key),
        )
        expect([stranger.exitCode, stranger.stdout]).toEqual([4, ''])
        expect(existsSync(`${known}.tmp`)).toBe(false)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
