// An instance beside a gateway in the host's own process: a real guest proves itself to the daemon, its owner checks
// the same offline and from inside, and it draws on the gateway with a key of its own. One appliance and one VM, booted
// under TCG; the tests run in order.

import { afterAll, beforeAll, expect, test } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pinGateway } from '../../scripts/lib/gateway-pins.ts'
import { type Appliance, createAppliance, executable, imageDir } from '../../scripts/rigs/appliance.ts'
import {
  createModelFile,
  gatewayClient,
  gatewayTables,
  workerModel,
} from '../../scripts/rigs/gateway/appliance-gateway.ts'
import { type Customer, createCustomer, type Envelope } from '../../scripts/rigs/instances/instances-client.ts'
import { tpmProcesses } from '../../scripts/rigs/leftovers.ts'
import { inOwnNetns } from '../../scripts/rigs/netns.ts'
import { until } from '../../scripts/rigs/until.ts'
import { AMD_ROOTS } from '../../src/attest/amd/roots.ts'
import { toBase64Url, toHex } from '../../src/base/bytes.ts'
import { checked } from '../../src/contract/check.ts'
import { InstanceAttestation } from '../../src/contract/http/instance-attestation.ts'
import { sshKeyDigest } from '../../src/instances/public-key.codec.ts'
import { fingerprintsOf } from '../rigs/dns/fingerprints.ts'
import { expectBoundQuotes, expectHostsTpm } from '../rigs/guest/tpm-line.ts'
import { type Expecting, failedChecks, trustOf, verifyClaim } from '../rigs/instances/claim-owner.ts'
import { expectNoSecret } from '../rigs/instances/no-secret.ts'
import { readConsoles, type VmConsoles } from '../rigs/launch/vm-consoles.ts'

const timeoutMs = 900_000
const bootTimeoutMs = 480_000
const chat = { model: workerModel, messages: [{ role: 'user', content: 'hello' }], max_tokens: 8, temperature: 0 }
const verifyTrusting = 'strongroom-verify --trust-simulated-root root.pem'

let modelFile: ReturnType<typeof createModelFile>
let appliance: Appliance
let consoles: VmConsoles
let acme: Customer
let other: Customer
/** The instance, its VM, and what its owner has from its daemon and operator at first. */
let name = ''
let hostname = ''
let vmId = ''
let kept: InstanceAttestation
let trust: Awaited<ReturnType<typeof trustOf>>

const newNonce = () => toBase64Url(randomBytes(32))

async function ask({ key }: Pick<Customer, 'key'>, nonce?: string) {
  const path = `/v1/instances/${name}/attestation${nonce === undefined ? '' : `?nonce=${nonce}`}`
  return appliance.http<Envelope<unknown>>('GET', path, { key })
}

async function attestation(nonce?: string): Promise<InstanceAttestation> {
  const { status, body, headers } = await ask(acme, nonce)
  expect([status, body.error?.message]).toEqual([200, undefined])
  expect(headers.get('x-strongroom-platform')).toBe('tcg; simulated')
  return checked(InstanceAttestation, body.data, { what: 'attestation', code: 'internal' })
}

const expecting = (nonce: string): Expecting => ({ organization: 'acme', name, hostname, nonce })

type Shown = {
  readonly vm: { readonly id: string; readonly state: string } | null
  readonly attested_at: string | null
}

const shown = () => appliance.admin<Shown>('instance', 'show', `acme/${name}`)

async function prints(command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await appliance.ssh(hostname, [command])
  if (exitCode !== 0) throw new Error(`${command}: ${exitCode}: ${stdout}${stderr}`)
  return stdout
}

const writeInside = (path: string, text: string) =>
  prints(`echo ${Buffer.from(text).toString('base64')} | base64 --decode >${path}`)

/** Lines without their reasons. */
function words(stdout: string): string[] {
  return stdout
    .trimEnd()
    .split('\n')
    .map(line => line.split(':')[0] ?? '')
}

