import { describe, expect, test } from 'bun:test'
import * as fs from 'node:fs'
import { userInfo } from 'node:os'
import { gunzipSync } from 'node:zlib'
import { buildQuestion, resultFiles } from '../../scripts/rigs/build/result.ts'
import {
  archiveOf,
  fetchedProject,
  flakeProject,
  plainProject,
  type SourceFiles,
  vendoredProject,
  workspaceProject,
} from '../../scripts/rigs/build/sources.ts'
import {
  type BuildEnd,
  builderId,
  buildMeasurement,
  buildNonce,
  cgroup2Root,
  findRust,
  orderOf,
  startBuildVm,
} from '../../scripts/rigs/build/vm.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { sha256 } from '../../src/attest/hash.ts'
import { policyWithFloors } from '../../src/attest/policy/floor-policy.ts'
import { readProvenance } from '../../src/attest/provenance/statement.ts'
import { decodeReceipt } from '../../src/attest/receipt/receipt.ts'
import { decodeStatement } from '../../src/attest/receipt/statement.ts'
import { decodeReport } from '../../src/attest/report/report.ts'
import { fromBase64, toHex } from '../../src/base/bytes.ts'
import { treeOfPacked } from '../../src/client/source/source-tree.ts'
import { processesByUid } from '../../src/linux/users.ts'
import { verifyBuild } from '../../src/verifier/build/build.ts'
import type { AskedRequest } from '../../src/verifier/build/question.ts'
import { filesOf, once } from '../rigs/build/built.ts'
import { flipped } from '../rigs/build/case.ts'

const isRoot = userInfo().uid === 0
const noCargo = skipUnless(isRoot && findRust() !== null && cgroup2Root() !== null, 'needs root, a cargo and cgroup2')
const noNix = skipUnless(
  isRoot && Bun.which('nix') !== null && fs.existsSync('/usr/bin/busybox'),
  'needs root, nix and a static busybox',
)
/** For all tests of this file together: they run beside each other. */
const timeoutMs = 1_800_000

async function built(files: SourceFiles, order: Record<string, unknown> = {}): Promise<BuildEnd> {
  await using vm = await startBuildVm()
  return await vm.build({ archive: archiveOf(files), ...order })
}

const vendoredEnd = once(() => built(vendoredProject()))
const flakeEnd = once(() => built(flakeProject, { reproduce: true }))

const inDirectory = (files: SourceFiles): SourceFiles =>
  Object.fromEntries(Object.entries(files).map(([name, text]) => [`sub/${name}`, text]))

const jsonOf = (bytes: Uint8Array | undefined) => JSON.parse(Buffer.from(bytes ?? []).toString('utf8'))

