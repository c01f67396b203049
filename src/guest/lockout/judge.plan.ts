// Whether anyone but the owner has a way into this VM: one check for each way. Pure.

import { type Check, check, fail, notChecked, pass } from '../../attest/verdict.ts'
import { publicTlsPort } from '../../contract/vm/orders/published.ts'
import { keyDigest } from '../claim-record.ts'
import type { LockoutFacts } from './facts.ts'

type LockoutQuestion = {
  readonly facts: LockoutFacts
  /** SHA-256 of the owner's key in hexadecimal, as the verified claim has it; null when there is no verified claim. */
  readonly publicKeyDigest: string | null
}

/** Always the same checks in the same order. */
export function judgeLockout({ facts, publicKeyDigest }: LockoutQuestion): Check[] {
  return [
    accounts(facts),
    passwords(facts),
    authorizedKeys(facts, publicKeyDigest),
    sshdConfiguration(facts),
    sshdProcess(facts),
    consoles(facts),
    sockets(facts),
    agentChannel(facts),
    commandLine(facts),
    modules(facts),
    lockdown(facts),
    debugInterfaces(facts),
  ]
}

const loginName = 'agent'
const loginUid = 1000
/** The filter drops packets from outside to its ports (guest-image: usr/lib/strongroom/reach). */
const brokerUid = 901
const noShell = /\/(nologin|false|sync)$/

function accounts({ passwd }: LockoutFacts): Check {
  const rows = passwd.split('\n').filter(line => line !== '')
  const wrong = rows.flatMap(row => {
    const [name = '', , uid = '', , , , shell = ''] = row.split(':')
    if (name === 'root' && uid === '0') return []
    if (name === loginName && uid === String(loginUid)) return []
    if (Number(uid) === 0 || uid === '') return [`${name} is another root`]
    return shell !== '' && noShell.test(shell) ? [] : [`${name} has the shell ${shell === '' ? '/bin/sh' : shell}`]
  })
  const isThere = rows.some(row => row.startsWith(`${loginName}:`))
  return verdictOf('accounts', isThere ? wrong : ['the login user is missing'], `only ${loginName} can log in`)
}

function passwords(facts: LockoutFacts): Check {
  if (facts.passwords.length === 0) return notChecked('passwords', '/etc/shadow cannot be read', true)
  const wrong = facts.passwords.filter(entry => entry.password !== 'none')
  return verdictOf(
    'passwords',
    wrong.map(entry => `${entry.name} has ${entry.password === 'set' ? 'a password' : 'an empty password'}`),
    'no account has one',
  )
}

function authorizedKeys({ authorizedKeys: text, orderedKeys }: LockoutFacts, expected: string | null): Check {
  const name = 'authorized-keys'
  if (text === null) return notChecked(name, 'there is no claim', true)
  const lines = text.split('\n').filter(line => line.trim() !== '' && !line.startsWith('#'))
  if (lines.length === 0) return fail(name, 'no key can log in')
  if (!lines.every(line => /^(ssh|ecdsa|sk)-\S+ [A-Za-z0-9+/]+={0,2}( |$)/.test(line))) {
    return fail(name, 'options precede the key')
  }
  const found = lines.map(keyDigest).join(', ')
  if (orderedKeys !== null) {
    const reason = `the keys are ${found}, which orders of the owner did not set`
    return check(
      name,
      text === orderedKeys,
      reason,
      `the ${lines.length} that signed orders of the owner have set: ${found}`,
    )
  }
  if (lines.length !== 1) return fail(name, `${lines.length} keys can log in, not only the owner's`)
  if (expected === null) return notChecked(name, 'there is no verified claim to compare with', true)
  return check(name, found === expected, `the key is ${found}, the claim has ${expected}`, "only the claim's key")
}

/** sshd_config(5), as `sshd -T` prints it. */
const SSHD = {
  allowusers: loginName,
  authenticationmethods: 'publickey',
  authorizedkeyscommand: 'none',
  authorizedkeysfile: '/run/strongroom/authorized_keys',
  authorizedprincipalscommand: 'none',
  authorizedprincipalsfile: 'none',
  hostbasedauthentication: 'no',
  hostkey: '/run/strongroom/ssh_host_ed25519_key',
  kbdinteractiveauthentication: 'no',
  passwordauthentication: 'no',
  permitemptypasswords: 'no',
  permitrootlogin: 'no',
  permittunnel: 'no',
  permituserenvironment: 'no',
  pubkeyauthentication: 'yes',
  strictmodes: 'yes',
  trustedusercakeys: 'none',
  usepam: 'no',
} as const satisfies Record<string, string>

