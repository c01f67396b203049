// The offer of a login in an instance: environment, tools, limits, a private root, and the packaged
// agent over a scripted upstream. Effects: ssh processes, a server on this host's loopback.

import { expect } from 'bun:test'
import { join } from 'node:path'
import type { Appliance } from '../../../scripts/rigs/appliance.ts'
import {
  type Behaviour,
  delta,
  openSse,
  sse,
  startUpstream,
  type TestUpstream,
} from '../../../scripts/rigs/gateway/upstream-server.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { theCargo } from '../guest/cargo.ts'
import type { Login } from './login.ts'
import { startSshAgent } from './ssh-agent.ts'

const contextTokens = 24_576
/** Not under test: a thousand processes need minutes on an emulated processor of a busy machine. */
const bombMs = 600_000
export const agentModel = 'scripted-1'

/**
 * A fixed answer to requests without tools (the title of a session); else a tool call that writes a file, then a
 * closing text.
 */
const scripted: Behaviour = (response, { body }) => {
  openSse(response)
  const messages = body.messages as { role: string }[]
  const answer = (content: string) => [delta({ role: 'assistant', content }), delta({}, 'stop')]
  const call = JSON.stringify({ command: 'echo written by a tool >by-tool.txt', description: 'writes a file' })
  const called = { index: 0, id: 'call_1', type: 'function', function: { name: 'bash', arguments: call.slice(0, 20) } }
  const calls = [
    delta({ role: 'assistant', content: null }),
    delta({ tool_calls: [called] }),
    delta({ tool_calls: [{ index: 0, function: { arguments: call.slice(20) } }] }),
    delta({}, 'tool_calls'),
  ]
  const isWritten = messages.some(({ role }) => role === 'tool')
  const events = body.tools === undefined ? answer('a title') : isWritten ? answer('it is written') : calls
  for (const event of events) response.write(sse(event))
  response.end('data: [DONE]\n\n')
}

/** Table of the configuration. On the host: the server listens on its loopback, where no VM reaches. */
export async function agentUpstream(): Promise<{ readonly upstream: TestUpstream; readonly table: string }> {
  const upstream = await startUpstream(scripted)
  const table = [
    ...['[[inference.upstreams]]', 'name = "scripted"', `url = ${JSON.stringify(upstream.url)}`],
    ...[`models = [${JSON.stringify(agentModel)}]`, `context_tokens = ${contextTokens}`, ''],
  ].join('\n')
  return { upstream, table }
}

export type Inside = Login & { readonly appliance: Appliance; readonly hostname: string }

const python = `import os, urllib.request as u
print(u.urlopen(u.Request(os.environ["OPENAI_BASE_URL"] + "/models", headers={"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})).read().decode())`
const node = `fetch(process.env.OPENAI_BASE_URL + "/models", { headers: { authorization: "Bearer " + process.env.OPENAI_API_KEY } })
  .then(r => r.text()).then(console.log)`

/**
 * The gateway through every client, and by the environment of a command without a terminal; no store has an authority
 * of the host.
 */
export async function theGateway({ prints, fails }: Inside): Promise<void> {
  const asked =
    'curl --silent --show-error --max-time 60 --retry 30 --retry-connrefused --header "Authorization: Bearer $OPENAI_API_KEY" $OPENAI_BASE_URL/models'
  for (const client of [asked, `python3 -c '${python}'`, `node -e '${node}'`]) {
    expect(JSON.parse(await prints(client)).data.map(({ id }: { id: string }) => id)).toContain(agentModel)
  }
  expect(await prints('bash --login -c "echo $OPENAI_BASE_URL $ANTHROPIC_BASE_URL"')).toBe(
    'http://127.0.0.1:18442/v1 http://127.0.0.1:18442',
  )
  expect(await prints('env | grep -E "^(SSL_CERT_FILE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS)=" || echo none')).toBe(
    'none',
  )
  expect(await prints('strongroom-usage')).toMatch(
    /^egress: +[\d.]+ of 5\.37 GB \(\d+ %\), as the host last counted\ninference: \d+ requests, \d+ tokens, [\d.]+ USD in this calendar month \(UTC\), by the gateway\nsince boot: \d+ h \d+ min$/,
  )
  const store = 'etc/ssl/certs/ca-certificates.crt usr/local/share/ca-certificates'
  const measured = `for one in ${store}; do diff -r /$one /run/strongroom/measured-root/$one && echo same; done`
  expect(await prints(measured)).toBe('same\nsame')
  // Nothing vouches for a gateway in the host's own process (private-inference.ts has the verifier's line).
  expect(await prints('strongroom-gateway show 2>&1')).toContain('"why": "host"')
  // Neither its process nor its files are the owner's.
  const endpoint = 'pgrep --full "strongroom-guest gateway$"'
  expect(await prints(`ps -o user= -p $(${endpoint})`)).toBe('gateway')
  expect(await prints(`grep -E "^(CapEff|CapBnd|NoNewPrivs)" /proc/$(${endpoint})/status`)).toMatch(
    /^CapEff:\t0{16}\nCapBnd:\t0{16}\nNoNewPrivs:\t1$/,
  )
  await fails(`ls /proc/$(${endpoint})/fd`)
  await fails('touch /run/strongroom/gateway.json')
  const memory = await prints(`grep -E "^(VmRSS|RssAnon)" /proc/$(${endpoint})/status`)
  process.stderr.write(`inside: the endpoint of the gateway: ${memory.replaceAll(/\s+/g, ' ')}\n`)
}