/** The owner's expectations of VM and gateway, made from the operator's own files. */
async function ownersFiles(): Promise<{ policy: string; allowlist: string }> {
  const { directory } = appliance
  await pinGateway({ daemon: [executable, 'serve'], configFile: join(directory, 'strongroom.toml'), directory })
  const { launchDigests }: { launchDigests: Record<string, string> } = await Bun.file(
    join(await imageDir(), 'manifest.json'),
  ).json()
  // The VM is launched from an IGVM file that the host has made of the image.
  const ofVm = Object.entries(launchDigests).flatMap(([shape, digest]) =>
    shape.startsWith('qemu-kvm/igvm/EPYC-v4/') ? [digest] : [],
  )
  expect(ofVm.length).toBeGreaterThan(0)
  const policy = JSON.parse(readFileSync(join(directory, 'policy.json'), 'utf8')) as { measurements: string[] }
  return {
    policy: JSON.stringify({ ...policy, measurements: [...policy.measurements, ...ofVm] }),
    allowlist: readFileSync(join(directory, 'allowlist.json'), 'utf8'),
  }
}

/** Exit code of ssh with this line of known_hosts and nothing else. */
async function strictly(line: string): Promise<number> {
  const file = join(appliance.directory, 'attested_hosts')
  writeFileSync(file, `${line}\n`)
  const options = ['-o', 'StrictHostKeyChecking=yes', '-o', `UserKnownHostsFile=${file}`]
  return (await appliance.sshWith(options, hostname, ['true'])).exitCode
}

