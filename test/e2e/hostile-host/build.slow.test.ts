// Goal: an unmodified client of service C against a host that builds something else than requested, or returns bad
// results. The host's VM is real as far as evidence goes: its receipts are good and state the order it got.

import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { cargoRecord, orderOf } from '../../../scripts/rigs/build/record.ts'
import type { ResultChanges } from '../../../scripts/rigs/build/result.ts'
import { sha256 } from '../../../src/attest/hash.ts'
import { toHex, utf8 } from '../../../src/base/bytes.ts'
import type { BuildOrder } from '../../../src/contract/vm/build-order.ts'
import {
  type BuildSubmitter,
  openBuildSubmitter,
  type Ran,
  recordOf,
  type Submitting,
  scriptOf,
} from '../../rigs/build/submitter.ts'

let site: BuildSubmitter
beforeAll(async () => {
  site = await openBuildSubmitter()
})
afterAll(() => site[Symbol.dispose]())

type Seen = Ran & { readonly left: readonly string[] }

/** The client's output and files after the host's VM made this result. */
async function submitted(bytes: Uint8Array, more: readonly string[] = [], from = site.source): Promise<Seen> {
  await using self = await site.start()
  self.rig.world.script = scriptOf(bytes)
  const ran = await self.submit(more, { from })
  return { ...ran, left: leftIn(self) }
}

const leftIn = ({ output }: Submitting) => readdirSync(output, { recursive: true, encoding: 'utf8' })

const mirror = 'sparse+https://mirror.example/index/'
const ca = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
const caSha256 = toHex(sha256(utf8(ca)))

/** A build of the client's own source by another order, of which the VM's documents say what it says. */
async function byOrder(change: Partial<BuildOrder>): Promise<Uint8Array> {
  const own = await recordOf(site.source)
  const base = { ...cargoRecord, ...own }
  const order = { ...orderOf(base), ...change }
  const { projectDir, toolchain, accepts } = order
  const record: NonNullable<ResultChanges['record']> = {
    request: {
      ...base.request,
      projectDir,
      toolchain,
      fetchCaSha256: accepts.caSha256,
      cratesMirror: accepts.cratesMirror,
    },
    networkPolicy: order.fetch === null ? 'none' : 'fetch-phase-allow-list-then-none',
  }
  return await site.archiveOf({ record, order })
}

function expectRefused({ code, stdout, left }: Seen, check: string, words: string): void {
  expect([code, stdout]).toEqual([1, expect.stringContaining('VERDICT: FAIL')])
  expect(stdout).toContain(`first broken link: ${check}\n`)
  expect(stdout.replaceAll(/\s+/g, ' ')).toContain(words)
  // The archive for whoever looks into it, and nothing that can be run.
  expect(left).toEqual([expect.stringMatching(/^[0-9a-f-]{36}\.unverified\.tar\.gz$/)])
}