function sshdConfiguration({ sshd }: LockoutFacts): Check {
  const name = 'sshd-configuration'
  if (!sshd.ok) return notChecked(name, `sshd -T: ${sshd.text.slice(0, 200)}`, true)
  const settings = Map.groupBy(
    sshd.text.split('\n').filter(line => line !== ''),
    line => line.split(' ')[0] ?? '',
  )
  const wrong = Object.entries(SSHD).flatMap(([key, value]) => {
    const found = (settings.get(key) ?? []).map(line => line.slice(key.length + 1))
    return found.length === 1 && found[0] === value
      ? []
      : [`${key} is ${found.join(' and ') || 'not set'}, not ${value}`]
  })
  return verdictOf(name, wrong, 'one key of one user, and no other way to log in')
}

/** The measured configuration file applies, unless an option on the command line overrides it. */
function sshdProcess({ sshdTitles }: LockoutFacts): Check {
  const name = 'sshd-process'
  if (sshdTitles.length === 0) return notChecked(name, 'sshd is not listening', true)
  const wrong = sshdTitles.filter(title => !/^sshd: \/usr\/sbin\/sshd -D -e \[listener\]/.test(title))
  return verdictOf(
    name,
    [...wrong, ...(sshdTitles.length > 1 ? [`${sshdTitles.length} of them are listening`] : [])],
    'one, with the measured configuration',
  )
}

function consoles({ consoleReaders }: LockoutFacts): Check {
  const wrong = consoleReaders.map(reader => `${reader.title || `process ${reader.pid}`} reads ${reader.device}`)
  return verdictOf('consoles', [...new Set(wrong)], 'no process reads one')
}

const sshPort = 22

/** User of the process that serves published ports. Root's process starts it after an order of the owner alone. */
const publishedUid = 903

/** Sockets of the login user are the owner's own, and so is that of published ports. */
function sockets(facts: LockoutFacts): Check {
  const outside = facts.sockets.filter(socket => !isLoopback(socket.address))
  const isAt = ({ protocol, port }: LockoutFacts['sockets'][number], at: number) => isTcp(protocol) && port === at
  const own = outside.filter(socket => {
    return socket.uid === loginUid || (socket.uid === publishedUid && isAt(socket, publicTlsPort))
  })
  const wrong = outside.filter(socket => !own.includes(socket) && socket.uid !== brokerUid && !isAt(socket, sshPort))
  const also = own.length === 0 ? '' : `; of the owner's programs: ${own.map(portText).join(', ')}`
  return verdictOf('listening-sockets', wrong.map(portText), `only SSH${also}`)
}

function portText({ protocol, port, uid }: LockoutFacts['sockets'][number]): string {
  return `${protocol} port ${port} of user ${uid}`
}

function isTcp(protocol: string): boolean {
  return protocol === 'tcp' || protocol === 'tcp6'
}

/** Addresses as /proc has them: 32-bit words, each little-endian. ::1 and ::ffff:127.0.0.0/104 too. */
function isLoopback(address: string): boolean {
  if (address.length === 8) return address.endsWith('7F')
  const mapped = '0000000000000000FFFF0000'
  return address === '00000000000000000000000001000000' || (address.startsWith(mapped) && address.endsWith('7F'))
}

/**
 * After the claim the host can request identity, the same addresses and claim again, evidence, and shutdown, give its
 * count of the egress, ask whether the idle time is over, have the owner's files encrypted to the owner and sent, and
 * offer such a ciphertext to a session of the owner, which alone can open it. It hands in certificates for keys of
 * published ports, which the VM has made.
 */
const expectedOps = 'hello network claim evidence receipt egress idle snapshot restore certificate shutdown'.split(' ')

function agentChannel({ agentOps }: LockoutFacts): Check {
  const wrong = agentOps.filter(op => !expectedOps.includes(op))
  return verdictOf(
    'agent-channel',
    wrong.map(op => `the host can ask for ${op}`),
    `${agentOps.join(', ')}; none shows the host data of a claimed VM, or changes it`,
  )
}

