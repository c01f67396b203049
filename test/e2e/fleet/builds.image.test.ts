// Two daemons with real build VMs, a network namespace each, share a directory in PostgreSQL: a source that one takes
// is built on the other, and a client that knows only the first verifies the result. Real QEMU, Cargo and PostgreSQL.

import { expect, test } from 'bun:test'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { builtImage, imageDir } from '../../../scripts/rigs/appliance.ts'
import { verifyResult } from '../../../scripts/rigs/build/builds-client.ts'
import { archiveOf, plainProject } from '../../../scripts/rigs/build/sources.ts'
import { startTwoMachines } from '../../../scripts/rigs/fleet/two-machines.ts'
import { qemuProcesses } from '../../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../../scripts/rigs/netns.ts'
import { hasPostgres } from '../../../scripts/rigs/postgres/server.ts'
import { eastAddress } from '../../../scripts/rigs/second-machine.ts'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { until } from '../../../scripts/rigs/until.ts'

const timeoutMs = 1_500_000
const nonce = '00112233445566778899aabbccddeeff'

inOwnNetns(
  import.meta.path,
  () => {
    test.skipIf(skipUnless(hasPostgres, 'needs PostgreSQL (scripts/setup installs it)'))(
      'a build on one host through the other',
      async () => {
        // Goal: taken by a host that builds nothing, built by another one, followed and fetched through the first, and
        // verified offline as any build.
        const builder = await builtImage('builder')
        await using machines = await startTwoMachines({
          image: await imageDir(),
          fleet: address => `peer_listen = "${address}:7443"`,
          lines: address => ({
            listen: `builds = "${address}:8443"`,
            builds: `image_dir = ${JSON.stringify(builder)}\nmemory_mib = 2048\nscratch_gib = 4`,
          }),
        })
        const { east, west } = machines
        await east.cli('org', 'create', 'acme')
        const { key } = await east.admin<{ key: string }>('key', 'create', 'acme')
        await east.admin('fleet', 'drain', 'east')
        const ca = readFileSync(join(east.stateDir, 'ca/ca.pem'), 'utf8')
        const ask = (path: string, init: RequestInit = {}) =>
          fetch(`https://${eastAddress}:8443${path}`, {
            ...init,
            tls: { ca },
            headers: { Authorization: `Bearer ${key}`, ...init.headers },
          })
        const source = Buffer.from(archiveOf(plainProject))
        const body = JSON.stringify({ nonce, source_data: source.toString('base64'), source_name: 'hello.tar.gz' })
        const answer = await ask('/build', { method: 'POST', body })
        expect(answer.status).toBe(200)
        const { job_id: id } = (await answer.json()) as { readonly job_id: string }
        const events = await (await ask(`/build/${id}/events`)).text()
        expect(events).toContain('event: queued\nid: 1\n')
        expect(events).toContain('data: {"type":"complete","result":{"status":"ok"}}')
        expect([qemuProcesses(east.stateDir).length, east.log().includes('build.ordered')]).toEqual([0, false])
        const result = await ask(`/build/${id}/result`)
        expect(result.status).toBe(200)
        const archive = join(east.directory, 'result.tar.gz')
        writeFileSync(archive, Buffer.from(await result.arrayBuffer()))
        const sent = join(east.directory, 'hello.tar.gz')
        writeFileSync(sent, source)
        const asked = ['--source', sent]
        expect(await verifyResult({ appliance: west, builder }, { archive, nonce, asked })).toBe('')
        const other = { archive, nonce: `${nonce.slice(0, 30)}00`, asked }
        expect(await verifyResult({ appliance: west, builder }, other)).not.toBe('')
        // Operators of both hosts see the same.
        await until('both have its end', 60_000, async () => {
          const shown = await Promise.all(
            [east, west].map(host => host.admin<{ state: string; host: string }>('builds', 'show', id)),
          )
          return shown.every(({ state, host }) => state === 'ok' && host === 'west')
        })
        const logs = await Promise.all([east, west].map(host => host.cli('builds', 'logs', id)))
        expect(logs[0]?.stdout).toContain('complete: ok')
        expect(logs[0]?.stdout).toBe(logs[1]?.stdout ?? '')
        await until('its VM is gone', 60_000, () => qemuProcesses(west.stateDir).length === 0)
      },
      timeoutMs,
    )
  },
  { timeoutMs },
)
