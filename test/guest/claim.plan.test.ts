import { expect, test } from 'bun:test'
import { join } from 'node:path'
import { $ } from 'bun'
import { claimLeftovers, claimProblem, planClaim } from '../../src/guest/claim.plan.ts'
import { guestPaths } from '../../src/guest/paths.ts'
import { gatewayCa, makeClaim } from '../rigs/guest-root.ts'

const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyYRtEcQ//c1azaVPtc4hxiZIPziSkIu26dzwyWS+B+'
const paths = guestPaths('')

// Goal: what a claim writes, to the byte, with owner and mode.
test('the plan of a claim with a gateway', () => {
  const plan = planClaim(makeClaim(publicKey), paths)
  expect(plan.hostname).toBe('abcd1234')
  expect(plan.directories).toEqual(['/home/agent/.config', '/home/agent/.config/opencode'])
  expect(plan.files.map(({ path, mode, owner }) => `${path} ${mode.toString(8)} ${owner}`)).toEqual([
    '/home/agent/.config/opencode/inference.key 600 login',
    '/run/strongroom/gateway-ca.pem 644 system',
    '/etc/hostname 644 system',
    '/etc/hosts 644 system',
    '/home/agent/.config/opencode/opencode.json 600 login',
    '/run/strongroom/authorized_keys 644 system',
  ])
  expect(plan.files.map(file => file.content)).toEqual([
    'gw_00000000_secret\n',
    gatewayCa,
    'abcd1234\n',
    '127.0.0.1 localhost\n127.0.1.1 abcd1234.acme.example.test abcd1234\n::1 localhost\n192.0.2.1 gateway.example.test\n',
    `{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false,
  "share": "disabled",
  "enabled_providers": [
    "strongroom"
  ],
  "model": "strongroom/vendor/model-1",
  "small_model": "strongroom/vendor/model-1",
  "provider": {
    "strongroom": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "Strongroom",
      "options": {
        "baseURL": "http://gateway.example.test:8442/v1",
        "apiKey": "{file:./inference.key}"
      },
      "models": {
        "vendor/model-1": {
          "name": "vendor/model-1"
        }
      }
    }
  },
  "plugin": [
    "file:///usr/lib/strongroom/opencode-gateway.js"
  ]
}
`,
    `${publicKey}\n`,
  ])
})

// Goal: without a key no key file is named or written; without a gateway no provider is.
test('the plan of a claim without key or gateway', () => {
  const keyless = planClaim(
    makeClaim(publicKey, {
      inference: { baseUrl: 'http://192.0.2.1/v1', model: 'm', address: null, ca: null, key: null },
    }),
    paths,
  )
  expect(keyless.files.map(file => file.path)).not.toContain('/home/agent/.config/opencode/inference.key')
  expect(keyless.files.some(file => file.content.includes('apiKey') || file.content.includes('plugin'))).toBe(false)
  const bare = planClaim(
    makeClaim(publicKey, { inference: { baseUrl: '', model: '', address: null, ca: null, key: null } }),
    paths,
  )
  expect(bare.files.find(file => file.path.endsWith('opencode.json'))?.content).toBe(`{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false,
  "share": "disabled"
}
`)
})

// Goal: the authority of the claim is used by the packaged agent for its gateway alone: no session, no environment and no trust store has it.
test('who trusts the authority of the claim', async () => {
  const users =
    await $`grep --recursive --files-with-matches --extended-regexp ${'gateway-ca|NODE_EXTRA|SSL_CERT|CURL_CA'} .`
      .cwd(join(import.meta.dir, '../../guest-image/common'))
      .text()
  expect(users).toBe('./root/usr/lib/strongroom/opencode-gateway.js\n')
  const module = await Bun.file(join(import.meta.dir, '../../guest-image/common', users.trim())).text()
  expect(module).toContain(`'${paths.gatewayCa}'`)
  expect(module).not.toContain('process.env')
})

// Goal: whatever a claim leaves below the login user's home and for sshd is on the list that an undo after a crash goes by.
test('leftovers', () => {
  const lasting = planClaim(makeClaim(publicKey), paths).files.filter(file => !file.path.startsWith('/etc/'))
  expect(claimLeftovers(paths).sort()).toEqual(lasting.map(file => file.path).sort())
})

// Goal: the key kinds of the API are taken, with and without a comment.
test.each([
  publicKey,
  `${publicKey} someone@somewhere or other`,
  'ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY=',
  'ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB',
  'sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t',
])('takes %s', line => {
  expect(claimProblem(makeClaim(line))).toBeNull()
})

// Goal: no line can bring a second key, an option or a forced command; none of these reaches a file.
test.each([
  '',
  `${publicKey}\n${publicKey}`,
  `${publicKey}\r`,
  `command="id" ${publicKey}`,
  `restrict ${publicKey}`,
  publicKey.replace('ssh-ed25519', 'ssh-rsa'),
  publicKey.replace('ssh-ed25519', 'ssh-dss'),
  `${publicKey}=`,
  publicKey.replace(' ', '  '),
  `# ${publicKey}`,
  'ssh-ed25519',
  'ssh-ed25519 !',
  `${publicKey} tab\tcomment`,
])('refuses %j as a key', line => {
  expect(claimProblem(makeClaim(line))).toBe('claim.publicKey: not one OpenSSH public key')
})

// Goal: names and addresses that would break out of their file or mislead are refused, and the refusal does not repeat them.
test.each([
  [{ hostname: '' }, 'claim.hostname: not a host name'],
  [{ hostname: 'a b' }, 'claim.hostname: not a host name'],
  [{ hostname: 'a\n127.0.0.1 b' }, 'claim.hostname: not a host name'],
  [{ hostname: '-a' }, 'claim.hostname: not a host name'],
  [{ hostname: 'a..b' }, 'claim.hostname: not a host name'],
  [
    { inference: { baseUrl: 'file:///etc/shadow', model: 'm', address: null, ca: null, key: null } },
    'claim.inference.baseUrl: not an http or https address',
  ],
  [
    { inference: { baseUrl: 'http://u:p@h/', model: 'm', address: null, ca: null, key: null } },
    'claim.inference.baseUrl: not an http or https address',
  ],
  [
    { inference: { baseUrl: 'http://h/\n', model: 'm', address: null, ca: null, key: null } },
    'claim.inference.baseUrl: not an http or https address',
  ],
  [
    { inference: { baseUrl: 'http://h/', model: '', address: null, ca: null, key: null } },
    'claim.inference.model: not a model name',
  ],
  [
    { inference: { baseUrl: 'http://h/', model: 'm', address: null, ca: null, key: 'a\nb' } },
    'claim.inference.key: not a key',
  ],
  [
    { inference: { baseUrl: 'http://h/', model: 'm', address: null, ca: null, key: '' } },
    'claim.inference.key: not a key',
  ],
  [
    { inference: { baseUrl: '', model: '', address: null, ca: null, key: 'k' } },
    'claim.inference.key: without a baseUrl',
  ],
  [
    { inference: { baseUrl: 'http://h/', model: 'm', address: null, ca: 'not PEM', key: null } },
    'claim.inference.ca: not PEM certificates',
  ],
])('refuses %j', (change, problem) => {
  expect(claimProblem(makeClaim(publicKey, change))).toBe(problem)
})
