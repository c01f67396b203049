// Goal: after an upgrade of the images, an instance from before stays accepted with the images that it was verified
// with, a new one does not, and a refusal names the whole command. The real HTTP of service A, scripted VMs, a real
// sshd.

import { afterAll, beforeEach, describe, expect, test } from 'bun:test'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { skipUnless } from '../../../scripts/rigs/skip.ts'
import { startCustomerService } from '../../rigs/instances/customer-service.ts'
import { hasSshd, startSshServer } from '../../rigs/instances/ssh-server.ts'
import { programArgv } from '../../rigs/program.ts'

const noSshd = skipUnless(hasSshd(), 'needs ssh and sshd of OpenSSH')
const dir = mkdtempSync(join(tmpdir(), 'srt-images-'))
const service = await startCustomerService(dir)
const server = noSshd ? null : await startSshServer(dir)
const home = join(dir, 'home')
afterAll(async () => {
  await server?.[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true })
})

const config = (name: string) => join(home, '.config/strongroom', name)
const recordOf = (name: string) => JSON.parse(readFileSync(config(`instances/${name}.json`), 'utf8'))
const stored = () =>
  readdirSync(config(''))
    .filter(name => name.includes('-manifest-'))
    .sort()
const ssh = ['-F', 'none', '-o', 'HostName=127.0.0.1', '-o', `Port=${server?.port}`, '-o', 'BatchMode=yes']
const at = (name: string) => `${server?.user}@${name}`