inOwnNetns(
  import.meta.path,
  () => {
    beforeAll(async () => {
      modelFile = createModelFile()
      // On a busy machine the daemon is asked often until it has found its VM again.
      const often = { instances: 'attestations_per_minute = 10_000' }
      const tables = await gatewayTables(modelFile.path)
      appliance = await createAppliance('snp_boot = "igvm"', 'vm', undefined, tables, often)
      consoles = readConsoles(appliance.stateDir)
      await appliance.start()
      acme = await createCustomer(appliance, 'acme')
      other = await createCustomer(appliance, 'other')
      const created = await acme.create('gateway-1')
      expect(created.status).toBe(202)
      name = created.body.data.name
      hostname = created.body.data.hostname
    }, timeoutMs)
    afterAll(async () => {
      consoles?.[Symbol.dispose]()
      await appliance?.[Symbol.asyncDispose]()
      modelFile?.[Symbol.dispose]()
    })

    // Goal: nothing of an attested claim lives in the daemon alone: one that is killed while it claims makes the same
    // instance ready.
    test(
      'a daemon that is killed while it claims',
      async () => {
        const early = await ask(acme)
        expect([early.status, early.body.error?.code]).toEqual([409, 'conflict'])
        await until('its VM runs', bootTimeoutMs, async () => (await shown()).vm?.state === 'running')
        vmId = (await shown()).vm?.id ?? ''
        await appliance.kill()
        await appliance.start()
        await acme.reached(name, 'ready', bootTimeoutMs)
        expect((await shown()).vm?.id).toBe(vmId)
        trust = await trustOf(appliance)
        kept = await attestation()
        const verdict = await verifyClaim(kept, expecting(kept.nonce), trust)
        expect([verdict.ok, verdict.simulated, failedChecks(verdict)]).toEqual([true, true, []])
      },
      timeoutMs,
    )

    // Goal: the receipt is good with the simulated root only, for this nonce, instance and organization only; plain ssh
    // can use it before the first login.
    test(
      'an owner verifies an instance before the first login, and again with a nonce of their own',
      async () => {
        const unbelieved = await verifyClaim(kept, expecting(kept.nonce), { ...trust, roots: AMD_ROOTS })
        expect(unbelieved.ok).toBe(false)
        const nonce = newNonce()
        const fresh = await attestation(nonce)
        expect((await verifyClaim(fresh, expecting(nonce), trust)).ok).toBe(true)
        expect(fresh.known_hosts).toBe(kept.known_hosts)
        const replays: [Partial<Expecting>, string][] = [
          [{ nonce: newNonce() }, 'statement-nonce'],
          [{ name: 'zzzz9999' }, 'expected-name'],
          [{ organization: 'other' }, 'expected-organization'],
        ]
        for (const [change, check] of replays) {
          const replayed = await verifyClaim(fresh, { ...expecting(nonce), ...change }, trust)
          expect([replayed.ok, failedChecks(replayed)]).toEqual([false, [check]])
        }
        expect((await ask(other, newNonce())).status).toBe(404)

        expect(await strictly(fresh.known_hosts)).toBe(0)
        // The same line with another key, which is 32 bytes at its end.
        expect(await strictly(fresh.known_hosts.replace(/.{43}$/, 'A'.repeat(43)))).toBe(255)
        const digest = toHex(sshKeyDigest(fresh.known_hosts.slice(hostname.length + 1))).toUpperCase()
        expect(await fingerprintsOf(hostname)).toEqual([`4 2 ${digest}`])
        // The verifier inside has the newest receipt.
        expect(JSON.parse(await prints('cat /run/strongroom/receipt.json'))).toEqual(fresh.receipt)
      },
      timeoutMs,
    )

    // Goal: the login user gets exactly five lines; a simulated platform fails the first and says so; with its root
    // trusted the rest, lockout included, is good, except the TPM, which is the host's. Its quotes are for one nonce.
    test(
      'strongroom-verify inside',
      async () => {
        await writeInside('root.pem', readFileSync(join(appliance.stateDir, 'simulator/root.pem'), 'utf8'))
        const found = await appliance.ssh(hostname, [verifyTrusting])
        expect({ lines: words(found.stdout), stderr: found.stderr, exitCode: found.exitCode }).toEqual({
          lines: [
            'FAIL         hardware attestation',
            'FAIL         TPM measurements',
            'PASS         host-key binding',
            'NOT CHECKED  inference provider attestation',
            'PASS         external-access lockout',
          ],
          stderr: '',
          exitCode: 1,
        })
        expect(found.stdout.split('\n')[0]).toContain('SIMULATED: no hardware vouches for this VM')
        const detailed = await appliance.ssh(hostname, [`${verifyTrusting} --json`])
        expectHostsTpm(JSON.parse(detailed.stdout).lines[1])
        const distrusting = await appliance.ssh(hostname, ['strongroom-verify --json'])
        expect(distrusting.exitCode).toBe(1)
        const hostUntrusted = expect.stringMatching(/^vtpm:host-untrusted: /)
        expect(JSON.parse(distrusting.stdout)).toMatchObject({
          ok: false,
          simulated: true,
          lines: [
            { outcome: 'fail' },
            { outcome: 'fail', reason: hostUntrusted },
            { outcome: 'not-checked' },
            {},
            { outcome: 'not-checked' },
          ],
        })
        expect((await appliance.ssh(hostname, ['strongroom-verify --nonsense'])).exitCode).toBe(2)
        await expectBoundQuotes(prints)
        const denied = await appliance.ssh(hostname, ['cat /dev/tpm0 /dev/tpmrm0'])
        expect(denied.stderr.match(/Permission denied/g)).toHaveLength(2)
      },
      timeoutMs,
    )

    // Goal: an owner who pins VM and gateway learns that a gateway without its own VM runs beside the host's processes,
    // whatever its evidence.
    test(
      'the gateway in the lines of an owner with a policy',
      async () => {
        const { policy, allowlist } = await ownersFiles()
        await writeInside('policy.json', policy)
        await writeInside('allowlist.json', allowlist)
        const options = '--verbose --policy policy.json --allowlist allowlist.json'
        const { stdout } = await appliance.ssh(hostname, [`${verifyTrusting} ${options}`])
        const outcomes = [...stdout.matchAll(/^(PASS|FAIL|NOT CHECKED) +[a-zA-Z -]+:/gm)].map(([, outcome]) => outcome)
        expect({ outcomes, stdout }).toEqual({ outcomes: ['FAIL', 'FAIL', 'PASS', 'NOT CHECKED', 'PASS'], stdout })
        expect(stdout).toMatch(
          /^NOT CHECKED +inference provider attestation: gateway: nothing vouches for .*: it runs in the host's own process; /m,
        )
      },
      timeoutMs,
    )

    // Goal: inside an instance its own key and the endpoint are all that inference needs, and it is booked.
    test(
      'the private inference of an instance',
      async () => {
        const curl = (path: string, more: string) =>
          appliance.ssh(hostname, [
            'curl --silent --show-error --max-time 60',
            '--write-out "\\n%{http_code}" -H "Authorization: Bearer $(cat ~/.config/opencode/inference.key)"',
            `${more} \${OPENAI_BASE_URL%/v1}${path}`,
          ])
        // No program of the instance but the endpoint trusts an authority of the host.
        const session = await prints(
          'env; curl --silent --retry 30 --retry-connrefused $ANTHROPIC_BASE_URL/health; echo $?; curl --silent https://inference.strongroom.internal:8442/health; echo $?',
        )
        expect(session).toContain('HOME=/home/agent\n')
        expect(session).not.toMatch(/^(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS)=/m)
        expect(session).toEndWith('{"status":"ok"}0\n60\n')
        expect((await curl('/v1/models', '')).stdout).toEndWith('\n200')
        await until('the worker responds to the instance', 120_000, async () => {
          const options = `-H 'Content-Type: application/json' -d '${JSON.stringify(chat)}'`
          const { stdout } = await curl('/v1/chat/completions', options)
          return stdout.endsWith('\n200') && stdout.includes('"chat.completion"')
        })
        await until('it is booked', 60_000, async () => (await acme.usage()).usage.inference_cost_usd !== '0.00')
      },
      timeoutMs,
    )

    // Goal: the console, which is the host's, has the stages of the boot and nothing else; logins leave no log.
    test(
      'what the host sees of the instance',
      async () => {
        const serial = consoles.textOf(vmId)
        const stages = serial.split('\n').flatMap(line => /strongroom: (.*)/.exec(line.trim())?.[1] ?? [])
        expect(stages.map(stage => stage.replace(/ version .*/, ' version').replace(/\d+ MiB/, 'N MiB'))).toEqual([
          'scratch disk: N MiB, encrypted and authenticated',
          'agent started, version',
          'agent ready',
        ])
        expect(serial).not.toMatch(/sshd|Accepted|"level"|claim/)
        const logs = await appliance.ssh(hostname, ['ls /run/strongroom/log; cat /run/strongroom/claim.json'])
        expect(logs.stdout).toBe('')
      },
      timeoutMs,
    )

    // Goal: a daemon that is killed finds its VM again. When the operator has taken another key meanwhile, the VM keeps
    // that of its launch, for this host and for everyone who has pinned it.
    test(
      'another daemon, with another key of the operator',
      async () => {
        await appliance.kill()
        for (const file of ['operator-key.pem', 'operator-key.pub.pem']) rmSync(join(appliance.stateDir, file))
        await appliance.start()
        await until('the daemon has found its VM again', 120_000, async () => {
          const { status } = await ask(acme, newNonce())
          if (![200, 503].includes(status)) throw new Error(`status ${status}`)
          return status === 200
        })
        const later = newNonce()
        const again = await attestation(later)
        const changed = await trustOf(appliance)
        expect(toHex(changed.operatorKey)).not.toBe(toHex(trust.operatorKey))
        expect((await verifyClaim(again, expecting(later), trust)).ok).toBe(true)
        expect((await verifyClaim(again, expecting(later), changed)).ok).toBe(false)
        expect([again.known_hosts, again.launch]).toEqual([kept.known_hosts, kept.launch])
        expect(await attestation()).toEqual(kept)
        expect((await shown()).attested_at).not.toBeNull()
      },
      timeoutMs,
    )

    // Goal: a dead TPM is reported within seconds, and the other lines are as before.
    test(
      'a TPM that dies',
      async () => {
        const [tpm = 0, ...others] = tpmProcesses(appliance.stateDir)
        expect(others).toEqual([])
        process.kill(tpm, 'SIGKILL')
        const startedMs = performance.now()
        const { stdout } = await appliance.ssh(hostname, [verifyTrusting])
        const ms = Math.round(performance.now() - startedMs)
        process.stderr.write(`${ms} ms after the end of swtpm: ${stdout.split('\n')[1]}\n`)
        expect(stdout.split('\n')[1]).toStartWith(
          'FAIL         TPM measurements: tpm: this VM has a TPM, but it gives no quote: ',
        )
        expect(ms).toBeLessThan(60_000)
        expect([words(stdout)[2], words(stdout)[4]]).toEqual([
          'PASS         host-key binding',
          'PASS         external-access lockout',
        ])
      },
      timeoutMs,
    )

    // Goal: the end of the instance ends its key, name and evidence; the secrets of keys are nowhere on the host.
    test(
      'the end of the instance',
      async () => {
        const key = (await prints('cat ~/.config/opencode/inference.key')).trim()
        expect(key).toMatch(/^gw_/)
        const outside = gatewayClient(appliance, key)
        expect((await outside.get('/v1/models')).status).toBe(200)
        expect((await acme.remove(name)).status).toBe(202)
        await acme.reached(name, 'terminated', 120_000)
        expect((await outside.get('/v1/models')).status).toBe(401)
        expect((await ask(acme, newNonce())).status).toBe(409)
        expect(await attestation()).toEqual(kept)
        expect(await fingerprintsOf(hostname)).toBeNull()
        await expectNoSecret(appliance, [key, acme.key])
        expect(await appliance.stop()).toBe(0)
      },
      timeoutMs,
    )
  },
  { timeoutMs: 2 * timeoutMs },
)
