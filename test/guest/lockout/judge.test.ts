import { describe, expect, test } from 'bun:test'
import { keyDigest } from '../../../src/guest/claim-record.ts'
import type { LockoutFacts } from '../../../src/guest/lockout/facts.ts'
import { judgeLockout } from '../../../src/guest/lockout/judge.plan.ts'

/** The image's recipe, with which the judge has to agree. */
const recipe: { kernelArguments: string[] } = await Bun.file(
  new URL('../../../guest-image/recipes/instance/recipe.json', import.meta.url),
).json()

const key = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI${'A'.repeat(43)}`
const otherKey = `ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI${'B'.repeat(43)}`
const sshd = [
  'port 22',
  'allowusers agent',
  'authenticationmethods publickey',
  'authorizedkeyscommand none',
  'authorizedkeysfile /run/strongroom/authorized_keys',
  'authorizedprincipalscommand none',
  'authorizedprincipalsfile none',
  'hostbasedauthentication no',
  'hostkey /run/strongroom/ssh_host_ed25519_key',
  'kbdinteractiveauthentication no',
  'passwordauthentication no',
  'permitemptypasswords no',
  'permitrootlogin no',
  'permittunnel no',
  'permituserenvironment no',
  'pubkeyauthentication yes',
  'strictmodes yes',
  'trustedusercakeys none',
  'usepam no',
]
const title = 'sshd: /usr/sbin/sshd -D -e [listener] 0 of 10-100 startups'
const passwd = [
  'root:x:0:0:root:/root:/bin/bash',
  'daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin',
  'sync:x:4:65534:sync:/bin:/bin/sync',
  'agent:x:1000:1000::/home/agent:/bin/bash',
]

const good: LockoutFacts = {
  passwd: `${passwd.join('\n')}\n`,
  passwords: [
    { name: 'root', password: 'none' },
    { name: 'agent', password: 'none' },
  ],
  authorizedKeys: `${key}\n`,
  orderedKeys: null,
  sshd: { ok: true, text: `${sshd.join('\n')}\n` },
  sshdTitles: [title],
  consoleReaders: [],
  sockets: [
    { protocol: 'tcp', address: '00000000', port: 22, uid: 0 },
    { protocol: 'tcp6', address: '0'.repeat(32), port: 22, uid: 0 },
    { protocol: 'tcp', address: '0100007F', port: 631, uid: 0 },
    { protocol: 'tcp6', address: '00000000000000000000000001000000', port: 631, uid: 0 },
  ],
  agentOps: [
    'hello',
    'network',
    'claim',
    'evidence',
    'receipt',
    'egress',
    'idle',
    'snapshot',
    'restore',
    'certificate',
    'shutdown',
  ],
  commandLine: `${recipe.kernelArguments.join(' ')} strongroom.root_hash=ab`,
  modules: ['virtio_net', 'dm_verity'],
  measuredModules: ['dm_verity', 'virtio_net', 'ext4'],
  tainted: '0',
  lockdown: 'none integrity [confidentiality]',
  mountTypes: ['proc', 'sysfs', 'overlay', 'securityfs'],
  sysrq: '0',
  kgdb: null,
  hasMemoryDevice: true,
}

function outcomes(changes: Partial<LockoutFacts>, publicKeyDigest: string | null = keyDigest(key)) {
  const checks = judgeLockout({ facts: { ...good, ...changes }, publicKeyDigest })
  expect(checks).toHaveLength(12)
  return Object.fromEntries(
    checks.filter(check => check.outcome !== 'pass').map(check => [check.name, `${check.outcome}: ${check.reason}`]),
  )
}

function sshdWith(setting: string) {
  const name = `${setting.split(' ')[0]} `
  return { sshd: { ok: true, text: [...sshd.filter(line => !line.startsWith(name)), setting].join('\n') } }
}

// Goal: the image as it is passes every look.
test('a closed VM', () => {
  expect(outcomes({})).toEqual({})
})

// Goal: keys that orders of the owner have set are let in, whatever the claim has.
test('several keys', () => {
  const keys = `${key}\n${otherKey}\n`
  expect(outcomes({ authorizedKeys: keys, orderedKeys: keys })).toEqual({})
  expect(outcomes({ authorizedKeys: `${otherKey}\n`, orderedKeys: `${otherKey}\n` })).toEqual({})
})

describe('planted', () => {
  // Goal: each way in, planted alone, fails exactly its own look, by name.
  test.each([
    [
      'another root',
      { passwd: `${good.passwd}toor:x:0:0::/root:/usr/sbin/nologin\n` },
      'accounts',
      'toor is another root',
    ],
    [
      'a second shell',
      { passwd: `${good.passwd}help:x:1001:1001::/:/bin/sh\n` },
      'accounts',
      'help has the shell /bin/sh',
    ],
    ['no shell named', { passwd: `${good.passwd}help:x:1001:1001::/:\n` }, 'accounts', 'help has the shell /bin/sh'],
    [
      'another login user',
      { passwd: good.passwd.replace('agent:x:1000', 'agent:x:0') },
      'accounts',
      'agent is another root',
    ],
    ['a password', { passwords: [{ name: 'root', password: 'set' }] }, 'passwords', 'root has a password'],
    [
      'an empty password',
      { passwords: [{ name: 'agent', password: 'empty' }] },
      'passwords',
      'agent has an empty password',
    ],
    [
      'a second key',
      { authorizedKeys: `${key}\n${key} other\n` },
      'authorized-keys',
      "2 keys can log in, not only the owner's",
    ],
    [
      'a key that no order has set',
      { authorizedKeys: `${key}\n${otherKey}\n`, orderedKeys: `${key}\n` },
      'authorized-keys',
      'which orders of the owner did not set',
    ],
    ['no key', { authorizedKeys: '\n' }, 'authorized-keys', 'no key can log in'],
    ['a command', { authorizedKeys: `command="id" ${key}\n` }, 'authorized-keys', 'options precede the key'],
    [
      'password logins',
      sshdWith('passwordauthentication yes'),
      'sshd-configuration',
      'passwordauthentication is yes, not no',
    ],
    [
      'root logins',
      sshdWith('permitrootlogin prohibit-password'),
      'sshd-configuration',
      'permitrootlogin is prohibit-password, not no',
    ],
    [
      'a second file of keys',
      sshdWith('authorizedkeysfile .ssh/authorized_keys /run/strongroom/authorized_keys'),
      'sshd-configuration',
      'authorizedkeysfile is .ssh',
    ],
    [
      'a command for keys',
      sshdWith('authorizedkeyscommand /bin/keys'),
      'sshd-configuration',
      'authorizedkeyscommand is /bin/keys',
    ],
    [
      'an authority of keys',
      sshdWith('trustedusercakeys /etc/ca'),
      'sshd-configuration',
      'trustedusercakeys is /etc/ca',
    ],
    ['any user', sshdWith('allowusers agent help'), 'sshd-configuration', 'allowusers is agent help'],
    [
      'a second host key',
      { sshd: { ok: true, text: `${sshd.join('\n')}\nhostkey /etc/ssh/other\n` } },
      'sshd-configuration',
      'and /etc/ssh/other',
    ],
    [
      'an option of sshd',
      { sshdTitles: ['sshd: /usr/sbin/sshd -D -e -o UsePAM=yes [listener] 0'] },
      'sshd-process',
      'UsePAM=yes',
    ],
    ['a second sshd', { sshdTitles: [title, title] }, 'sshd-process', '2 of them are listening'],
    [
      'a console shell',
      { consoleReaders: [{ pid: 9, title: 'sh -i', device: '/dev/ttyS0' }] },
      'consoles',
      'sh -i reads /dev/ttyS0',
    ],
    [
      'telnet',
      { sockets: [{ protocol: 'tcp', address: '00000000', port: 23, uid: 0 }] },
      'listening-sockets',
      'tcp port 23 of user 0',
    ],
    [
      'another server at the port of published ports',
      { sockets: [{ protocol: 'tcp', address: '00000000', port: 443, uid: 0 }] },
      'listening-sockets',
      'tcp port 443 of user 0',
    ],
    [
      'another port of the process of published ports',
      { sockets: [{ protocol: 'tcp', address: '00000000', port: 8443, uid: 903 }] },
      'listening-sockets',
      'tcp port 8443 of user 903',
    ],
    [
      'SSH over UDP',
      { sockets: [{ protocol: 'udp', address: '0F02000A', port: 22, uid: 0 }] },
      'listening-sockets',
      'udp port 22 of user 0',
    ],
    ['an op', { agentOps: [...good.agentOps, 'exec'] }, 'agent-channel', 'the host can ask for exec'],
    ['another init', { commandLine: `${good.commandLine} init=/bin/sh` }, 'kernel-command-line', 'init=/bin/sh'],
    [
      'another first init',
      { commandLine: good.commandLine.replace('/init', '/bin/sh') },
      'kernel-command-line',
      'rdinit=/bin/sh',
    ],
    ['single user', { commandLine: `${good.commandLine} single` }, 'kernel-command-line', 'single'],
    ['another console', { commandLine: `${good.commandLine} console=hvc0` }, 'kernel-command-line', 'console=hvc0'],
    ['kgdb', { commandLine: `${good.commandLine} kgdboc=ttyS0` }, 'kernel-command-line', 'kgdboc=ttyS0'],
    [
      'unsigned modules',
      { commandLine: good.commandLine.replace('module.sig_enforce=1', '') },
      'kernel-command-line',
      'module.sig_enforce=1 is missing',
    ],
    ['a module', { modules: [...good.modules, 'rootkit'] }, 'kernel-modules', 'rootkit'],
    ['a forced module', { tainted: '2' }, 'kernel-modules', 'tainted by a module (2)'],
    ['debugfs', { mountTypes: [...good.mountTypes, 'debugfs'] }, 'debug-interfaces', 'debugfs is mounted'],
    ['a waiting kgdb', { kgdb: 'ttyS0' }, 'debug-interfaces', 'kgdb listens on ttyS0'],
    ['sysrq', { sysrq: '176' }, 'debug-interfaces', 'sysrq is 176, not 0'],
  ] as const)('%s', (_what, changes, name, reason) => {
    const found = outcomes(changes as Partial<LockoutFacts>)
    expect(Object.keys(found)).toEqual([name])
    expect(found[name]).toStartWith('fail: ')
    expect(found[name]).toContain(reason)
  })

  // Goal: each setting of sshd that keeps others out is compared, and a weaker value of it alone fails the look.
  test.each([
    ['pubkeyauthentication no', 'pubkeyauthentication is no, not yes'],
    ['allowusers agent help', 'allowusers is agent help, not agent'],
    ['authenticationmethods any', 'authenticationmethods is any, not publickey'],
    ['authorizedkeyscommand /bin/keys', 'authorizedkeyscommand is /bin/keys, not none'],
    ['authorizedkeysfile /etc/keys', 'authorizedkeysfile is /etc/keys, not /run/strongroom/authorized_keys'],
    ['authorizedprincipalscommand /bin/p', 'authorizedprincipalscommand is /bin/p, not none'],
    ['authorizedprincipalsfile /etc/p', 'authorizedprincipalsfile is /etc/p, not none'],
    ['hostbasedauthentication yes', 'hostbasedauthentication is yes, not no'],
    ['hostkey /etc/ssh/other', 'hostkey is /etc/ssh/other, not /run/strongroom/ssh_host_ed25519_key'],
    ['kbdinteractiveauthentication yes', 'kbdinteractiveauthentication is yes, not no'],
    ['passwordauthentication yes', 'passwordauthentication is yes, not no'],
    ['permitemptypasswords yes', 'permitemptypasswords is yes, not no'],
    ['permitrootlogin yes', 'permitrootlogin is yes, not no'],
    ['permittunnel yes', 'permittunnel is yes, not no'],
    ['permituserenvironment yes', 'permituserenvironment is yes, not no'],
    ['strictmodes no', 'strictmodes is no, not yes'],
    ['trustedusercakeys /etc/ca', 'trustedusercakeys is /etc/ca, not none'],
    ['usepam yes', 'usepam is yes, not no'],
  ] as const)('sshd with %s', (setting, reason) => {
    expect(outcomes(sshdWith(setting))).toEqual({ 'sshd-configuration': `fail: ${reason}` })
  })

  // Goal: recipe and judge agree on the words that keep the host's code and tables out; a new word of the recipe needs
  // a decision here.
  test('the words of the recipe', () => {
    const withoutLockout = [
      ...['console=ttyS0', 'quiet', 'loglevel=4', 'panic=-1', 'rdinit=/init', 'reboot=k', '8250.nr_uarts=1'],
      ...[
        'no_timer_check',
        'cryptomgr.notests=1',
        'initcall_blacklist=jent_mod_init',
        'rng_core.default_quality=0',
        'tpm_tis.force=1',
        'random.trust_cpu=on',
        'random.trust_bootloader=off',
        'init_on_alloc=1',
        'slab_nomerge',
      ],
      ...['page_alloc.shuffle=1', 'randomize_kstack_offset=on', 'vsyscall=none', 'ia32_emulation=0'],
    ]
    const depended = recipe.kernelArguments.filter(word => {
      const commandLine = recipe.kernelArguments.filter(other => other !== word).join(' ')
      const found = outcomes({ commandLine })
      if (found['kernel-command-line'] === undefined) return false
      expect(found).toEqual({ 'kernel-command-line': `fail: ${word} is missing` })
      return true
    })
    const decided = new Set([...depended, ...withoutLockout])
    expect(depended).toContain('initcall_blacklist=acpi_init')
    expect([...decided].sort()).toEqual([...recipe.kernelArguments].sort())
    expect(depended.length + withoutLockout.length).toBe(recipe.kernelArguments.length)
  })

  // Goal: a later word that undoes a required word is reported.
  test.each(['lockdown=integrity', 'debugfs=on', 'module.sig_enforce=0', 'pci=acpi', 'acpi=force', 'acpi_rsdp=0x1000'])(
    'undone by %s',
    word => {
      expect(outcomes({ commandLine: `${good.commandLine} ${word}` })).toEqual({
        'kernel-command-line': `fail: ${word}`,
      })
    },
  )

  // Goal: a kernel that is not locked down fails for that, and for its memory device.
  test('no lockdown', () => {
    expect(outcomes({ lockdown: '[none] integrity confidentiality' })).toEqual({
      'kernel-lockdown': 'fail: the kernel is not locked down: none',
      'debug-interfaces': 'fail: /dev/mem or /dev/port exists, and the kernel is not locked down',
    })
  })

  // Goal: another key than the claim's fails; without a verified claim nothing is said of it.
  test('another key', () => {
    expect(outcomes({}, 'ab'.repeat(32))['authorized-keys']).toStartWith('fail: the key is ')
    expect(outcomes({}, null)['authorized-keys']).toStartWith('not-checked: there is no verified claim')
  })

  // Goal: what cannot be seen is never taken for good.
  test('what cannot be seen', () => {
    const blind = outcomes({
      passwords: [],
      authorizedKeys: null,
      sshd: { ok: false, text: 'gone' },
      sshdTitles: [],
      measuredModules: [],
      lockdown: null,
      sysrq: null,
      hasMemoryDevice: false,
    })
    expect(Object.keys(blind)).toEqual([
      'passwords',
      'authorized-keys',
      'sshd-configuration',
      'sshd-process',
      'kernel-modules',
      'kernel-lockdown',
      'debug-interfaces',
    ])
    expect(outcomes({ passwd: '' }).accounts).toBe('fail: the login user is missing')
  })

  // Goal: sockets of the owner's own programs are reported and are no fault.
  test("the owner's programs", () => {
    const sockets = [...good.sockets, { protocol: 'tcp', address: '00000000', port: 8080, uid: 1000 }]
    const checks = judgeLockout({ facts: { ...good, sockets }, publicKeyDigest: keyDigest(key) })
    const found = checks.find(check => check.name === 'listening-sockets')
    expect(found).toMatchObject({
      outcome: 'pass',
      reason: "only SSH; of the owner's programs: tcp port 8080 of user 1000",
    })
  })

  // Goal: so is that of published ports, which an order of the owner opens.
  test('a published port', () => {
    const sockets = [...good.sockets, { protocol: 'tcp6', address: '0'.repeat(32), port: 443, uid: 903 }]
    const checks = judgeLockout({ facts: { ...good, sockets }, publicKeyDigest: keyDigest(key) })
    expect(checks.find(check => check.name === 'listening-sockets')).toMatchObject({
      outcome: 'pass',
      reason: "only SSH; of the owner's programs: tcp6 port 443 of user 903",
    })
  })
})
