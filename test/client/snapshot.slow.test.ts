// Goal: an owner takes a snapshot, and restores it into a new instance, by two commands; no host can hand out another
// one, an older one, or one of its own making, and no key but the owner's opens it. The HTTP of service A, a real sshd,
// ssh-keygen and age; the VM is scripted.

import { afterAll, afterEach, beforeEach, describe, expect, test } from 'bun:test'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastingPort } from '../../scripts/rigs/free-port.ts'
import { snapshotSettings } from '../../scripts/rigs/instances/no-snapshots.ts'
import { skipUnless } from '../../scripts/rigs/skip.ts'
import { until } from '../../scripts/rigs/until.ts'
import { systemRandom } from '../../src/base/ids.ts'
import { silentLogger } from '../../src/base/log.ts'
import { ageHeaderIn } from '../../src/client/snapshots/age-header.ts'
import { snapshotText } from '../../src/contract/snapshot.ts'
import type { Transfer } from '../../src/contract/vm/agent.ts'
import { SnapshotFiles } from '../../src/instances/snapshots/files.ts'
import { Snapshots } from '../../src/instances/snapshots/snapshots.ts'
import { Transfers } from '../../src/instances/snapshots/transfers.ts'
import type { GuestRequests, VmView } from '../../src/vm/engine.ts'
import { startCustomerService } from '../rigs/instances/customer-service.ts'
import { hasSshd, startSshServer } from '../rigs/instances/ssh-server.ts'
import { programArgv } from '../rigs/program.ts'

const lacking = skipUnless(hasSshd() && Bun.which('age') !== null, 'needs ssh and sshd of OpenSSH, and age')
const dir = mkdtempSync(join(tmpdir(), 'srt-snapshot-'))
const programs = join(dir, 'programs')
const kept = join(dir, 'kept')
mkdirSync(programs)
const port = lastingPort()
const transfers = new Transfers({ hostname: '127.0.0.1', port, log: silentLogger })

/** The VM: plaintext, file of its recipients, number and digest of its last snapshot. */
const vm = {
  plain: 'the work of the owner\n',
  recipients: '',
  hostKeyFile: '',
  number: 0,
  previous: null as string | null,
  fetched: '',
}
const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

