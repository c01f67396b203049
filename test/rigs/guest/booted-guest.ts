// Boots a guest image in QEMU's software emulation and claims it like a host: agent port, addresses, claim, evidence,
// receipt. The rigs' simulated platform vouches for it. Effects; kills its processes.

import { mkdtemp, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { lastingPort } from '../../../scripts/rigs/free-port.ts'
import { makeClaim, seal, succeed } from '../../../scripts/rigs/guest/root.ts'
import { until } from '../../../scripts/rigs/until.ts'
import { toBase64Url } from '../../../src/base/bytes.ts'
import { systemRandom } from '../../../src/base/ids.ts'
import { simulatedLaunch, vouchFor } from '../enclave/vouch.ts'

const bootMs = 600_000

type ClaimedGuest = AsyncDisposable & {
  /** How long each request to the agent took, in ms, in their order. */
  readonly timings: readonly { readonly op: string; readonly ms: number }[]
  /** Its description of itself before its claim, as the agent sent it. */
  readonly hello: Readonly<Record<string, unknown>>
  readonly serial: () => string
  /** Types a line on the serial console. */
  readonly type: (line: string) => void
  /** Runs a command as the login user, with this on its standard input. */
  readonly ssh: (command: string, stdin?: string) => Promise<{ exitCode: number; stdout: string; stderr: string }>
  /** PEM of the root that vouches for its reports. */
  readonly rootPem: string
}

export async function claimedGuest(imageDir: string): Promise<ClaimedGuest> {
  const dir = await mkdtemp('/tmp/claimed-guest-')
  const sshPort = lastingPort()
  const child = Bun.spawn(['qemu-system-x86_64', ...(await qemuArguments(imageDir, dir, sshPort))], {
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  })
  let serial = ''
  const reading = (async () => {
    for await (const chunk of child.stdout) serial += new TextDecoder().decode(chunk)
  })()
  const dispose = async () => {
    child.kill('SIGKILL')
    await child.exited
    await reading
    await rm(dir, { recursive: true, force: true })
  }
  try {
    const timings: { op: string; ms: number }[] = []
    const agent = await connectAgent(join(dir, 'agent'), timings)
    const { hello } = await agent.ask({ op: 'hello' })
    const network = { address: '10.0.2.15', gateway: '10.0.2.2', mtuBytes: 1500, resolvers: [] }
    await agent.ask({ op: 'network', network })
    const key = join(dir, 'key')
    succeed(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', '', '-f', key])
    const gateway = { kind: 'unattested', why: 'elsewhere', ca: null } as const
    const claim = makeClaim((await Bun.file(`${key}.pub`).text()).trim(), {
      inference: { baseUrl: 'https://10.0.2.2:1/v1', address: null, model: 'none', gateway, drawsKey: false },
    })
    const { claimed } = await agent.ask({ op: 'claim', sealed: seal(claim, hello.boxKey) })
    const nonce = toBase64Url(systemRandom(32))
    const { evidence } = await agent.ask({ op: 'evidence', nonce, simulated: simulatedLaunch })
    const { receipt, rootPem } = await vouchFor(evidence)
    await agent.ask({ op: 'receipt', receipt })
    await Bun.write(join(dir, 'known_hosts'), `[127.0.0.1]:${sshPort} ${claimed.sshHostKey}\n`)
    return {
      timings,
      hello,
      rootPem,
      serial: () => serial,
      type: line => {
        child.stdin.write(`${line}\n`)
        child.stdin.flush()
      },
      ssh: async (command, stdin = '') => {
        const known = ['-o', `UserKnownHostsFile=${join(dir, 'known_hosts')}`, '-o', 'StrictHostKeyChecking=yes']
        const argv = [
          'ssh',
          '-F',
          'none',
          '-o',
          'BatchMode=yes',
          ...known,
          '-i',
          key,
          '-p',
          `${sshPort}`,
          'agent@127.0.0.1',
        ]
        const session = Bun.spawn([...argv, command], { stdin: Buffer.from(stdin), stdout: 'pipe', stderr: 'pipe' })
        const [stdout, stderr, exitCode] = await Promise.all([
          session.stdout.text(),
          session.stderr.text(),
          session.exited,
        ])
        return { exitCode, stdout, stderr }
      },
      [Symbol.asyncDispose]: async () => {
        agent.end()
        await dispose()
      },
    }
  } catch (error) {
    await dispose()
    throw error
  }
}

async function qemuArguments(imageDir: string, dir: string, sshPort: number): Promise<string[]> {
  const forward = `tcp:127.0.0.1:${sshPort}-10.0.2.15:22`
  return [
    ...['-nodefaults', '-no-user-config', '-nographic', '-no-reboot', '-machine', 'q35,vmport=off,hpet=off'],
    ...['-accel', 'tcg,thread=single,tb-size=512', '-cpu', 'max', '-smp', '2', '-m', '2048'],
    ...['-kernel', join(imageDir, 'kernel'), '-initrd', join(imageDir, 'initrd')],
    ...['-append', await Bun.file(join(imageDir, 'cmdline')).text()],
    ...['-drive', `if=none,id=root,format=raw,readonly=on,file=${join(imageDir, 'root.img')}`],
    ...['-device', 'virtio-blk-pci,drive=root,serial=root', '-device', 'virtio-serial-pci,id=serial'],
    ...['-chardev', `socket,id=agent,path=${join(dir, 'agent')},server=on,wait=off`],
    ...['-device', 'virtserialport,bus=serial.0,chardev=agent,name=strongroom.agent.0'],
    ...['-object', 'rng-random,id=rng,filename=/dev/urandom', '-device', 'virtio-rng-pci,rng=rng'],
    ...['-netdev', `user,id=net,restrict=on,net=10.0.2.0/24,host=10.0.2.2,hostfwd=${forward}`],
    ...['-device', 'virtio-net-pci,netdev=net', '-serial', 'stdio'],
  ]
}

/** Once QEMU listens there. Each request rejects when the guest refuses it. */
async function connectAgent(path: string, timings: { op: string; ms: number }[]) {
  await until('QEMU listens', 60_000, () => Bun.spawnSync(['test', '-S', path]).exitCode === 0)
  const socket = connect(path)
  const waiting: ((line: string) => void)[] = []
  let held = ''
  socket.on('data', chunk => {
    const lines = (held + String(chunk)).split('\n')
    held = lines.pop() ?? ''
    for (const line of lines) if (line !== '') waiting.shift()?.(line)
  })
  socket.write('\n')
  let count = 0
  return {
    ask: async (request: { op: string; [field: string]: unknown }) => {
      const startedMs = performance.now()
      const answered = new Promise<string>(resolve => waiting.push(resolve))
      count += 1
      socket.write(`${JSON.stringify({ id: `r${count}`, ...request })}\n`)
      const late = Bun.sleep(bootMs).then(() => {
        throw new Error(`${request.op}: not answered within ${bootMs} ms`)
      })
      const answer = JSON.parse(await Promise.race([answered, late]))
      timings.push({ op: request.op, ms: Math.round(performance.now() - startedMs) })
      if (!answer.ok) throw new Error(`${request.op}: ${answer.message}`)
      return answer
    },
    end: () => socket.destroy(),
  }
}
