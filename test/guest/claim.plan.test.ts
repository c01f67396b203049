import { expect, test } from 'bun:test'
import { attestedGateway, gatewayCa, makeClaim } from '../../scripts/rigs/guest/root.ts'
import type { Claim } from '../../src/contract/vm/claim.ts'
import { claimLeftovers, claimProblem, planClaim } from '../../src/guest/claim.plan.ts'
import { guestPaths } from '../../src/guest/paths.ts'

const publicKey = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJyYRtEcQ//c1azaVPtc4hxiZIPziSkIu26dzwyWS+B+'
const paths = guestPaths('')
const key = 'gw_0a1b2c3d_0123456789abcdefghijklmnopqrstuv'
const unattested = { kind: 'unattested', why: 'host', ca: null } as const

const inferenceOf = (changes: Partial<Claim['inference']>): Pick<Claim, 'inference'> => ({
  inference: { baseUrl: 'https://h/v1', model: 'm', address: null, gateway: unattested, drawsKey: false, ...changes },
})

// Goal: what a claim writes, to the byte, with owner and mode.
test('the plan of a claim with a gateway', () => {
  const plan = planClaim(makeClaim(publicKey), { paths, platform: 'none', key })
  expect(plan.hostname).toBe('abcd1234')
  expect(plan.directories).toEqual([
    { path: '/home/agent/.config', mode: 0o700 },
    { path: '/home/agent/.config/opencode', mode: 0o700 },
    { path: '/home/agent/.config/opencode/node_modules', mode: 0o700 },
    { path: '/run/strongroom/own-gateway', mode: 0o755 },
  ])
  expect(plan.files.map(({ path, mode, owner }) => `${path} ${mode.toString(8)} ${owner}`)).toEqual([
    '/home/agent/.config/opencode/inference.key 600 login',
    '/run/strongroom/gateway.json 644 system',
    '/etc/motd 644 system',
    '/run/strongroom/sshd_environment.conf 600 system',
    '/etc/hostname 644 system',
    '/etc/hosts 644 system',
    '/home/agent/.config/opencode/opencode.json 600 login',
    '/home/agent/.config/opencode/package-lock.json 644 login',
    '/run/strongroom/authorized_keys 644 system',
  ])
  const texts = plan.files.filter(({ path }) => path !== paths.motd).map(({ content }) => content)
  expect(texts).toEqual([
    `${key}\n`,
    JSON.stringify({
      baseUrl: 'http://gateway.example.test:8442/v1',
      gateway: { kind: 'unattested', why: 'host', ca: gatewayCa },
      platform: 'none',
    }),
    'SetEnv "OPENAI_BASE_URL=http://127.0.0.1:18442/v1" "ANTHROPIC_BASE_URL=http://127.0.0.1:18442" ' +
      `"OPENAI_API_KEY=${key}" "ANTHROPIC_API_KEY=${key}" "OPENCODE_DISABLE_AUTOUPDATE=1" ` +
      '"OPENCODE_DISABLE_DEFAULT_PLUGINS=1" "OPENCODE_DISABLE_LSP_DOWNLOAD=1" "OPENCODE_DISABLE_MODELS_FETCH=1"\n',
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
        "baseURL": "http://127.0.0.1:18442/v1",
        "apiKey": "{file:./inference.key}"
      },
      "models": {
        "vendor/model-1": {
          "name": "vendor/model-1",
          "limit": {
            "context": 32768,
            "output": 4096
          }
        }
      }
    }
  }
}
`,
    '{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}\n',
    `${publicKey}\n`,
  ])
})

// Goal: without a key no key file is named or written; without a gateway no provider is.
test('the plan of a claim without key or gateway', () => {
  const keyless = planClaim(
    makeClaim(publicKey, {
      inference: { baseUrl: 'http://192.0.2.1/v1', model: 'm', address: null, gateway: unattested, drawsKey: false },
    }),
    { paths, platform: 'none', key: null },
  )
  expect(keyless.files.map(file => file.path)).not.toContain('/home/agent/.config/opencode/inference.key')
  expect(keyless.files.some(file => file.content.includes('apiKey') || file.content.includes('"plugin"'))).toBe(false)
  const noGateway = { baseUrl: '', model: '', address: null, gateway: { kind: 'none' }, drawsKey: false } as const
  const bare = planClaim(makeClaim(publicKey, { inference: noGateway }), { paths, platform: 'none', key: null })
  expect(bare.files.find(file => file.path.endsWith('opencode.json'))?.content).toBe(`{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false,
  "share": "disabled"
}
`)
})

// Goal: the packaged agent gets the model's real context, and leaves seven eighths of it to the prompt.
test('a context that the host knows', () => {
  const inference = { ...makeClaim(publicKey).inference, contextTokens: 16_384 }
  const { files } = planClaim(makeClaim(publicKey, { inference }), { paths, platform: 'none', key })
  const config = files.find(file => file.path.endsWith('opencode.json'))?.content ?? ''
  const { models } = JSON.parse(config).provider.strongroom
  expect(models['vendor/model-1'].limit).toEqual({ context: 16_384, output: 2048 })
})

// Goal: all files of a claim below the login user's home and for sshd are on the list that an undo after a crash uses.
test('leftovers', () => {
  const lasting = planClaim(makeClaim(publicKey), { paths, platform: 'none', key }).files.filter(
    file => !file.path.startsWith('/etc/'),
  )
  // Written later: by the owner, and for a policy.
  const later = [paths.ownGateway, paths.brokerState]
  expect(claimLeftovers(paths).sort()).toEqual([...lasting.map(file => file.path), ...later].sort())
})

// Goal: the key kinds of the API are taken, with and without a comment.
test.each([
  publicKey,
  `${publicKey} someone@somewhere or other`,
  'ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTY=',
  'ssh-rsa AAAAB3NzaC1yc2EAAAADAQAB',
  'sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29t',
])('takes %s', line => {
  expect(claimProblem(makeClaim(line), 'none')).toBeNull()
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
  expect(claimProblem(makeClaim(line), 'none')).toBe('claim.publicKey: not one OpenSSH public key')
})

// Goal: names and addresses that would break out of their file or mislead are refused, and the refusal does not repeat
// them.
test.each([
  [{ hostname: '' }, 'claim.hostname: not a valid host name'],
  [{ hostname: 'a b' }, 'claim.hostname: not a valid host name'],
  [{ hostname: 'a\n127.0.0.1 b' }, 'claim.hostname: not a valid host name'],
  [{ hostname: '-a' }, 'claim.hostname: not a valid host name'],
  [{ hostname: 'a..b' }, 'claim.hostname: not a valid host name'],
  [inferenceOf({ baseUrl: 'file:///etc/shadow' }), 'claim.inference.baseUrl: not an http or https address'],
  [inferenceOf({ baseUrl: 'http://u:p@h/' }), 'claim.inference.baseUrl: not an http or https address'],
  [inferenceOf({ baseUrl: 'http://h/\n' }), 'claim.inference.baseUrl: not an http or https address'],
  [inferenceOf({ model: '' }), 'claim.inference.model: not a model name'],
  [
    inferenceOf({ baseUrl: '', gateway: { kind: 'none' }, drawsKey: true }),
    'claim.inference.drawsKey: without a baseUrl',
  ],
  [inferenceOf({ baseUrl: '' }), 'claim.inference.gateway: without a baseUrl'],
  [inferenceOf({ gateway: { kind: 'none' } }), 'claim.inference.gateway: none, but there is a baseUrl'],
  [inferenceOf({ gateway: { ...unattested, ca: 'not PEM' } }), 'claim.inference.gateway.ca: not PEM certificates'],
  [
    inferenceOf({ gateway: { ...attestedGateway, simulatedRoot: 'not PEM' } }),
    'claim.inference.gateway.simulatedRoot: not PEM certificates',
  ],
  [
    inferenceOf({ gateway: { ...attestedGateway, operatorKey: '00'.repeat(48) } }),
    'claim.inference.gateway.operatorKey: zeros, as every guest without an ID block reports',
  ],
  [
    inferenceOf({ baseUrl: 'http://h/v1', gateway: attestedGateway }),
    'claim.inference.gateway.kind: attested, and baseUrl is not https',
  ],
])('refuses %j', (change, problem) => {
  expect(claimProblem(makeClaim(publicKey, change), 'none')).toBe(problem)
})

// Goal: a simulated root counts only if this VM has no hardware either; nothing in a claim can loosen the checks.
test('a simulated root', () => {
  const simulated = makeClaim(publicKey, inferenceOf({ gateway: { ...attestedGateway, simulatedRoot: gatewayCa } }))
  expect(claimProblem(simulated, 'none')).toBeNull()
  expect(claimProblem(simulated, 'snp')).toBe('claim.inference.gateway.simulatedRoot: this VM has a report device')
  expect(claimProblem(makeClaim(publicKey, inferenceOf({ gateway: attestedGateway })), 'snp')).toBeNull()
})