describe.concurrent.skipIf(noCargo)('builds with Cargo', () => {
  // Goal: a whole build: every file of the result, each bound to the next, from the source's tree to the report over
  // the provenance.
  test(
    'a project without dependencies, with everything that proves it',
    async () => {
      const end = await built(plainProject, { reproduce: true })
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.networks.at(-1)).toBe('done')
      expect(end.networks).not.toContain('wanted')
      expect(end.lines.map(line => line.seq)).toEqual(end.lines.map((_, at) => at))
      const files = filesOf(end)
      expect([...files.keys()]).toEqual([
        'artifacts/hello',
        'attestations/bundle.sigstore.json',
        'attestations/sbom.cdx.json',
        'attestations/slsa.dsse.json',
        'attestations/slsa.json',
        'build.log',
        'evidence.json',
        'provenance.json',
      ])
      const provenanceBytes = files.get('provenance.json') ?? new Uint8Array(0)
      const digest = toHex(sha256(provenanceBytes))
      expect(end.result).toMatchObject({ provenanceSha256: digest })
      const { subject, predicate } = readProvenance(provenanceBytes)
      const { buildDefinition, runDetails } = predicate
      expect(subject).toEqual([
        { name: 'hello', digest: { sha256: toHex(sha256(files.get('artifacts/hello') ?? new Uint8Array(0))) } },
      ])
      expect(runDetails.builder.id).toBe(builderId)
      for (const { name, digest: bound } of runDetails.byproducts) {
        expect([name, bound]).toEqual([name, { sha256: toHex(sha256(files.get(name) ?? new Uint8Array(0))) }])
      }

      const evidence = jsonOf(files.get('evidence.json'))
      const receipts = [evidence.strongroom.dispatch, evidence.strongroom.completion].map(text => decodeReceipt(text))
      const [dispatch, completion] = receipts.map(receipt => decodeStatement(receipt.statement))
      if (dispatch?.kind !== 'build-dispatch' || completion?.kind !== 'build') throw new Error('other kinds')
      expect(toHex(dispatch.nonce)).toBe(buildNonce)
      expect(toHex(completion.nonce)).toBe(buildNonce)
      expect(toHex(dispatch.image.measurement)).toBe(buildMeasurement)
      expect(dispatch.jobId).toBe(runDetails.metadata.invocationId)
      expect(completion.dispatchDigest).toEqual(sha256(receipts[0]?.statement ?? new Uint8Array(0)))
      expect(toHex(completion.provenanceDigest)).toBe(digest)
      expect(completion.sourceDigest).toEqual(dispatch.sourceDigest)
      expect(buildDefinition.resolvedDependencies[0]?.digest).toEqual({ sha256: toHex(dispatch.sourceDigest) })
      expect(dispatch.networkPolicy).toBe('none')
      const { reportData } = decodeReport(fromBase64(evidence.evidence.attestation_report) ?? new Uint8Array(0))
      expect(toHex(reportData)).toBe(`${digest}${buildNonce}${'00'.repeat(16)}`)
      expect(jsonOf(files.get('attestations/slsa.json'))).toMatchObject({
        predicateType: 'https://slsa.dev/provenance/v1',
      })
      expect(Buffer.from(files.get('build.log') ?? []).toString('utf8')).toContain('Compiling hello')
    },
    timeoutMs,
  )

  // Goal: our verifier accepts the VM's output for both toolchains, and detects a changed bit of an artifact and a
  // build of another archive than the client's: client and VM compute the same tree id.
  test(
    'the verifier takes the result',
    async () => {
      const cargo = { source: vendoredProject(), end: vendoredEnd, reproduce: false }
      const nix = { source: flakeProject, end: flakeEnd, reproduce: true }
      for (const { source, end, reproduce } of noNix ? [cargo] : [cargo, nix]) {
        const files = filesOf(await end())
        const yours = await treeOfPacked(archiveOf(source), 'source', null)
        const request: AskedRequest = {
          source: yours,
          sourceName: null,
          projectDir: null,
          toolchain: null,
          reproduce,
          options: null,
          fetchCaSha256: null,
          cratesMirror: null,
          lfsPointers: 'none',
          compiler: 'pinned',
        }
        const asked = await buildQuestion(Uint8Array.from(Buffer.from(buildNonce, 'hex')), {
          asOf: Date.now(),
          request,
          pins: { measurement: 'required', vmpl: 'required', crl: 'any', tcb: 'required' },
          policy: { ...policyWithFloors(), measurements: [Uint8Array.from(Buffer.from(buildMeasurement, 'hex'))] },
        })
        const verdict = await verifyBuild(resultFiles(files), asked)
        expect(verdict.checks.filter(check => check.outcome === 'fail')).toEqual([])
        expect([verdict.ok, verdict.firstBroken, verdict.isOwn]).toEqual([true, null, true])
        const other = await treeOfPacked(archiveOf({ ...source, 'backdoor.txt': '' }), 'source', null)
        const swapped = await verifyBuild(resultFiles(files), { ...asked, request: { ...request, source: other } })
        expect([swapped.ok, swapped.firstBroken]).toEqual([false, 'source'])
        const [artifact = ''] = [...files.keys()].filter(name => name.startsWith('artifacts/'))
        const changed = new Map(files).set(artifact, flipped(files.get(artifact) ?? new Uint8Array(1), 0))
        expect((await verifyBuild(resultFiles(changed), asked)).ok).toBe(false)
      }
    },
    timeoutMs,
  )

  // Goal: two VMs that build the same source give the same bytes for each artifact, despite all other differences;
  // build scripts, members that are C libraries, and paths in binaries included.
  test(
    'a workspace, twice: identical artifacts, and the tar is in order',
    async () => {
      const [first, second] = await Promise.all([built(workspaceProject), built(workspaceProject, { nonce: 'ab' })])
      const artifacts = (end: BuildEnd) =>
        [...filesOf(end)]
          .filter(([name]) => name.startsWith('artifacts/'))
          .map(([name, bytes]) => [name, toHex(sha256(bytes))])
      expect(artifacts(first).map(([name]) => name)).toEqual([
        'artifacts/app',
        'artifacts/libclib.a',
        'artifacts/libclib.so',
      ])
      expect(artifacts(second)).toEqual(artifacts(first))
      expect(Buffer.from(filesOf(first).get('artifacts/app') ?? []).includes('/tmp/strongroom')).toBe(false)
      // A nonce of one byte has no report in the family's shape.
      expect(jsonOf(filesOf(second).get('evidence.json')).evidence).toBeNull()
      const tar = gunzipSync(first.archive ?? new Uint8Array(0))
      const names: string[] = []
      for (let at = 0; tar[at] !== 0; ) {
        const field = (from: number, to: number) =>
          tar
            .subarray(at + from, at + to)
            .toString('latin1')
            .replace(/\0.*$/s, '')
        names.push(field(0, 100))
        expect([field(108, 116), field(116, 124), field(136, 148), field(265, 329)]).toEqual([
          '0000000',
          '0000000',
          '00000000000',
          '',
        ])
        at += 512 + Math.ceil(Number.parseInt(field(124, 136), 8) / 512) * 512
      }
      expect(names).toEqual([...names].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))))
      expect([...(first.archive ?? new Uint8Array(0)).subarray(0, 10)]).toEqual([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3])
    },
    timeoutMs,
  )

  // Goal: vendored packages need no network, are in the provenance with the lock's checksum, and cargo detects a
  // changed file in them.
  test(
    'vendored packages',
    async () => {
      const end = await vendoredEnd()
      const { predicate } = readProvenance(filesOf(end).get('provenance.json') ?? new Uint8Array(0))
      expect(predicate.buildDefinition.resolvedDependencies.map(dependency => dependency.uri)).toContainEqual(
        expect.stringContaining('pkg:cargo/answer@0.1.0'),
      )
      const changed = await built({
        ...vendoredProject(),
        'vendor/answer/src/lib.rs': 'pub fn answer() -> u32 { 666 }\n',
      })
      expect(changed.result).toMatchObject({ status: 'failed', errorType: 'checksum_mismatch' })
      const end3 = await built(fetchedProject())
      expect(end3.result).toMatchObject({
        status: 'failed',
        errorType: 'source_unreachable',
        error: expect.stringContaining('cargo vendor'),
      })
    },
    timeoutMs,
  )

  // Goal: a member whose lock is above it is built, and a directory that is not there or not of the source is refused.
  test(
    'project_dir',
    async () => {
      const member = await built(workspaceProject, { projectDir: 'app' })
      expect([...filesOf(member).keys()]).toContain('artifacts/app')
      const inside = inDirectory(plainProject)
      expect((await built(inside, { projectDir: '../sub' })).result).toMatchObject({ errorType: 'source_invalid' })
      expect((await built(inside, { projectDir: 'other' })).result).toMatchObject({ errorType: 'source_invalid' })
    },
    timeoutMs,
  )

  // Goal: each way in which nothing can be built has its own type, and a message that says what to do.
  test(
    'failures',
    async () => {
      const { 'Cargo.lock': _, ...unlocked } = plainProject
      const cases: [SourceFiles, Record<string, unknown>, string, RegExp][] = [
        [unlocked, {}, 'lock_missing', /cargo generate-lockfile/],
        [
          { 'README.md': 'nothing' },
          {},
          'toolchain_undetected',
          /none of strongroom.build.toml, flake.nix, Cargo.toml, go.mod, package.json in the project/,
        ],
        [plainProject, { toolchain: 'nix' }, 'toolchain_undetected', /flake.nix/],
        [
          { ...plainProject, 'src/main.rs': 'fn main() { nonsense }\n' },
          {},
          'build_failed',
          /cannot find value `nonsense`/,
        ],
        [{ ...plainProject, 'Cargo.lock': 'version = 4\n[[package]]\n' }, {}, 'source_invalid', /Cargo.lock/],
        [
          {
            'Cargo.toml': plainProject['Cargo.toml'] ?? '',
            'Cargo.lock': plainProject['Cargo.lock'] ?? '',
            'src/lib.rs': '',
          },
          {},
          'no_artifacts',
          /no artifact/,
        ],
        [
          { ...vendoredProject(), 'Cargo.lock': (vendoredProject()['Cargo.lock'] ?? '').replace(/checksum.*\n/, '') },
          {},
          'checksum_mismatch',
          /no checksum/,
        ],
      ]
      await Promise.all(
        cases.map(async ([files, order, errorType, why]) => {
          const { result } = await built(files, order)
          expect(result).toMatchObject({ status: 'failed', errorType, error: expect.stringMatching(why) })
        }),
      )
    },
    timeoutMs,
  )

  // Goal: a VM takes one build; the same job again changes nothing; others are refused; cancelling ends the whole
  // build.
  test(
    'the wire of a build VM',
    async () => {
      await using vm = await startBuildVm()
      expect(await vm.request({ op: 'progress', from: 0 })).toMatchObject({ ok: false, code: 'unclaimed' })
      expect(await vm.request({ op: 'vouch', simulated: null })).toMatchObject({ ok: false, code: 'unclaimed' })
      expect(
        await vm.request({
          op: 'claim',
          sealed: { ephemeralKey: `${'A'.repeat(43)}=`, nonce: 'A'.repeat(32), box: '' },
        }),
      ).toMatchObject({ ok: false, code: 'bad_request' })
      let cancelled = false
      const slow = {
        ...plainProject,
        'build.rs': 'fn main() { std::thread::sleep(std::time::Duration::from_secs(200)); }\n',
      }
      const end = await vm.build(
        { archive: archiveOf(slow) },
        {
          onProgress: async ({ lines }) => {
            if (cancelled || !lines.some(line => line.msg.includes('Compiling hello'))) return
            cancelled = true
            expect(await vm.request({ op: 'cancel' })).toMatchObject({ ok: true })
          },
        },
      )
      expect(end.result).toMatchObject({ status: 'failed', errorType: 'cancelled' })
      expect(processesByUid().get(vm.buildUid)).toBeUndefined()
      expect(await vm.request({ op: 'vouched', stage: 'dispatch', receipt: '{}', provenance: null })).toMatchObject({
        ok: false,
      })
    },
    timeoutMs,
  )

  // Goal: a killed builder takes its build's processes with it; the next builder reports this and takes no other build.
  test(
    'a builder that is started again',
    async () => {
      await using vm = await startBuildVm()
      const slow = {
        ...plainProject,
        'build.rs': 'fn main() { std::thread::sleep(std::time::Duration::from_secs(200)); }\n',
      }
      const jobId = crypto.randomUUID()
      const end = await vm.build(
        { archive: archiveOf(slow), jobId },
        {
          onProgress: async ({ lines }) => {
            if (lines.some(line => line.msg.includes('Compiling hello'))) await vm.restart()
          },
        },
      )
      expect(end.result).toMatchObject({
        status: 'failed',
        errorType: 'internal',
        error: expect.stringContaining('submit the build again'),
      })
      // The kernel ends them with the builder, and a busy machine needs a moment for it.
      await until('the processes of the build have ended', 60_000, () => !processesByUid().has(vm.buildUid))
      expect(await vm.request({ op: 'build', order: orderOf({ jobId }) })).toMatchObject({ ok: true })
      expect(await vm.request({ op: 'build', order: orderOf({}) })).toMatchObject({ ok: false, code: 'claimed' })
    },
    timeoutMs,
  )

  // Goal: with a report device, the reports are the device's, and a simulation is refused. And the project is the one
  // below project_dir.
  test(
    'a report device, and a project in a directory',
    async () => {
      await using vm = await startBuildVm({ device: true })
      expect(await vm.request({ op: 'hello' })).toMatchObject({ hello: { platform: 'snp', sshHostKey: null } })
      const end = await vm.build({ archive: archiveOf(inDirectory(plainProject)), projectDir: 'sub' })
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(end.lines.find(line => line.type === 'detect')?.msg).toStartWith('cargo in sub, project hello')
      expect(end.evidence.dispatch?.report).not.toBeNull()
      expect(end.evidence.completion?.provenance?.report).not.toBeNull()
    },
    timeoutMs,
  )
})

