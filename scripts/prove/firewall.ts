// Firewalls of a host with a VM that sends: nothing reaches a closed network while the daemon is down and its table is
// gone, a changed table leaves nothing of the former one, and a firewall of others is named with its commands. Effects:
// those of `ProvedHost`; tables of nftables.

import { until } from '../rigs/until.ts'
import type { Session } from './host.ts'
import {
  awaited,
  commandsOf,
  configure,
  expectEqual,
  expectText,
  type Part,
  type Proof,
  qemuPids,
  service,
  setting,
  stateOf,
  statusOf,
  stillThere,
  succeed,
} from './proof.ts'

export const SECOND_LOCK: readonly Part[] = [{ row: '9', name: 'the second lock', run: secondLock }]

export const FOREIGN_FIREWALL: readonly Part[] = [{ row: '9', name: "iptables with Docker's chain", run: docker }]

/** Without VMs: while some run, the daemon refuses another table. */
export const CHANGED_TABLE: readonly Part[] = [{ row: '9', name: 'a changed network.table', run: changedTable }]

const timeoutMs = 120_000
const watchedMs = 5_000
/** RFC 1918, which VMs must not reach; and a network that they may. */
const [closed, open] = ['192.168.77.9', '198.51.100.9']
const inside = ['ip', 'netns', 'exec', 'strongroom', 'nft']

/** Counters see what leaves this host; they drop nothing. */
const COUNTERS = `table ip proved {
  counter closed { }
  counter open { }
  chain out {
    type filter hook postrouting priority 0; policy accept;
    ip daddr ${closed} counter name closed
    ip daddr ${open} counter name open
  }
}
`

async function secondLock(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  const { debian } = host
  await debian.exec(['nft', '--file', '-'], { stdin: COUNTERS })
  const sender: Session = await host.session(
    await hostnameOf(proof),
    `bash -c 'for i in $(seq 20000); do echo x > /dev/udp/${closed}/9; echo x > /dev/udp/${open}/9; sleep 0.1; done' 2> /dev/null`,
  )
  const seen = async () => {
    const { stdout } = await debian.exec(['nft', '--json', 'list', 'counters', 'table', 'ip', 'proved'])
    const { nftables } = JSON.parse(stdout) as { nftables: { counter?: { name: string; packets: number } }[] }
    const packets = (name: string) => nftables.find(({ counter }) => counter?.name === name)?.counter?.packets ?? 0
    return { closed: packets('closed'), open: packets('open') }
  }
  const sends = (since: number) => until('its datagrams leave', timeoutMs, async () => (await seen()).open > since + 5)
  await step('the VM sends: what is open leaves, what is closed does not', async () => {
    await sends(0)
    expectEqual('datagrams to the closed network', `${(await seen()).closed}`, '0')
  })
  let answered = Promise.resolve()
  await step('the daemon is down and its tables are gone: 0 datagrams in 5 s', async () => {
    await host.systemctl('stop', service)
    await debian.exec([...inside, 'flush', 'ruleset'])
    // The VM answers in this time, which no kernel may refuse.
    answered = stateOf(proof, 'session').echoes('while the tables are gone')
    answered.catch(() => {})
    const before = await seen()
    await Bun.sleep(watchedMs)
    const after = await seen()
    expectEqual('datagrams to the closed network', `${after.closed}`, '0')
    return `and ${after.open - before.open} to the open one`
  })
  await step('the daemon starts: the VM sends again, and its session lives', async () => {
    await host.systemctl('start', service)
    await host.answers()
    await sends((await seen()).open)
    expectEqual('datagrams to the closed network', `${(await seen()).closed}`, '0')
    await answered
    await stillThere(proof, 'after the second lock')
  })
  sender.kill()
  await debian.exec(['nft', 'delete', 'table', 'ip', 'proved'])
}

async function hostnameOf(proof: Proof): Promise<string> {
  const { data } = await proof.host.api('GET', `/v1/instances/${stateOf(proof, 'name')}`, stateOf(proof, 'key'))
  return data.hostname
}

/** The chains that Docker makes, by Debian's iptables. */
async function docker({ host, step }: Proof): Promise<undefined> {
  const { debian } = host
  await host.apt('install', 'iptables')
  for (const words of ['-N DOCKER-USER', '-A DOCKER-USER -j RETURN', '-I FORWARD -j DOCKER-USER', '-P FORWARD DROP'])
    await debian.exec(['iptables', ...words.split(' ')])
  const problem = async () => (await statusOf(host)).problems.find(({ name }) => name === 'firewall')
  await step('FORWARD with the policy DROP is a problem that names the table, the chain and DOCKER-USER', async () => {
    await until('it is a problem', timeoutMs, async () => (await problem()) !== undefined)
    const found = await problem()
    expectText('its detail', found?.detail ?? '', 'FORWARD', 'filter')
    expectText('its remedy', found?.remedy ?? '', 'iptables -I DOCKER-USER -i sr-vms -j ACCEPT')
  })
  await step('the commands that it names end it', async () => {
    const commands = commandsOf((await problem())?.remedy ?? '')
    await debian.exec(['sh', '-euc', commands])
    await awaited('it ends', timeoutMs, async () => (await problem())?.detail ?? null)
    return commands
  })
  for (const words of ['-P FORWARD ACCEPT', '-F', '-X']) await debian.exec(['iptables', ...words.split(' ')])
}

async function changedTable(proof: Proof): Promise<undefined> {
  const { host, step } = proof
  await step('network.table is changed without VMs: nothing of the former one is left', async () => {
    await succeed(host, ['instance', 'delete', `acme/${stateOf(proof, 'name')}`])
    await until('no VM is there', timeoutMs, async () => (await qemuPids(host)).length === 0)
    await configure(host, [setting('network.table', 'other')])
    const has = async (name: string) => {
      const { stdout } = await host.debian.exec(['sh', '-c', 'ls /run/netns; nft list tables'])
      return new RegExp(`\\b${name}\\b`).test(stdout)
    }
    await until('the new one is there', timeoutMs, () => has('other'))
    await awaited('the former one is gone', timeoutMs, async () => ((await has('strongroom')) ? 'it is there' : null))
    await configure(host, [setting('network.table', 'strongroom')])
  })
}