function run(argv: readonly string[], input: Uint8Array | string = ''): Buffer {
  const { exitCode, stdout, stderr } = Bun.spawnSync([...argv], { stdin: Buffer.from(input) })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr}`)
  return stdout
}

function dial(to: Transfer, bytes: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: to.port, host: '127.0.0.1', allowHalfOpen: true })
    const chunks: Buffer[] = []
    socket.on('data', chunk => chunks.push(chunk))
    socket.on('error', reject)
    socket.on('end', () => socket.end())
    socket.on('close', () => resolve(Buffer.concat(chunks)))
    socket.end(Buffer.concat([Buffer.from(`${to.token}\n`), bytes]))
  })
}

/** As the image's program and the agent make it. */
function packed(
  hostname: string,
  plain: string,
  { keyFile = vm.hostKeyFile, number = 1, previous = null as string | null } = {},
) {
  const sealed = run(['age', '--encrypt', '--recipients-file', vm.recipients], plain)
  const header = ageHeaderIn(sealed) ?? new Uint8Array()
  const facts = { hostname, number, previous, rootHash: null, ageHeader: sha256(header), sha256: sha256(sealed) }
  const text = snapshotText({ format: 'strongroom/snapshot/v1', ...facts })
  const signature = run(['ssh-keygen', '-q', '-Y', 'sign', '-f', keyFile, '-n', 'strongroom-snapshot'], text).toString()
  return { sealed, signed: { header: text, signature } }
}

const guest: GuestRequests = {
  certificate: async () => {},
  snapshot: async to => {
    const number = vm.number + 1
    const { sealed, signed } = packed(hostnameOf('work'), vm.plain, { number, previous: vm.previous })
    await dial(to, sealed)
    Object.assign(vm, { number, previous: sha256(sealed) })
    return signed
  },
  restore: async (from, pipe) => {
    void dial(from, new Uint8Array()).then(bytes => {
      writeFileSync(join(dir, `${pipe}.part`), bytes)
      run(['mv', join(dir, `${pipe}.part`), join(dir, pipe)])
    })
  },
}
const service = await startCustomerService(dir, [], parts => {
  return new Snapshots({
    ...parts,
    engine: { view: id => ({ id, address: '127.0.0.1', addressV6: null }) as VmView, guest: () => guest },
    files: new SnapshotFiles(kept, silentLogger),
    transfers,
    freeBytes: () => 2 ** 40,
    settings: { ...snapshotSettings, port },
    random: systemRandom,
    log: silentLogger,
  })
})
const server = lacking ? null : await startSshServer(dir, programs)
afterAll(async () => {
  transfers.stop()
  await server?.[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

/** As the image's program, without tar and its namespaces. */
const RESTORE = `#!/bin/bash
set -eu -o pipefail
read -r pipe && read -r identity && read -r header && read -r skip && read -r root_hash
tries=0; until [ $pipe = stdin ] || [ -e ${dir}/$pipe ]; do tries=$((tries + 1)); [ $tries -le 200 ]; sleep 0.05; done
[ $pipe = stdin ] || exec <${dir}/$pipe
{ base64 --decode <<<"$header" && tail --bytes="+$((skip + 1))"; } | age --decrypt --identity=<(printf '%s\\n' "$identity") >${dir}/restored
`

let home = ''
const config = (name: string) => join(home, '.config/strongroom', name)
const hostnameOf = (name: string): string => JSON.parse(readFileSync(config(`instances/${name}.json`), 'utf8')).hostname
const place = [
  '-F',
  'none',
  '-o',
  'HostName=127.0.0.1',
  '-o',
  `Port=${server?.port}`,
  '-o',
  'BatchMode=yes',
  '-o',
  'IdentitiesOnly=yes',
]
const at = (name: string) => `${server?.user}@${name}`

async function strongroom(...argv: string[]) {
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
  const child = Bun.spawn([...programArgv, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { stdout, stderr, code }
}
const up = (name: string, ...options: string[]) => strongroom('up', at(name), '--no-login', ...options, '--', ...place)
const restored = () => readFileSync(join(dir, 'restored'), 'utf8')

beforeEach(async () => {
  home = mkdtempSync(join(dir, 'home-'))
  rmSync(join(dir, 'restored'), { force: true })
  mkdirSync(join(home, '.ssh'), { mode: 0o700 })
  writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${server?.publicKey}\n`)
  writeFileSync(join(home, '.ssh/id_ed25519'), readFileSync(server?.userKeyFile ?? ''), { mode: 0o600 })
  writeFileSync(join(programs, 'strongroom-restore'), RESTORE)
  chmodSync(join(programs, 'strongroom-restore'), 0o755)
  Object.assign(service, { hostKey: server?.hostKey, fate: 'ready', lie: null })
  Object.assign(vm, {
    plain: 'the work of the owner\n',
    recipients: `${server?.userKeyFile}.pub`,
    number: 0,
    previous: null,
  })
  vm.hostKeyFile = join(dir, 'ssh_host_ed25519_key')
  if (!lacking) {
    await strongroom('client', 'init', service.url, ...service.initOptions)
    expect((await up('work')).code).toBe(0)
  }
})
afterEach(() => rmSync(home, { recursive: true }))