describe('a host that builds something else', () => {
  test('goal: the source that was sent, and nothing else, passes, and the verdict says which', async () => {
    const { code, stdout, left } = await submitted(site.archive)
    expect(code).toBe(0)
    const { source } = await recordOf(site.source)
    expect(stdout).toContain(`built from  archive, git tree ${source.treeSha1}, SHA-256 tree ${source.treeSha256}`)
    expect(stdout).toContain('with project_dir none, toolchain as detected')
    for (const label of ['built in', 'started by', 'hardware'])
      expect(stdout).toMatch(new RegExp(`^${label} +\\S`, 'm'))
    expect(left).toContain('demo/artifacts/demo-server')
  })

  test('goal: another archive', async () => {
    const other = join(site.dir, 'other')
    mkdirSync(other)
    writeFileSync(join(other, 'Cargo.toml'), '[package] # with a backdoor')
    const seen = await submitted(await site.archiveOf({ record: await recordOf(other) }))
    expectRefused(seen, 'source', 'source: yours is the tree ')
  })

  test('goal: a repository in place of the archive', async () => {
    const { request, source } = cargoRecord
    const seen = await submitted(await site.archiveOf({ record: { request, source } }))
    expectRefused(seen, 'source', 'the host ordered a repository in place of the archive')
  })

  test('goal: another commit of the repository, another repository, another ref', async () => {
    const { request, source } = cargoRecord
    const bytes = await site.archiveOf({ record: { request, source } })
    const url = request.repoUrl ?? ''
    const [commit, ref] = [source.commit ?? '', request.repoRef ?? '']
    expect((await submitted(bytes, ['--commit', commit, '--ref', ref], url)).code).toBe(0)
    const other = `${url.slice(0, -4)}-other.git`
    for (const [from, more, words] of [
      [url, ['--commit', 'f'.repeat(40), '--ref', ref], 'yours is the commit'],
      [other, ['--commit', commit, '--ref', ref], 'yours is the repository'],
      [url, ['--commit', commit, '--ref', 'v1'], 'yours is the ref "v1"'],
      [url, ['--commit', commit], 'yours is the ref none'],
      [url, ['--ref', 'f'.repeat(40)], 'yours is the commit'],
    ] as const) {
      expectRefused(await submitted(bytes, more, from), 'source', words)
    }
  })

  test('goal: another directory, another toolchain', async () => {
    expectRefused(await submitted(await byOrder({ projectDir: 'evil' })), 'request', 'project_dir "evil"')
    expectRefused(await submitted(await byOrder({ toolchain: 'nix' })), 'request', 'toolchain "nix"')
    const asked = ['--project-dir', 'sub', '--toolchain', 'nix']
    expectRefused(await submitted(site.archive, asked), 'request', '"sub" was requested')
  })

  test('goal: an authority, or a mirror, that nobody named opens the fetch', async () => {
    const fetch = { proxy: 'http://10.0.0.1:8444', cratesMirror: null, ca: null }
    const none = { caSha256: null, cratesMirror: null }
    // No VM of ours takes such an order; its evidence says it all the same.
    const added = await submitted(await byOrder({ fetch: { ...fetch, ca }, accepts: none }))
    expectRefused(added, 'fetch', 'the host added certificate authorities')
    const mirrored = await submitted(await byOrder({ fetch: { ...fetch, cratesMirror: mirror }, accepts: none }))
    expectRefused(mirrored, 'fetch', `crates came from the mirror ${mirror}`)
    // The host writes into the request what makes the VM take it.
    const named = { fetch: { ...fetch, ca }, accepts: { caSha256, cratesMirror: null } }
    expectRefused(await submitted(await byOrder(named)), 'request', 'fetch_ca_sha256')
  })
})

describe('a host that sends what nobody should take', () => {
  test('goal: a result without an end', async () => {
    await using self = await site.start()
    self.intercept = async request => {
      if (!new URL(request.url).pathname.endsWith('/result')) return null
      const endless = new ReadableStream({ pull: controller => controller.enqueue(new Uint8Array(65_536)) })
      return new Response(endless)
    }
    const { code, stderr } = await self.submit(['--download-mib', '2'])
    expect([code, stderr]).toEqual([1, expect.stringContaining('its result has more than 2097152 bytes')])
    expect(stderr).toContain('--download-mib')
    expect(leftIn(self)).toEqual([])
  })

  test('goal: an answer without an end', async () => {
    await using self = await site.start()
    let sent = 0
    self.intercept = async request => {
      if (request.method !== 'POST') return null
      const endless = new ReadableStream({
        pull: controller => {
          sent += 65_536
          controller.enqueue(new Uint8Array(65_536).fill(0x20))
        },
      })
      return new Response(endless, { status: 400 })
    }
    const { code, stderr } = await self.submit()
    expect([code, stderr]).toEqual([2, expect.stringContaining('400')])
    expect(sent).toBeLessThan(64 * 1024 * 1024)
  })

  test('goal: marks that turn text around, in events, errors, verdicts and documents', async () => {
    // Goal: what a host writes stays what it is: no character changes the direction of a line or hides in it.
    const turned = 'main\u202e\u2066\u200b\u{e0041}'
    const request = { ...cargoRecord.request, repoRef: turned }
    const bytes = await site.archiveOf({ record: { request, source: cargoRecord.source } })
    await using self = await site.start()
    const [last] = scriptOf(bytes).slice(-1)
    if (last === undefined) throw new Error('a script')
    self.rig.world.script = [...scriptOf(bytes).slice(0, -1), { kind: 'line', type: 'build', msg: turned }, last]
    for (const more of [[], ['--verbose', '--nonce', '00'], ['--json', '--nonce', '01']]) {
      const { code, stdout, stderr } = await self.submit(more)
      expect(code).toBe(1)
      expect(stdout + stderr).not.toMatch(/[\p{Cf}\p{Zl}\p{Zp}]/u)
    }
  })
})