export async function theTools({ prints }: Inside): Promise<void> {
  // Headers, library and unwinding; iostream would cost the emulated processor ten times as much.
  const source = '#include <cstdio>\nint main() { try { throw 1; } catch (int) { std::puts("compiled"); } }\n'
  expect(await prints(`printf '${source.replaceAll('\n', '\\n')}' >a.cc && g++ -o a a.cc && ./a`)).toBe('compiled')
  const tools = [
    'make',
    'jq',
    'tmux',
    'xz',
    'unzip',
    'zip',
    'rsync',
    'file',
    'htop',
    'vim',
    'pkg-config',
    'ssh',
    'corepack',
    'npm',
    'npx',
    'wget',
    'lsof',
  ]
  expect(await prints(`for tool in ${tools.join(' ')}; do command -v $tool >/dev/null || echo $tool; done`)).toBe('')
  expect(await prints('man -P cat proc_version | head -1')).toContain('proc_version(5)')
  // Terminals of today, file watchers, and the one locale whatever the client's is.
  const terminals = 'xterm-kitty alacritty tmux-256color foot'
  expect(await prints(`for name in ${terminals}; do infocmp $name >/dev/null || echo $name; done`)).toBe('')
  expect(await prints('cat /proc/sys/fs/inotify/max_user_watches /proc/sys/fs/inotify/max_user_instances')).toBe(
    '524288\n1024',
  )
  const locale = 'bash -c true 2>&1; locale charmap; echo $LANG'
  expect(await prints(locale, '-o', 'SetEnv=LC_ALL=de_DE.UTF-8')).toBe('UTF-8\nC.UTF-8')
  // Agents come by npm: a package installs into the home, and its program is found in this session and the next.
  const manifest = '{"name":"srt-global","version":"1.0.0","bin":{"srt-global":"run.js"}}'
  await prints(
    `mkdir pack && cd pack && echo '${manifest}' >package.json && printf '#!/usr/bin/env node\\nconsole.log("installed")\\n' >run.js`,
  )
  const install = 'npm install --global --offline --install-links --no-audit --no-fund ./pack >/dev/null && srt-global'
  expect(await prints(install)).toBe('installed')
  expect(await prints('bash --login -c srt-global; command -v srt-global; npx --offline srt-global')).toBe(
    'installed\n/home/agent/.local/bin/srt-global\ninstalled',
  )
  expect(await prints('python3 -m venv --without-pip v && v/bin/python -c "print(1 + 1)"')).toBe('2')
}

/** Copies there and back, and forwardings of every kind that lead to the owner's own. */
export async function theConnections({ prints, appliance, hostname }: Inside): Promise<void> {
  const terminal = await appliance.sshWith(['-tt'], hostname, [], 'exit\n')
  expect(terminal.exitCode).toBe(0)
  expect(terminal.stdout).toContain(`${hostname}: a Strongroom instance`)
  const remote = ['-o', 'ExitOnForwardFailure=yes', '-R', '9999:127.0.0.1:8441']
  const listening = await prints('cat /proc/net/tcp /proc/net/tcp6 | grep -i :270F', ...remote)
  // 127.0.0.1 and ::1, and nothing that can be reached from outside.
  for (const line of listening.split('\n')) expect(line).toMatch(/0100007F:270F|00000000000000000000000001000000:270F/)
  using agent = await startSshAgent(appliance.directory, join(appliance.directory, 'client'))
  expect(await prints('ssh-add -l', ...agent.options)).toContain('ED25519')
}