/** Puts another ciphertext in the place of a stored one. */
function plant(name: string, number: number, sealed: Uint8Array): void {
  for (const id of readdirSync(kept)) {
    const path = join(kept, id, `${number}.json`)
    const record = existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : {}
    if (record.name !== name) continue
    writeFileSync(join(kept, id, `${number}.age`), sealed)
    writeFileSync(path, JSON.stringify({ ...record, bytes: sealed.length }))
  }
}
const lieAbout = (change: (snapshots: Record<string, unknown>[]) => unknown[]) => {
  service.lie = async (response, path) => {
    if (!path.endsWith('/snapshots')) return response
    const { headers, status } = response
    const document = (await response.json()) as { data: { snapshots: Record<string, unknown>[] } }
    document.data.snapshots = change(document.data.snapshots) as Record<string, unknown>[]
    return Response.json(document, { status, headers })
  }
}

describe.skipIf(lacking)('an owner', () => {
  test('goal: takes a snapshot, lists it, restores it into a new instance, also after the old one has ended, and removes it', async () => {
    const taken = await strongroom('snapshot', 'work')
    expect([taken.code, taken.stderr]).toEqual([0, expect.not.stringContaining('remedy')])
    const hostname = hostnameOf('work')
    const [name = ''] = hostname.split('.')
    expect(taken.stdout).toContain(`${hostname}: snapshot 1, `)
    expect((await strongroom('snapshot', 'ls')).stdout).toContain(`${name}:1`)
    const again = await up('again', '--from', 'work')
    expect([again.code, again.stderr.includes(`restoring snapshot 1 of ${hostname}`)]).toEqual([0, true])
    expect(restored()).toBe('the work of the owner\n')
    expect(JSON.parse(readFileSync(config('instances/again.json'), 'utf8')).restoring).toBeUndefined()
    rmSync(join(dir, 'restored'))
    expect((await strongroom('rm', 'work', '--yes')).code).toBe(0)
    // By the name that it had, and by that of the service.
    for (const word of ['work', `${name}:1`]) {
      expect((await up(`new-${word === 'work' ? 'a' : 'b'}`, '--from', word)).code).toBe(0)
      expect(restored()).toBe('the work of the owner\n')
      rmSync(join(dir, 'restored'))
    }
    const listed = JSON.parse((await strongroom('snapshot', 'ls', 'work', '--json')).stdout)
    expect(listed.snapshots).toMatchObject([{ instance: name, number: 1 }])
    const file = join(home, 'work.age')
    const got = await strongroom('snapshot', 'get', 'work', file)
    expect([got.code, got.stderr]).toEqual([0, ''])
    const plain = run(['age', '--decrypt', '--identity', join(home, '.ssh/id_ed25519'), file])
    expect(plain.toString()).toBe('the work of the owner\n')
    expect((await strongroom('snapshot', 'get', 'work', file)).stderr).toContain('it exists')
    // A command that was killed has left its part.
    writeFileSync(join(home, 'second.age.partial'), 'part')
    expect((await strongroom('snapshot', 'get', 'work', join(home, 'second.age'))).code).toBe(0)
    expect(
      readdirSync(home)
        .filter(entry => entry.startsWith('second'))
        .sort(),
    ).toEqual(['second.age', 'second.age.json', 'second.age.partial'])
    expect((await strongroom('snapshot', 'rm', 'work:1', '--yes')).code).toBe(0)
    const none = await strongroom('snapshot', 'ls', 'work')
    expect(none.stdout).toContain('no snapshots')
  })

  test('goal: an older one, one of another instance, and a forged one are refused before anything is created', async () => {
    await strongroom('snapshot', 'work')
    vm.plain = 'later work\n'
    await strongroom('snapshot', 'work')
    const refusal = async (...options: string[]) => {
      const before = service.requests.filter(({ method, path }) => method === 'POST' && path === '/v1/instances').length
      const { code, stderr } = await up('again', '--from', ...options)
      const after = service.requests.filter(({ method, path }) => method === 'POST' && path === '/v1/instances').length
      return [code === 0, after - before, stderr.trim()]
    }
    lieAbout(snapshots => snapshots.slice(0, 1))
    expect(await refusal('work')).toEqual([false, 0, expect.stringContaining('is older than 2')])
    lieAbout(snapshots => snapshots.slice(0, 1).map(snapshot => ({ ...snapshot, number: 2 })))
    expect(await refusal('work:2')).toEqual([false, 0, expect.stringContaining('is older than 2')])
    service.lie = null
    expect(await refusal('work:1')).toEqual([false, 0, expect.stringContaining('is older than 2')])
    expect((await up('older', '--from', 'work:1', '--accept-older')).code).toBe(0)
    expect(restored()).toBe('the work of the owner\n')

    const foreign = packed('aaaaaaaa.acme.agents.example', 'foreign', { number: 3 })
    lieAbout(snapshots => snapshots.map(snapshot => ({ ...snapshot, ...foreign.signed })))
    expect(await refusal('work')).toEqual([false, 0, expect.stringContaining('is one of aaaaaaaa')])
    const otherKey = join(dir, `other-${Math.random()}`)
    run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', otherKey])
    const forged = packed(hostnameOf('work'), 'forged', { number: 3, keyFile: otherKey })
    lieAbout(snapshots => snapshots.map(snapshot => ({ ...snapshot, ...forged.signed })))
    expect(await refusal('work')).toEqual([false, 0, expect.stringContaining('not made by it')])
  })

  test('goal: a ciphertext that the host has made itself, under a genuine signature, is refused', async () => {
    await strongroom('snapshot', 'work')
    // Anyone can encrypt to the owner's public key.
    const planted = packed(hostnameOf('work'), 'planted by the host').sealed
    plant(hostnameOf('work').split('.')[0] ?? '', 1, planted)
    const { code, stderr } = await up('again', '--from', 'work')
    expect([code === 0, stderr]).toEqual([false, expect.stringContaining('is not the one that')])
    expect(existsSync(config('instances/again.json'))).toBeFalse()
    const got = await strongroom('snapshot', 'get', 'work', join(home, 'planted.age'))
    expect([got.code === 0, got.stderr]).toEqual([false, expect.stringContaining('is not the one that')])
    expect(readdirSync(home).filter(name => name.startsWith('planted'))).toEqual([])
  })

  test('goal: an interrupted restore goes on with the same command, and a running instance is not overwritten', async () => {
    await strongroom('snapshot', 'work')
    writeFileSync(join(programs, 'strongroom-restore'), '#!/bin/sh\nexit 3\n')
    const broken = await up('again', '--from', 'work')
    expect([broken.code === 0, broken.stderr]).toEqual([false, expect.stringContaining('not restored whole')])
    const hostname = hostnameOf('again')
    for (const argv of [
      ['up', at('again'), '--no-login'],
      ['ssh', at('again'), '--', ...place, 'true'],
    ]) {
      const { stderr } = await strongroom(...argv)
      expect(stderr).toContain('into again is not complete: before you work in it, repeat `strongroom up again --from ')
    }
    writeFileSync(join(programs, 'strongroom-restore'), RESTORE)
    // The owner has worked in it for hours, and runs the old command out of the shell's history.
    const record = readFileSync(config('instances/again.json'), 'utf8')
    const old = JSON.stringify({ ...JSON.parse(record), requestedAtMs: Date.now() - 2 * 3_600_000 })
    writeFileSync(config('instances/again.json'), old)
    const late = await up('again', '--from', 'work')
    expect([late.code, late.stderr]).toEqual([5, expect.stringContaining('made there since then are replaced')])
    expect(existsSync(join(dir, 'restored'))).toBeFalse()
    writeFileSync(config('instances/again.json'), record)
    expect((await up('again', '--from', 'work')).code).toBe(0)
    expect([hostnameOf('again'), restored()]).toEqual([hostname, 'the work of the owner\n'])
    rmSync(join(dir, 'restored'))
    const over = await up('again', '--from', 'work')
    expect([over.code === 0, over.stderr]).toEqual([false, expect.stringContaining('into a new instance alone')])
    expect(existsSync(join(dir, 'restored'))).toBeFalse()
  })

  test('goal: a file restores it after the host has lost it; without its signature, changed, foreign or older it does not', async () => {
    // More than the pipes on the way hold.
    vm.plain = `${'work '.repeat(400_000)}\n`
    await strongroom('snapshot', 'work')
    const [first, second] = [join(home, 'first.age'), join(home, 'second')]
    expect((await strongroom('snapshot', 'get', 'work', first)).stdout).toContain(`keep ${first}.json with it`)
    vm.plain = 'later work\n'
    await strongroom('snapshot', 'work')
    await strongroom('snapshot', 'get', 'work', second)
    for (const number of [1, 2]) await strongroom('snapshot', 'rm', `work:${number}`, '--yes')
    expect((await strongroom('rm', 'work', '--yes')).code).toBe(0)
    service.requests.length = 0
    const refusal = async (...options: string[]) => {
      const { code, stderr } = await up('again', '--from', ...options)
      expect([code === 0, service.requests.filter(({ method }) => method === 'POST')]).toEqual([false, []])
      return stderr
    }
    expect(await refusal(first)).toContain('is older than 2')
    const signed = readFileSync(`${second}.json`, 'utf8')
    const signature = (text: string) => writeFileSync(`${second}.json`, text)
    signature(readFileSync(`${first}.json`, 'utf8'))
    expect(await refusal(second, '--accept-older')).toContain('is not the one that')
    for (const hostname of ['../../../x', 'aaaaaaaa.acme.agents.example']) {
      const { header, ...rest } = JSON.parse(signed)
      signature(JSON.stringify({ ...rest, header: snapshotText({ ...JSON.parse(header), hostname }) }))
      expect(await refusal(second)).toMatch(/it names no instance|has never verified/)
    }
    signature(signed.replace('\\"number\\":2', '\\"number\\":3'))
    expect(await refusal(second)).toContain('not made by it')
    rmSync(`${second}.json`)
    expect(await refusal(second)).toContain('nothing proves who made it')
    signature(signed)
    const sealed = readFileSync(second)
    const changed = Buffer.from(sealed)
    changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1
    writeFileSync(second, changed)
    expect(await refusal(second)).toContain('is not the one that')
    writeFileSync(second, sealed)
    expect((await up('again', '--from', second)).code).toBe(0)
    expect(restored()).toBe('later work\n')
    writeFileSync(join(programs, 'strongroom-restore'), '#!/bin/sh\nhead --bytes=1000 >/dev/null; exit 3\n')
    const broken = await up('older', '--from', first, '--accept-older')
    expect([broken.code === 0, broken.stderr]).toEqual([false, expect.stringContaining('not restored whole')])
    writeFileSync(join(programs, 'strongroom-restore'), RESTORE)
    expect((await up('older', '--from', first, '--accept-older')).code).toBe(0)
    expect(restored()).toBe(`${'work '.repeat(400_000)}\n`)
    expect(service.requests.filter(({ path }) => path.endsWith('/restore'))).toEqual([])
  })

  test('goal: a file that changes between its check and the restore is not restored, and a get that fails leaves no FILE.json', async () => {
    await strongroom('snapshot', 'work')
    const [file, occupied] = [join(home, 'work.age'), join(home, 'occupied.age')]
    expect((await strongroom('snapshot', 'get', 'work', file)).code).toBe(0)
    const sealed = readFileSync(file)
    service.lie = async (response, path, method) => {
      if (method === 'POST' && path === '/v1/instances') writeFileSync(file, Buffer.concat([sealed, Buffer.from('x')]))
      return response
    }
    const changed = await up('again', '--from', file)
    expect([changed.code === 0, changed.stderr]).toEqual([false, expect.stringContaining('changed while it was sent')])
    expect(existsSync(join(dir, 'restored')) && restored()).not.toBe('the work of the owner\n')
    writeFileSync(file, sealed)
    expect([(await up('again', '--from', file)).code, restored()]).toEqual([0, 'the work of the owner\n'])
    service.lie = async (response, path) => {
      if (/\/snapshots\/1/.test(path)) mkdirSync(occupied, { recursive: true })
      return response
    }
    const failed = await strongroom('snapshot', 'get', 'work', occupied)
    expect([failed.code === 0, readdirSync(home).filter(name => name.startsWith('occupied'))]).toEqual([
      false,
      ['occupied.age'],
    ])
  })

  test('goal: a key that is not here is named, and another recipient opens it by --identity', async () => {
    run(['age-keygen', '-o', join(home, 'age.txt')])
    const recipients = join(home, 'recipients')
    writeFileSync(recipients, `${server?.publicKey}\n${run(['age-keygen', '-y', join(home, 'age.txt')])}`)
    vm.recipients = recipients
    await strongroom('snapshot', 'work')
    const moved = join(home, 'moved')
    run(['mv', join(home, '.ssh/id_ed25519'), moved])
    const lost = await up('again', '--from', 'work')
    expect([lost.code === 0, lost.stderr]).toEqual([false, expect.stringContaining('--identity')])
    const identity = ['-o', `IdentityFile=${moved}`]
    const words = ['up', at('again'), '--no-login', '--from', 'work', '--identity', join(home, 'age.txt')]
    const opened = await strongroom(...words, '--', ...place, ...identity)
    expect([opened.code, restored()]).toEqual([0, 'the work of the owner\n'])
  })

  test('goal: what the service says of a failed or lost attempt reaches the user, harmless', async () => {
    service.lie = async (response, path, method) => {
      if (!path.endsWith('/snapshots') || method !== 'GET') return response
      const document = (await response.json()) as { data: { attempts: Record<string, unknown>[] } }
      const attempts = document.data.attempts.map(attempt => ({
        ...attempt,
        state: 'failed',
        message: 'no \x1b[2Jroom',
      }))
      return Response.json({ ...document, data: { ...document.data, attempts } })
    }
    // The service may still take the snapshot of a command that has ended.
    const taken = async () => {
      let last = await strongroom('snapshot', 'work')
      await until('no other attempt is under way', 60_000, async () => {
        if (last.stderr.includes('under way')) last = await strongroom('snapshot', 'work')
        return !last.stderr.includes('under way')
      })
      return last
    }
    const failed = await taken()
    expect([failed.code, failed.stderr]).toEqual([5, expect.stringContaining('no \\x1b[2Jroom')])
    expect((await strongroom('snapshot', 'ls', 'work')).stdout).toMatch(/, attempt of .*: failed: no \\x1b\[2Jroom\n$/)
    service.lie = async (response, path, method) => {
      if (!path.endsWith('/snapshots') || method !== 'GET') return response
      const document = (await response.json()) as { data: object }
      return Response.json({ ...document, data: { ...document.data, attempts: [], snapshots: [] } })
    }
    expect((await taken()).stderr).toContain('does not list this attempt any more')
    // It was kept while this machine slept, and then another attempt followed.
    service.lie = async (response, path, method) => {
      if (!path.endsWith('/snapshots') || method !== 'GET') return response
      const document = (await response.json()) as { data: { attempts: { state: string }[] } }
      const attempts = document.data.attempts.filter(({ state }) => state !== 'kept')
      return Response.json({ ...document, data: { ...document.data, attempts } })
    }
    const slept = await taken()
    expect([slept.code, slept.stdout]).toEqual([0, expect.stringContaining(': snapshot ')])
    service.lie = null
    const unknown = await strongroom('snapshot', 'nowhere')
    expect([unknown.code === 0, unknown.stderr]).toEqual([
      false,
      expect.stringContaining('no instance is called nowhere'),
    ])
  })
})