const FORBIDDEN_WORDS = [
  /^(debug|single|s|1|emergency|rescue|nokaslr|kgdbwait|ignore_loglevel|nolockdown)$/i,
  /^(init|kgdboc|kgdbcon|kgdbdbgp|earlyprintk|earlycon|netconsole|systemd\.debug[-_]shell|strongroom\.debug)(=|$)/,
  // The kernel takes the last of several.
  /^lockdown=(?!confidentiality$)/,
  /^debugfs=(?!off$)/,
  /^module\.sig_enforce=(?!1$)/,
  /^pci=(?!noacpi$)/,
  /^acpi(=|_|\.)/,
  /^console=(?!ttyS0$|ttyS0,)/,
  /^rdinit=(?!\/init$)/,
]
/** Without these the kernel runs or reads the host's ACPI tables, or loads foreign code. In the image's recipe too. */
const REQUIRED_WORDS = [
  'initcall_blacklist=acpi_init',
  'pci=noacpi',
  'erst_disable',
  'bert_disable',
  'hest_disable',
  'module.sig_enforce=1',
  'lockdown=confidentiality',
  'debugfs=off',
]

function commandLine({ commandLine: text }: LockoutFacts): Check {
  const words = text.split(/\s+/).filter(word => word !== '')
  const wrong = words.filter(word => FORBIDDEN_WORDS.some(pattern => pattern.test(word)))
  const missing = REQUIRED_WORDS.filter(word => !words.includes(word)).map(word => `${word} is missing`)
  return verdictOf('kernel-command-line', [...wrong, ...missing], 'no debugging, no other init, no other console')
}

/** Documentation/admin-guide/tainted-kernels.rst: forced, out-of-tree and unsigned modules. */
const TAINTED_BY_MODULES = (1 << 1) | (1 << 12) | (1 << 13)

function modules(facts: LockoutFacts): Check {
  const { tainted, measuredModules } = facts
  const name = 'kernel-modules'
  if (measuredModules.length === 0) return notChecked(name, 'the list of measured modules cannot be read', true)
  if (tainted === null || !/^[0-9]+$/.test(tainted))
    return notChecked(name, 'the taint flags of the kernel cannot be read', true)
  const strange = facts.modules.filter(module => !measuredModules.includes(module.replaceAll('-', '_')))
  const isTainted = (Number(tainted) & TAINTED_BY_MODULES) !== 0
  return verdictOf(
    name,
    [...strange, ...(isTainted ? [`the kernel is tainted by a module (${tainted})`] : [])],
    `${facts.modules.length} are loaded, all from the measured image`,
  )
}

/** The bracketed word of `none [integrity] confidentiality`. */
function lockdownMode(lockdown: string | null): string | null {
  return lockdown === null ? null : (/\[([a-z]+)\]/.exec(lockdown)?.[1] ?? null)
}

function lockdown(facts: LockoutFacts): Check {
  const name = 'kernel-lockdown'
  const mode = lockdownMode(facts.lockdown)
  if (mode === null) return notChecked(name, '/sys/kernel/security/lockdown cannot be read', true)
  return check(name, mode === 'integrity' || mode === 'confidentiality', `the kernel is not locked down: ${mode}`, mode)
}

function debugInterfaces({ mountTypes, kgdb, sysrq, hasMemoryDevice, lockdown: text }: LockoutFacts): Check {
  const mode = lockdownMode(text)
  const isLocked = mode === 'integrity' || mode === 'confidentiality'
  const wrong = [
    ...mountTypes.filter(type => type === 'debugfs' || type === 'tracefs').map(type => `${type} is mounted`),
    ...(kgdb !== null && kgdb !== '' ? [`kgdb listens on ${kgdb}`] : []),
    ...(sysrq === '0' ? [] : [`sysrq is ${sysrq ?? 'unknown'}, not 0`]),
    ...(hasMemoryDevice && !isLocked ? ['/dev/mem or /dev/port exists, and the kernel is not locked down'] : []),
  ]
  return verdictOf('debug-interfaces', wrong, 'none is open')
}

function verdictOf(name: string, wrong: readonly string[], good: string): Check {
  return wrong.length === 0 ? pass(name, good) : fail(name, wrong.join('; ').slice(0, 500))
}
