// The client's side of a real appliance with a real VM: verified first, logged in then.

import { expect, test } from 'bun:test'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createAppliance, imageDir } from '../rigs/appliance.ts'
import { createCustomer } from '../rigs/instances-client.ts'
import { inOwnNetns } from '../rigs/netns.ts'
import { checksOf } from '../rigs/program.ts'

const timeoutMs = 240_000

inOwnNetns(
  import.meta.path,
  () => {
    test(
      'an owner verifies an instance, keeps its host key, and logs in with exactly that key',
      async () => {
        // Goal: what a real VM has proved passes with its image, operator and root named, fails without, and ssh follows the verdict.
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
        await acme.reached(name, 'ready', 120_000)

        // What the operator publishes: the image, and the key.
        const { stdout: pem } = await appliance.cli('operator-key')
        const key = ['--operator-key', file('operator-key.pub.pem', pem)]
        const example = await appliance.cli('verify', 'policy-example', '--image', image, ...key)
        const policy = ['--policy', file('policy.json', example.stdout), '--image', image]
        const own = ['--public-key', file('own.pub', appliance.publicKey)]

        const good = await verify(...root, ...policy, ...own)
        expect(good.document.operator_key).toBe(JSON.parse(example.stdout).idKeyDigest)
        expect([good.exitCode, checksOf(good.document, 'FAIL'), good.document.simulated]).toEqual([0, [], true])
        expect(checksOf(good.document, 'PASS')).toEqual(
          expect.arrayContaining(['image', 'own-key', 'launch-host-data', 'receipt/operator-key', 'receipt/host-key']),
        )
        const line = readFileSync(known, 'utf8')
        expect(line).toBe(`${good.document.host_key.line}\n`)
        const untrusted = await verify(...policy, ...own)
        expect([untrusted.exitCode, checksOf(untrusted.document, 'FAIL')]).toEqual([1, ['receipt/evidence']])

        // Plain ssh with nothing but the line that was written, and ours.
        const strict = ['-o', 'StrictHostKeyChecking=yes', '-o', `UserKnownHostsFile=${known}`]
        expect((await appliance.sshWith(strict, hostname, ['hostname'])).stdout).toBe(`${name}\n`)
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