async function strongroom(...argv: string[]) {
  const env = { PATH: process.env.PATH ?? '', HOME: home, TMPDIR: home }
  const child = Bun.spawn([...programArgv, ...argv], { env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  return { stdout, stderr, code }
}

/** Writes the operator's manifest with other digests, as a new version of the image has. */
function upgraded(kind: 'instance' | 'inference', from: string, to: string): string {
  const text = readFileSync(join(dir, 'operator', kind, 'manifest.json'), 'utf8')
  const path = join(home, `${kind}.json`)
  writeFileSync(path, text.replaceAll(from, to))
  return path
}

/** The operator hands out new images. Instances from before still run the earlier ones. */
async function upgrade() {
  const images = ['--image', upgraded('instance', 'a1'.repeat(32), 'b1'.repeat(32))]
  const gateways = ['--gateway-image', upgraded('inference', 'c1'.repeat(48), 'd1'.repeat(48))]
  return await strongroom('client', 'init', service.url, ...service.initOptions, '--replace', ...images, ...gateways)
}

beforeEach(async () => {
  rmSync(home, { recursive: true, force: true })
  mkdirSync(join(home, '.ssh'), { recursive: true, mode: 0o700 })
  writeFileSync(join(home, '.ssh/id_ed25519.pub'), `${server?.publicKey}\n`)
  writeFileSync(join(home, '.ssh/id_ed25519'), readFileSync(server?.userKeyFile ?? ''), { mode: 0o600 })
  service.hostKey = server?.hostKey ?? ''
  expect((await strongroom('client', 'init', service.url, ...service.initOptions)).code).toBe(0)
})

describe.skipIf(noSshd)('after an upgrade', () => {
  test('goal: ssh and up accept an instance from before and say so, and refuse a new one of the earlier image', async () => {
    expect((await strongroom('up', 'work', '--no-login')).code).toBe(0)
    const [gatewayImage, image] = stored()
    expect(recordOf('work')).toMatchObject({ image, gatewayImage })

    const replaced = await upgrade()
    expect([replaced.code, replaced.stdout]).toEqual([0, expect.stringContaining('verified with: work')])
    const login = await strongroom('ssh', at('work'), '--', ...ssh, 'echo in')
    expect([login.code, login.stdout]).toEqual([0, 'in\n'])
    expect(login.stderr).toContain('work runs an image from before an upgrade')
    const again = await strongroom('up', at('work'), '--', ...ssh, 'echo in')
    expect([again.code, again.stdout, again.stderr]).toEqual([0, 'in\n', expect.stringContaining('before an upgrade')])
    expect(recordOf('work')).toMatchObject({ image, gatewayImage })

    // The host starts a VM of the earlier image, which may have known faults.
    const other = await strongroom('up', 'other', '--no-login')
    expect([other.code, other.stderr]).toEqual([6, expect.stringContaining('VERDICT: FAIL')])
    expect(recordOf('other').image).toBeUndefined()
    // An option goes before what was kept.
    const pinned = await strongroom('ssh', 'work', '--image', join(home, 'instance.json'))
    expect([pinned.code, pinned.stderr]).toEqual([6, expect.stringContaining('VERDICT: FAIL')])
  }, 120_000)

  test('goal: a new VM of the earlier image under the old host name is refused, by up and by ssh', async () => {
    expect((await strongroom('up', 'work', '--no-login')).code).toBe(0)
    expect((await upgrade()).code).toBe(0)
    const { hostname, hostKey } = recordOf('work')
    expect(hostKey).toBe(server?.hostKey.split(' ').slice(0, 2).join(' '))
    // The host ended the verified VM, which had another key, and started this one.
    const verified = `ssh-ed25519 ${Buffer.from(`\0\0\0\x0bssh-ed25519\0\0\0 ${'k'.repeat(32)}`).toString('base64')}`
    writeFileSync(config('instances/work.json'), JSON.stringify({ ...recordOf('work'), hostKey: verified }))
    const before = readFileSync(config(`snapshots/${hostname}.json`), 'utf8')
    for (const argv of [
      ['up', 'work', '--no-login'],
      ['ssh', at('work'), '--', ...ssh, 'echo in'],
    ]) {
      const { code, stdout, stderr } = await strongroom(...argv)
      expect([code, stdout]).toEqual([6, ''])
      expect(stderr).toContain('VERDICT: FAIL')
      expect(stderr).toContain('in another VM than the one that was verified')
      expect(stderr).not.toContain('--image')
    }
    // The rollback memory is that of the verified VM, and so are the images.
    expect(readFileSync(config(`snapshots/${hostname}.json`), 'utf8')).toBe(before)
    expect(recordOf('work').hostKey).toBe(verified)
    // A record of an earlier release has no key: no VM counts.
    const { hostKey: _, ...rest } = recordOf('work')
    writeFileSync(config('instances/work.json'), JSON.stringify(rest))
    expect((await strongroom('ssh', at('work'))).code).toBe(6)
  }, 120_000)

  test('goal: without a kept image the refusal has whole commands, which work, and from then on it is kept', async () => {
    expect((await strongroom('up', 'work', '--no-login')).code).toBe(0)
    const { image, gatewayImage, ...rest } = recordOf('work')
    writeFileSync(config('instances/work.json'), JSON.stringify(rest), { mode: 0o600 })
    expect((await upgrade()).code).toBe(0)

    const refused = await strongroom('ssh', at('work'))
    expect([refused.code, refused.stdout]).toEqual([6, ''])
    expect(refused.stderr).toContain(`it is an image that you expected earlier, ${config(image)}`)
    const [, prepared = ''] = /^(?:try next)? +(strongroom verify policy-example .*)$/m.exec(refused.stderr) ?? []
    expect(prepared).toBe(`strongroom verify policy-example --image ${config(gatewayImage)} > gateway.json`)
    const [, next = ''] = /^ +(strongroom ssh .*--image .*)$/m.exec(refused.stderr) ?? []
    expect(next).toBe(`strongroom ssh ${at('work')} --image ${config(image)} --gateway-policy gateway.json`)

    const policy = await strongroom(...prepared.split(' ').slice(1, -2))
    writeFileSync(join(home, 'gateway.json'), policy.stdout)
    const words = next.split(' ').slice(1)
    words[words.length - 1] = join(home, 'gateway.json')
    const login = await strongroom(...words, '--', ...ssh, 'echo in')
    expect([login.stdout, login.code]).toEqual(['in\n', 0])
    expect(recordOf('work').image).toBe(image)
  }, 120_000)

  test('goal: a stored manifest that was changed counts for nothing', async () => {
    expect((await strongroom('up', 'work', '--no-login')).code).toBe(0)
    const path = config(recordOf('work').image)
    writeFileSync(path, `${readFileSync(path, 'utf8')} `, { mode: 0o600 })
    expect((await upgrade()).code).toBe(0)
    const { code, stderr } = await strongroom('ssh', 'work')
    expect([code, stderr.includes('expected earlier')]).toEqual([6, false])
  }, 120_000)
})
