// Copies between an owner's machine and an instance, by all three programs over SSH: other bytes each way, equal bytes
// at both ends. Effects: processes, files in the appliance's directory and in the instance.

import { expect } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { startSshAgent } from './ssh-agent.ts'

const [upBytes, downBytes] = [1 << 16, 1 << 20]
const programs = ['scp', 'sftp'] as const

/** `login`: options of ssh that log in; `strict`: those that a login of its own needs. */
export async function copies(
  appliance: Appliance,
  hostname: string,
  { login, strict }: { readonly login: readonly string[]; readonly strict: readonly string[] },
): Promise<void> {
  const address = (await appliance.resolve(hostname)) ?? ''
  const there = `agent@${address}`
  const run = async (argv: readonly string[], stdin = '') => {
    const process = Bun.spawn([...argv], { stdin: new Blob([stdin]), stdout: 'ignore', stderr: 'pipe' })
    const stderr = await new Response(process.stderr).text()
    if ((await process.exited) !== 0) throw new Error(`${argv[0]}: ${stderr}`)
  }
  const local = (name: string) => join(appliance.directory, name)
  const digestOf = (bytes: Uint8Array) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex')
  const prints = async (command: string) => (await appliance.sshWith(login, hostname, [command])).stdout
  const digests = async (directory: string) =>
    Object.fromEntries(
      (await prints(`cd ${directory} && sha256sum *`))
        .trim()
        .split('\n')
        .map(line => line.split(/ +/).toReversed()),
    )

  await prints(
    `mkdir up down; for name in ${programs.join(' ')}; do head --bytes=${downBytes} /dev/urandom >down/$name; done`,
  )
  const contents = programs.map(name => [name, crypto.getRandomValues(new Uint8Array(upBytes))] as const)
  for (const [name, content] of contents) writeFileSync(local(name), content)
  // As `appliance.ssh` does, but by a program that has the address in its arguments.
  const copying = ['-q', ...login, '-o', `HostKeyAlias=${hostname}`, '-o', 'BatchMode=yes']
  await run(['scp', ...copying, local('scp'), `${there}:up/scp`])
  await run(['scp', ...copying, `${there}:down/scp`, local('scp.back')])
  await run(['sftp', ...copying, there], `put ${local('sftp')} up/sftp\nget down/sftp ${local('sftp.back')}\n`)
  expect(await digests('up')).toEqual(Object.fromEntries(contents.map(([name, bytes]) => [name, digestOf(bytes)])))
  const back = programs.map(name => [name, readFileSync(local(`${name}.back`))] as const)
  expect(back.map(([, bytes]) => bytes.length)).toEqual([downBytes, downBytes])
  expect(await digests('down')).toEqual(Object.fromEntries(back.map(([name, bytes]) => [name, digestOf(bytes)])))

  // rsync's two ends are both in the instance, with its sshd between them: no machine that runs this test needs one.
  using agent = await startSshAgent(appliance.directory, local('client'))
  const remote = "rsync --archive -e 'ssh -o StrictHostKeyChecking=accept-new -o BatchMode=yes'"
  const synced = await appliance.sshWith([...strict, ...agent.options], hostname, [
    `${remote} down/ 127.0.0.1:pushed && ${remote} 127.0.0.1:pushed/ pulled && diff -r down pulled && ls pulled`,
  ])
  expect([synced.exitCode, synced.stdout]).toEqual([0, 'scp\nsftp\n'])
}