describe.concurrent.skipIf(noNix)('builds with Nix', () => {
  // Goal: a flake without inputs builds in Nix's own sandbox inside of ours, without a network, twice the same.
  test(
    'a flake',
    async () => {
      const end = await flakeEnd()
      expect(end.result).toMatchObject({ status: 'ok' })
      expect(Buffer.from(filesOf(end).get('artifacts/hello') ?? []).toString('utf8')).toBe('hello from nix\n')
      const { predicate } = readProvenance(filesOf(end).get('provenance.json') ?? new Uint8Array(0))
      expect(predicate.buildDefinition.internalParameters.evaluation).toEqual({ derivationCount: 1, fetchCount: 0 })
      expect(end.lines.map(line => line.msg)).toContain('hello: reproducible')
    },
    timeoutMs,
  )

  // Goal: Nix before Cargo where both have their lock, unless the client says otherwise.
  test.skipIf(noCargo)(
    'both locks',
    async () => {
      const both = { ...plainProject, ...flakeProject }
      const detected = (lines: BuildEnd['lines']) => lines.find(line => line.type === 'detect')?.msg
      {
        await using vm = await startBuildVm()
        // Nothing more of it counts.
        const onProgress = async ({ lines }: Pick<BuildEnd, 'lines'>) => {
          if (detected(lines) !== undefined) await vm.request({ op: 'cancel' })
        }
        const asNix = await vm.build({ archive: archiveOf(both) }, { onProgress })
        expect(detected(asNix.lines)).toStartWith('nix')
      }
      const asCargo = await built(both, { toolchain: 'cargo' })
      expect(detected(asCargo.lines)).toStartWith('cargo')
      expect(asCargo.result).toMatchObject({ status: 'ok' })
    },
    timeoutMs,
  )

  // Goal: a flake's own settings, fixed-output derivations and its builder see no network and no host, and cannot run
  // outside the sandbox.
  test(
    'a hostile flake',
    async () => {
      const flake = (script: string, more = '', config = '') => ({
        ...flakeProject,
        'flake.nix': `{ ${config} outputs = { self }: { packages.x86_64-linux.default = derivation { name = "hello"; system = "x86_64-linux"; builder = "/bin/sh"; args = [ "-c" ${JSON.stringify(script).replaceAll('$', '\\$')} ]; ${more} }; }; }\n`,
        'hook.sh': '#!/bin/sh\necho hooked > /tmp/hooked\n',
      })
      const hook = await built(
        flake('echo x > $out', '', 'nixConfig = { post-build-hook = "/build/source/hook.sh"; sandbox = false; };'),
      )
      expect(hook.result).toMatchObject({ status: 'ok' })
      expect(hook.lines.some(line => line.msg.includes('hooked'))).toBe(false)
      const fetching = await built(
        flake(
          'cat /proc/net/dev /proc/net/route; ls /build /root /sys /home; cat /proc/1/environ; exit 9',
          'outputHashMode = "flat"; outputHashAlgo = "sha256"; outputHash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";',
        ),
      )
      const said = fetching.lines.filter(line => line.type === 'build').map(line => line.msg)
      // Interfaces have a colon behind their name: there is the one that leads nowhere, and no route.
      expect(said.flatMap(line => /^hello> *([a-z0-9]+):\s+\d/.exec(line)?.[1] ?? [])).toEqual(['lo'])
      expect(said.filter(line => /^hello> [a-z]+\d*\s+[0-9A-F]{8}\s/.test(line))).toEqual([])
      expect(said.join('\n')).not.toContain('agent-secret')
      expect(fetching.result).toMatchObject({ status: 'failed', errorType: 'build_failed' })
      const reading = await built({
        ...flake('echo x > $out'),
        'flake.nix': '{ outputs = { self }: { packages.x86_64-linux.default = builtins.readFile /etc/shadow; }; }\n',
      })
      expect(reading.result).toMatchObject({ status: 'failed', errorType: 'source_invalid' })
      expect(JSON.stringify(reading.result)).toContain('forbidden in pure')
    },
    timeoutMs,
  )
})