/**
 * Other people's keys do not lock the owner out: neither those in the owner's own SSH agent, nor failed attempts from
 * the same address, nor forty connections that never log in.
 */
export async function theOtherKeys({ appliance, hostname }: Inside): Promise<void> {
  const own = join(appliance.directory, 'client')
  const foreign = Array.from({ length: 9 }, (_, at) => join(appliance.directory, `foreign-${at}`))
  for (const file of foreign) {
    const { exitCode } = Bun.spawnSync(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', file])
    expect(exitCode).toBe(0)
  }
  using agent = await startSshAgent(appliance.directory, ...foreign, own)
  const address = (await appliance.resolve(hostname)) ?? ''
  const logIn = async (...options: string[]) => {
    const known = ['-o', `HostKeyAlias=${hostname}`, '-o', `UserKnownHostsFile=${appliance.directory}/known_hosts`]
    const argv = ['ssh', '-v', '-l', 'agent', '-o', 'BatchMode=yes', ...known, ...options, address, '--', 'echo in']
    const ssh = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
    const [stdout, stderr] = await Promise.all([new Response(ssh.stdout).text(), new Response(ssh.stderr).text()])
    return { exitCode: await ssh.exited, stdout, stderr, offered: stderr.match(/Offering public key/g)?.length ?? 0 }
  }
  const last = await logIn('-o', 'IdentityFile=none', ...agent.options)
  expect([last.exitCode, last.stdout, last.offered]).toEqual([0, 'in\n', 10])

  for (const file of foreign.slice(0, 5)) {
    const wrong = await logIn('-i', file, '-o', 'IdentitiesOnly=yes')
    expect([wrong.exitCode, wrong.offered]).toEqual([255, 1])
    expect(wrong.stderr).toContain('Permission denied (publickey)')
  }
  const silent = await Promise.all(Array.from({ length: 40 }, () => silentConnection(address)))
  try {
    expect(silent.every(({ banner }) => banner.startsWith('SSH-2.0-'))).toBe(true)
    expect((await appliance.sshWith([], hostname, ['echo in'])).stdout).toBe('in\n')
  } finally {
    for (const { socket } of silent) socket.end()
  }
}

/** A connection that reads sshd's first line and sends nothing. */
async function silentConnection(hostname: string) {
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const socket = await Bun.connect({
    hostname,
    port: 22,
    socket: {
      data: (_, bytes) => resolve(bytes.toString()),
      close: () => reject(new Error('sshd closed a connection before its first line')),
      error: (_, error) => reject(error),
    },
  })
  return { socket, banner: await promise }
}

/** Root of one's own: a package is installed in it and runs in it; outside nothing has changed and nobody is root. */
export async function thePrivateRoot(inside: Inside, options: readonly string[]): Promise<void> {
  const { prints, begins, fails } = inside
  const listing = 'find /usr /etc /var -xdev -newer /run/strongroom/claim.json 2>/dev/null | sort'
  const before = await prints(listing)
  const control = 'Package: srt-trial\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@a>\\nDescription: trial\\n'
  const script = '#!/bin/sh\\nset -e\\ninstall -d -o man -g adm /var/lib/srt-trial\\n'
  await prints(
    `mkdir -p p/DEBIAN p/usr/bin && printf '${control}' >p/DEBIAN/control && printf '${script}' >p/DEBIAN/postinst && chmod 755 p/DEBIAN/postinst &&
    printf '#!/bin/sh\\necho trial runs as $(id -u)\\n' >p/usr/bin/srt-trial && chmod 755 p/usr/bin/srt-trial && dpkg-deb --root-owner-group --build p /tmp/srt-trial.deb`,
  )
  const installing = await begins('private-root apt-get install --yes /tmp/srt-trial.deb; echo status $?')
  const installed = await installing()
  expect(installed).toContain('status 0')
  expect(await prints('private-root srt-trial')).toBe('trial runs as 0')
  expect(await prints('private-root stat --format=%U:%G /var/lib/srt-trial')).toBe('man:adm')
  expect(await prints('private-root dpkg-query --show srt-trial')).toBe('srt-trial\t1')
  expect(await prints('private-root stat --format=%U /usr/bin/bash')).toBe('root')
  expect(await prints('private-root sh -c "pwd; echo $HOME"')).toBe('/home/agent\n/home/agent')
  expect(await prints('cd /tmp && private-root pwd')).toBe('/tmp')
  expect(await prints(listing)).toBe(before)
  expect(await fails('srt-trial')).toContain('not found')
  expect(await fails('dpkg-query --show srt-trial')).toContain('no packages found')
  // Its root has no power over the machine.
  const refused = [
    'cat /dev/vda',
    'echo 1 >/proc/sys/kernel/sysrq',
    'cat /run/strongroom/ssh_host_ed25519_key',
    'cat /run/strongroom/sshd_environment.conf',
    'echo 1 >/sys/fs/cgroup/ssh/daemon/cgroup.procs',
    'mount -t erofs /dev/dm-0 /mnt',
    'touch /run/strongroom/measured-root/x',
    'insmod /usr/lib/modules/boot/sev-guest.ko',
  ]
  const tries = refused.map(command => `(${command}) >/dev/null 2>&1 && echo "${command}"`)
  const lines = ['id -u', ...tries, 'echo end'].map(line => `'${line}'`)
  await prints(`printf '%s\\n' ${lines.join(' ')} >try.sh`)
  expect(await prints('private-root sh try.sh')).toBe('0\nend')
  expect(await prints('find / -xdev -perm /6000 -type f 2>/dev/null || true')).toBe('')
  await theCargo(inside, options)
}

/** Neither a fork bomb nor a hog of memory keeps the owner out, or ends sshd and the agent. */
export async function theLimits({ prints, fails, appliance, hostname }: Inside): Promise<void> {
  const group = await prints('cat /proc/self/cgroup')
  expect(group).toMatch(/^0::\/ssh\/sessions\/\d+$/)
  expect(await prints('cat /proc/self/cgroup')).not.toBe(group)
  expect(await prints('cat /proc/self/oom_score_adj; ls -d /sys/fs/cgroup/ssh/sessions/*/ | wc -l')).toMatch(
    /^0\n[1-4]$/,
  )
  const guarded =
    'for pid in $(pgrep "sshd$|strongroom-gues"); do echo $(cat /proc/$pid/comm /proc/$pid/oom_score_adj) $pid; done | sort'
  const guards = await prints(guarded)
  expect(guards).toMatch(/^sshd -1000 \d+\nstrongroom-gues -900 \d+\nstrongroom-gues 0 \d+$/)

  const bomb = appliance.sshSession(hostname, 'bomb() { bomb | bomb & }; bomb 2>/dev/null; sleep 600')
  await until(
    'the bomb is at its limit',
    bombMs,
    async () => Number(await prints('cat /sys/fs/cgroup/ssh/sessions/pids.current')) > 700,
  )
  expect(await prints('ls / | wc -l; echo in')).toContain('in')
  await prints(
    'for session in /sys/fs/cgroup/ssh/sessions/[0-9]*; do [ $(cat $session/pids.current) -lt 500 ] || echo 1 >$session/cgroup.kill; done',
  )
  await bomb.exited
  const isQuiet = async () => Number(await prints('cat /sys/fs/cgroup/ssh/sessions/pids.current')) < 50
  await until('the bomb is gone', bombMs, isQuiet)

  await fails('python3 -c \'x = [b"x" * (1 << 26) for _ in range(1000)]\'')
  expect(await prints(guarded)).toBe(guards)
}

/** Begins the agent's first task. The function that it gives waits for the end of the task. */
export async function theAgent({ begins, prints }: Inside, upstream: TestUpstream): Promise<() => Promise<void>> {
  const started = upstream.seen.length
  const running = await begins('cd && mkdir -p project && cd project && opencode run "write a file"; echo status $?')
  return async () => {
    const said = await running()
    expect(said).toContain('it is written')
    expect(said).toContain('status 0')
    expect(await prints('cat project/by-tool.txt')).toBe('written by a tool')
    const requests = upstream.seen.slice(started).map(({ body }) => body)
    expect(requests.length).toBeGreaterThanOrEqual(2)
    for (const request of requests) {
      expect(request).toMatchObject({ model: agentModel, stream: true })
      expect(Number(request.max_tokens ?? request.max_completion_tokens)).toBeLessThanOrEqual(contextTokens / 8)
    }
    const { provider } = JSON.parse(await prints('cat ~/.config/opencode/opencode.json'))
    expect(provider.strongroom.models[agentModel].limit.context).toBe(contextTokens)
    // Nothing else was looked for: neither a list of models nor packages came, and nobody waited for them.
    const found = 'ls ~/.config/opencode/node_modules; ls ~/.cache/opencode/models.json 2>/dev/null || true'
    expect(await prints(found)).toBe('')
  }
}
