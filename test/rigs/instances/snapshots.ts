// A snapshot of a real VM, taken and restored by the commands of its owner. Effects: processes, files of the instance.

import { expect } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import { loginOf } from './login.ts'

export type SnapshotOwner = {
  readonly name: string
  readonly hostname: string
  /** Home directory with client.toml and the SSH key. */
  readonly home: string
  readonly key: string
  /** Runs a command of the owner. */
  readonly strongroom: (
    ...argv: string[]
  ) => Promise<{ readonly stdout: string; readonly code: number; readonly problem: string }>
}

const secret = 'what only the owner may read'

/**
 * Lost files come back: the home, and files that private-root wrote. The instance itself stands in for a new one, as
 * after a restore that was interrupted.
 */
export async function theSnapshots(appliance: Appliance, owner: SnapshotOwner): Promise<void> {
  const { name, hostname, home, key, strongroom } = owner
  const { prints } = loginOf(appliance, hostname)
  await prints(`mkdir kept && echo '${secret}' >kept/file && chmod 0640 kept/file && ln -s file kept/link
    private-root sh -c 'echo tool >/usr/local/bin/tool && chmod 0755 /usr/local/bin/tool && touch /var/owned && chown 7:8 /var/owned'`)
  const taken = await strongroom('snapshot', name, '--json')
  expect([taken.code, taken.problem]).toEqual([0, ''])
  expect(JSON.parse(taken.stdout)).toMatchObject({ instance: name, number: 1 })

  // The host has the ciphertext, which opens with the owner's key.
  const url = `${appliance.url}/v1/instances/${name}/snapshots/1`
  const ca = readFileSync(join(appliance.stateDir, 'ca/ca.pem'), 'utf8')
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}` }, tls: { ca } } as BunFetchRequestInit)
  const sealed = Buffer.from(await response.arrayBuffer())
  expect([response.status, sealed.includes(secret)]).toEqual([200, false])
  const file = join(home, 'sealed')
  writeFileSync(file, sealed)
  const opened = Bun.spawnSync([
    'sh',
    '-c',
    `age --decrypt --identity ${home}/.ssh/id_ed25519 ${file} | zstd --decompress | tar --list`,
  ])
  const listed = opened.stdout.toString().split('\n')
  expect(listed).toEqual(expect.arrayContaining(['agent/kept/file', 'agent/kept/link', 'upper/usr/local/bin/tool']))
  expect(listed.filter(path => path.includes('inference.key'))).toEqual([])

  // Nobody holds the private root any more.
  await prints(`rm -r kept; kill -KILL $(cat /run/strongroom/private-root/holder); sleep 1
    find /run/strongroom/private-root/upper -mindepth 1 -delete; ls /run/strongroom/private-root/upper | wc -l`)
  const record = join(home, `.config/strongroom/instances/${name}.json`)
  const local = JSON.parse(readFileSync(record, 'utf8'))
  writeFileSync(record, JSON.stringify({ ...local, restoring: `${name}:1` }))
  const back = await strongroom('up', name, '--no-login', '--from', name, '--', '-o', 'BatchMode=yes')
  expect([back.code, back.problem]).toEqual([0, ''])
  const shown = await prints(`cat kept/link; stat --format='%a %U' kept/file
    private-root sh -c 'tool 2>/dev/null; cat /usr/local/bin/tool; stat --format="%u:%g" /var/owned'; test -s ~/.config/opencode/inference.key && echo own key`)
  expect(shown).toBe(`${secret}\n640 agent\ntool\n7:8\nown key`)
  expect(JSON.parse(readFileSync(record, 'utf8')).restoring).toBeUndefined()
  const over = await strongroom('up', name, '--no-login', '--from', name, '--', '-o', 'BatchMode=yes')
  expect([over.code === 0, over.problem]).toEqual([false, expect.stringContaining('into a new instance alone')])
  expect((await strongroom('snapshot', 'rm', `${name}:1`, '--yes')).code).toBe(0)
  await prints('rm -r kept')
}
