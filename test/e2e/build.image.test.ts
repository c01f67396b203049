// Service C end to end on one appliance, with real build VMs, Cargo and Nix: builds that outlive their daemon, hostile
// and cancelled ones, and results that a client verifies offline.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { messageOf, verifyResult } from '../../scripts/rigs/build/builds-client.ts'
import { answerCrate, archiveOf, replyFiles } from '../../scripts/rigs/build/sources.ts'
import { holdings, qemuProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import type { BuildVmReserved } from '../../src/contract/http/build-api.ts'
import { followWithKills, killAndStart, says } from '../rigs/build/daemon-kills.ts'
import { flakeInputFiles, flakeInputHash, flakeWithRepository, makeRepository } from '../rigs/build/fetch-servers.ts'
import {
  eventsUntil,
  expectNothingLeft,
  expectSummary,
  expectWhole,
  mirror,
  type RealBuilds,
  said,
  startRealBuilds,
} from '../rigs/build/real-builds.ts'
import { endlessProject, fetchedWorkspace, hostileProject, noiseMiB, noisyProject } from '../rigs/build/real-sources.ts'
import { loggedKinds, logOptions } from '../rigs/log/appliance-log.ts'

const timeoutMs = 1_500_000
const pidsMax = 160

/** With all its bytes, so that evidence.json holds a report, too. */
const nonceOf = (last: string) => `00112233445566778899aabbccddee${last}`
const requestOf = (last: string, archive: Uint8Array) => ({
  nonce: nonceOf(last),
  source_data: Buffer.from(archive).toString('base64'),
  source_name: 'source.tar.gz',
})
const isOk = { type: 'complete', result: { status: 'ok' } } as const

inOwnNetns(
  import.meta.path,
  () => {
    let rig: RealBuilds
    const archive = archiveOf(noisyProject())
    const ids = { noisy: '', again: '', endless: '' }

    beforeAll(async () => {
      rig = await startRealBuilds(`build_memory_mib = 768\nbuild_pids = ${pidsMax}\nconcurrent_max = 2`)
    }, timeoutMs)
    afterAll(() => rig?.[Symbol.asyncDispose]())

    test(
      'builds survive kills of the daemon in every phase',
      async () => {
        // Goal: no accepted build is lost, repeated or changed by a daemon that dies.
        const { appliance, client } = rig
        ids.noisy = await rig.submit(requestOf('01', archive))
        ids.again = await rig.submit(requestOf('02', archive))
        ids.endless = await rig.submit(requestOf('03', archiveOf(endlessProject)))
        await killAndStart(appliance, 'two builds are accepted and one waits in the queue')
        expect((await client.record(ids.endless)).state).toBe('queued')
        const { seen, missed, isCopyKilled } = await followWithKills(appliance, client, ids.noisy)
        expect(seen.at(-1)?.data).toEqual(isOk)
        expect({ missed, isCopyKilled }).toEqual({ missed: [], isCopyKilled: true })
        expectWhole(appliance, ids.noisy, seen)
      },
      timeoutMs,
    )

    test(
      'a build whose VM dies with the daemon ends as failed',
      async () => {
        // Goal: such a build ends once, says why, and leaves nothing but its events.
        const { appliance, client } = rig
        const begun = await eventsUntil(client, ids.endless, says('init', 'source tree'))
        const { state, vm_id } = await client.record(ids.endless)
        expect(state).toBe('running')
        await killAndStart(appliance, 'a build runs, with its VM', () => {
          const own = qemuProcesses(appliance.stateDir).filter(pid =>
            readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`/vms/${vm_id}`),
          )
          expect(own).toHaveLength(1)
          for (const pid of own) process.kill(pid, 'SIGKILL')
        })
        const rest = await Array.fromAsync(client.stream(ids.endless, begun.at(-1)?.id))
        expect(rest.at(-1)?.data).toMatchObject({
          type: 'complete',
          result: { status: 'failed', error_type: 'internal', error: expect.stringContaining('The build VM failed') },
        })
        expectWhole(appliance, ids.endless, [...begun, ...rest])
        expect((await client.record(ids.endless)).result).toBeNull()
        expect((await client.ask(`/build/${ids.endless}/result`)).status).toBe(404)
        expect(readdirSync(join(appliance.stateDir, 'builds', ids.endless))).toEqual(['events.jsonl'])
      },
      timeoutMs,
    )

    test(
      'a client verifies the result, and two VMs make the same of a source',
      async () => {
        // Goal: what service C is for. The result is bound to nonce and source, and its receipt is in the log.
        const { service, appliance, client } = rig
        const events = await client.events(ids.again)
        expect(events.at(-1)).toEqual(isOk)
        expect(new Set(events.map(event => event.type))).toEqual(
          new Set(['queued', 'vm', 'init', 'detect', 'fetch', 'build', 'provenance', 'attest', 'host', 'complete']),
        )
        const [first, second] = [await rig.unpacked(ids.noisy), await rig.unpacked(ids.again)]
        const source = ['--source', rig.sourceFile('noisy.tar.gz', archive)]
        const inLog = ['--in-log', '--unwitnessed', ...(await logOptions(appliance))]
        for (const [last, result] of [
          ['01', first],
          ['02', second],
        ] as const) {
          const asked = [...source, ...inLog]
          expect(await verifyResult(service, { archive: result.archive, nonce: nonceOf(last), asked })).toBe('')
        }
        expect((await loggedKinds(appliance)).filter(kind => kind === 'build')).toHaveLength(2)
        // Neither with another nonce, nor of another source.
        expect(
          await verifyResult(service, { archive: first.archive, nonce: nonceOf('02'), asked: source }),
        ).toStartWith('1: ')
        const changed = archiveOf({ ...noisyProject(), 'more.txt': 'more' })
        const other = ['--source', rig.sourceFile('changed.tar.gz', changed)]
        expect(await verifyResult(service, { archive: first.archive, nonce: nonceOf('01'), asked: other })).toContain(
          '"first_broken": "source"',
        )
        const programs = [first, second].map(({ directory }) => readFileSync(join(directory, 'artifacts/uses')))
        expect(programs[0]?.equals(programs[1] ?? Buffer.alloc(0))).toBe(true)
        const { stdout } = Bun.spawnSync([join(first.directory, 'artifacts/uses')])
        expect(stdout.toString()).toBe(`42 ${noiseMiB << 20}\n`)
        await expectNothingLeft(appliance)
      },
      timeoutMs,
    )

    test(
      'a hostile source harms nobody, and a cancelled build is over at once',
      async () => {
        // Goal: the bounds hold with everything real: memory controller, devices of a VM, its agent, its network.
        const { appliance, client } = rig
        const pid = appliance.pid()
        const hostile = hostileProject({ pidsMin: Math.ceil(pidsMax * 0.75), port: 8444 })
        const id = await rig.submit(requestOf('04', archiveOf(hostile)))
        const endless = await rig.submit(requestOf('05', archiveOf(endlessProject)))
        const begun = await eventsUntil(client, endless, says('init', 'source tree'))
        const { state, vm_id } = await client.record(endless)
        expect([state, holdings(appliance.stateDir).directories]).toEqual([
          'running',
          expect.arrayContaining([vm_id ?? '']),
        ])
        const response = await client.ask(`/build/${endless}`, { method: 'DELETE' })
        expect([response.status, await response.json()]).toMatchObject([200, { state: 'cancelled' }])
        const rest = await Array.fromAsync(client.stream(endless, begun.at(-1)?.id))
        expect(rest.at(-1)?.data).toMatchObject({
          type: 'complete',
          result: { status: 'failed', error_type: 'cancelled' },
        })
        await until('the VM of the cancelled build is gone', 60_000, () => {
          return !holdings(appliance.stateDir).directories.includes(vm_id ?? '')
        })

        const events = await client.events(id)
        expect(events.at(-1)).toMatchObject({
          type: 'complete',
          result: {
            status: 'failed',
            error_type: 'limit_exceeded',
            error: expect.stringContaining('out of memory: it used more than its limit of'),
          },
        })
        expect(events.filter(event => messageOf(event).includes('PROBED'))).not.toEqual([])
        expect([...said(events, 'OPEN'), ...said(events, 'REACHED')]).toEqual([])
        expect(said(events, 'DEVICES')).toEqual(['fd full null random shm stderr stdin stdout tty urandom zero'])
        expect(said(events, 'INTERFACES')).toEqual(['lo'])
        expect(said(events, 'PROCESSES')).toEqual(['build-script-bu bwrap cargo'])
        const [most = 0, ended] = (said(events, 'FORKED')[0] ?? '').split(' ').map(Number)
        // It met the bound, which is not its own doing.
        expect(most).toBeGreaterThan(pidsMax / 2)
        expect(most).toBeLessThanOrEqual(pidsMax)
        expect(ended).toBe(0)
        // The same daemon all along.
        expect(() => process.kill(pid, 0)).not.toThrow()
        expect(appliance.pid()).toBe(pid)
        await expectNothingLeft(appliance)
      },
      timeoutMs,
    )

    test(
      'sources, packages and inputs from git and a registry are fetched, built without a network and verified',
      async () => {
        // Goal: what locks name comes from allowed hosts alone, and the results name each commit and checksum.
        const { service, appliance, client, servers, caFile } = rig
        const fetchCa = new Bun.CryptoHasher('sha256').update(servers.fetch.ca ?? '').digest('hex')
        const accepted = { fetch_ca_sha256: fetchCa, crates_mirror: mirror }
        const reply = makeRepository(servers, 'reply', replyFiles)
        const project = makeRepository(servers, 'workspace', fetchedWorkspace(reply))
        const input = makeRepository(servers, 'input', flakeInputFiles)
        const flake = archiveOf(flakeWithRepository(input, flakeInputHash()))
        const reserved = (await (await client.ask('/vm', { method: 'POST' })).json()) as BuildVmReserved
        const below = `/vm/${reserved.vm_id}`
        // A reserved VM takes one of two builds.
        const tries = await Promise.all(
          ['11', '12'].map(last => client.submit({ ...requestOf(last, flake), ...accepted }, below)),
        )
        expect(tries.map(({ status }) => status).sort()).toEqual([200, 409])
        const taken = tries.findIndex(({ status }) => status === 200)
        const nix = tries[taken]?.job_id ?? ''
        expect((await client.record(nix)).vm_id).toBe(reserved.vm_id)
        const { url, commit } = project
        const request = { nonce: nonceOf('13'), repo_url: url, repo_ref: 'v1', reproduce: true, ...accepted }
        const cargo = await rig.submit(request)

        const opened = ['--fetch-ca', caFile, '--crates-mirror', mirror]
        const results = [
          {
            id: nix,
            nonce: nonceOf(['11', '12'][taken] ?? ''),
            asked: ['--source', rig.sourceFile('flake.tar.gz', flake)],
          },
          { id: cargo, nonce: nonceOf('13'), asked: ['--commit', commit, '--repository', url, '--ref', 'v1'] },
        ]
        const [byNix, byCargo] = await Promise.all(
          results.map(async ({ id, nonce, asked }) => {
            const events = await client.events(id)
            expect([id, events.at(-1)]).toEqual([id, isOk])
            expect(events.filter(event => messageOf(event).includes('the network is removed'))).toHaveLength(1)
            const { archive, directory } = await rig.unpacked(id)
            expect(await verifyResult(service, { archive, nonce, asked: [...asked, ...opened] })).toBe('')
            // A client that did not name the authority and the mirror refuses what was fetched by them.
            expect(await verifyResult(service, { archive, nonce, asked })).toContain('"first_broken": "request"')
            const slsa = JSON.parse(readFileSync(join(directory, 'attestations/slsa.json'), 'utf8'))
            const { buildDefinition, runDetails } = slsa.predicate
            const { subject } = slsa as { subject: { name: string; annotations: { reproducible: boolean } }[] }
            const { resolvedDependencies: dependencies } = buildDefinition
            return { directory, subject, dependencies, builder: runDetails.builder }
          }),
        )
        if (byNix === undefined || byCargo === undefined) throw new Error('two builds')
        expect(readFileSync(join(byNix.directory, 'artifacts/hello'), 'utf8')).toBe('from elsewhere\n')
        expect(byNix.dependencies).toContainEqual(
          expect.objectContaining({
            name: 'input',
            annotations: { reference: `git+${input.url}?rev=${input.commit}` },
          }),
        )
        expect(Bun.spawnSync([join(byCargo.directory, 'artifacts/app')]).stdout.toString()).toBe('86\n')
        for (const [name, digest] of [
          ['source', { gitCommit: commit }],
          ['answer', { sha256: answerCrate.sha256 }],
          ['reply', { gitCommit: reply.commit }],
        ] as const) {
          expect(byCargo.dependencies).toContainEqual(expect.objectContaining({ name, digest }))
        }
        const reproducible = byCargo.subject.map(({ name, annotations }) => [name, annotations.reproducible] as const)
        expect(Object.fromEntries(reproducible)).toEqual({
          app: true,
          moment: false,
          'libclib.a': true,
          'libclib.so': true,
        })
        await expectSummary(client, byCargo.builder)
        await expectNothingLeft(appliance)
      },
      timeoutMs,
    )

    test('a host that is not on the list', async () => {
      // Goal: a build fetches nothing from it, and its owner sees so at once.
      const body = { nonce: nonceOf('14'), repo_url: 'https://refused.strongroom.test/uses.git' }
      expect((await rig.client.submit(body)).status).toBe(400)
    })
  },
  { timeoutMs: 2 * timeoutMs },
)
