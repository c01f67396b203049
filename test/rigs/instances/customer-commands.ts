// The commands of a customer against a whole appliance: what it publishes, an instance taken over by its name, a
// login, and copies both ways. Effects: processes, a home directory below that of the appliance.

import { expect } from 'bun:test'
import { appendFileSync, copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Appliance, executable } from '../../../scripts/rigs/appliance.ts'
import { theSnapshots } from './snapshots.ts'

export type CustomerCommands = {
  readonly name: string
  readonly hostname: string
  /** The API key. */
  readonly key: string
}

/** The function that it gives takes and restores a snapshot; no program of the instance may write meanwhile. */
export async function theCustomersCommands(
  appliance: Appliance,
  customer: CustomerCommands,
): Promise<() => Promise<void>> {
  const { name, hostname, key } = customer
  const home = join(appliance.directory, 'customer')
  mkdirSync(join(home, '.ssh'), { recursive: true })
  for (const end of ['', '.pub']) {
    copyFileSync(join(appliance.directory, `client${end}`), join(home, `.ssh/id_ed25519${end}`))
  }
  const file = (path: string, text: string) => {
    writeFileSync(join(home, path), text, { mode: 0o600 })
    return join(home, path)
  }
  const strongroom = async (...argv: string[]) => {
    const env = { PATH: process.env.PATH ?? '', HOME: home }
    const child = Bun.spawn([executable, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
    const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    return { stdout, code, problem: code === 0 ? '' : stderr }
  }
  const batch = ['-o', 'BatchMode=yes']
  const init = ['client', 'init', appliance.url, '--key-file', file('key.txt', key)]
  const root = ['--trust-simulated-root', join(appliance.stateDir, 'simulator/root.pem')]
  expect(await strongroom(...init, ...root)).toMatchObject({ code: 2, stdout: '' })
  const first = await strongroom(...init, ...root, '--trust-first-use')
  expect([first.code, first.problem]).toEqual([0, ''])
  const config = join(home, '.config/strongroom')
  const ofHost = readFileSync(join(appliance.stateDir, 'operator-key.pub.pem'), 'utf8')
  const copy = readdirSync(config).find(name => name.startsWith('operator-key-')) ?? 'none'
  expect(readFileSync(join(config, copy), 'utf8')).toBe(ofHost)
  // Nothing attests the gateway of these tests, so only the customer's own line accepts it.
  expect((await strongroom('up', name, '--', ...batch, 'hostname')).code).toBe(6)
  appendFileSync(join(config, 'client.toml'), 'unattested_gateway = "host"\n')

  const up = await strongroom('up', name, '--', ...batch, 'hostname; id -un')
  expect([up.stdout, up.problem]).toEqual([`${name}\nagent\n`, ''])
  expect(readFileSync(join(config, 'known_hosts'), 'utf8')).toStartWith(`${hostname} ssh-ed25519 `)
  const there = await strongroom('cp', file('a:b', 'there and back'), `${name}:copied by cp`, '--', '-q', ...batch)
  expect([there.code, there.problem]).toEqual([0, ''])
  const back = await strongroom('cp', `${name}:copied by cp`, join(home, 'back'), '--', '-q', ...batch)
  expect([back.code, back.problem, readFileSync(join(home, 'back'), 'utf8')]).toEqual([0, '', 'there and back'])
  const ssh = await strongroom('ssh', name, '--', ...batch, 'rm -- "copied by cp" && exit 7')
  expect(ssh.code).toBe(7)
  const { instances } = JSON.parse((await strongroom('ls', '--json')).stdout)
  expect(instances).toMatchObject([{ local_name: name, verified: true, status: 'ready', hostname }])
  return () => theSnapshots(appliance, { name, hostname, home, key, strongroom })
}
