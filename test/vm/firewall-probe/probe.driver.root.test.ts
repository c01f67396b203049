// Goal: packets of the probe meet the real rules of nft and of both iptables, as Docker, ufw, firewalld and people
// write them; those that are dropped are found, and nothing leaves this host. Needs root; in a namespace of its own.

import { afterAll, afterEach, beforeAll, expect, test } from 'bun:test'
import { hostPlan, link, nextHopV6, plan, planV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { createNetns, inOwnNetns, type Netns } from '../../../scripts/rigs/netns.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { defaultConfig } from '../../../src/config/load.ts'
import type { Config } from '../../../src/config/schema.ts'
import { hereNetns } from '../../../src/host/network/netns.ts'
import { openTap } from '../../../src/host/network/tap.ts'
import { createVmNamespace } from '../../../src/host/network/vm-namespace.ts'
import { droppedRemedy } from '../../../src/vm/firewall-probe/dropping-chain.plan.ts'
import { ForwardProbe } from '../../../src/vm/firewall-probe/probe.driver.ts'
import { hostTableText } from '../../../src/vm/network/host-table.plan.ts'
import { rulesetText } from '../../../src/vm/network/nft.plan.ts'

const timeoutMs = 60_000
const usual = defaultConfig()
const config: Config = { ...usual, inference: { ...usual.inference, placement: 'host' } }

function sh(text: string): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(['sh', '-ec', text])
  if (exitCode !== 0) throw new Error(`${text}: ${stdout}${stderr}`)
  return stdout.toString()
}
const nft = (text: string) => sh(`nft --file - <<'END'\n${text}\nEND`)
const namespace = createVmNamespace({ ...link, nextHopV6, name: config.network.table })
const inside = (text: string) => namespace.netns.run(() => nft(text))
const own = () => {
  inside(rulesetText(plan({ fetchPort: null })))
  nft(hostTableText(hostPlan()))
}
const legacy = (rule: string) => sh(`iptables-legacy ${rule}`)

let drawn = 0
/** Another number each time: by chance two looks might come from one address, which a test below bans for that. */
const random = (length: number) => {
  drawn += 1
  const bytes = new Uint8Array(length)
  new DataView(bytes.buffer).setUint32(0, drawn)
  return bytes
}
const probe = new ForwardProbe({ config, who: 'daemon', random, timeoutMs })
const look = async (of: ForwardProbe = probe) => {
  const { dropped, unknown } = await of.look()
  expect(unknown).toBeNull()
  return dropped.map(({ name }) => name)
}
const once = async (change: Partial<Config['network']>) => {
  const network = { ...config.network, ...change }
  const of = new ForwardProbe({ config: { ...config, network }, who: 'doctor', random, timeoutMs })
  try {
    return await of.look()
  } finally {
    of.close()
  }
}

const inward = 'SSH to instances'
const outward = 'what instances send'
const toSnapshots = 'instances to port 8446 of this host'
const toGateway = 'instances to the gateway (tcp 8442)'
const others = 'what is forwarded for others'
const services = [
  'clients to service A (tcp 8441)',
  'clients to service B (tcp 8442)',
  'clients to the DNS (tcp 53)',
  'clients to the DNS (udp 53)',
]

inOwnNetns(
  import.meta.path,
  () => {
    let world: Netns
    const seen = () => sh(`ip netns exec ${world.name} nft list counter inet seen leaked`)
    beforeAll(async () => {
      await namespace.open()
      world = createNetns()
      sh(`ip link add up0 type veth peer name eth0 netns ${world.name}; ip link set up0 up
        ip address add 192.0.2.1/24 dev up0; ip -6 address add 2001:db8::1/64 dev up0 nodad
        ip -netns ${world.name} address add 192.0.2.9/24 dev eth0; ip -netns ${world.name} link set eth0 up
        ip -netns ${world.name} -6 address add 2001:db8::9/64 dev eth0 nodad
        ip route add default via 192.0.2.9; ip -6 route add default via 2001:db8::9
        echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
        echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter
        ip netns exec ${world.name} nft 'add table inet seen; add counter inet seen leaked; add chain inet seen pre { type filter hook prerouting priority -400; }; add rule inet seen pre ip daddr 192.175.48.0/24 counter name leaked; add rule inet seen pre ip saddr 10.88.0.0/24 counter name leaked; add rule inet seen pre ip6 daddr 2620:4f:8000::/48 counter name leaked'`)
      own()
    })
    afterAll(() => {
      probe.close()
      world.close()
    })
    afterEach(() => {
      expect(seen()).toContain('packets 0 bytes 0')
      sh(
        'nft flush ruleset; for t in filter raw mangle; do iptables-legacy -t $t -F; iptables-legacy -t $t -P OUTPUT ACCEPT; done; iptables-legacy -P FORWARD ACCEPT; iptables-legacy -P INPUT ACCEPT',
      )
      own()
    })

    test('goal: without other firewalls all passes, with our table and without it', async () => {
      expect(await look()).toEqual([])
      sh('nft delete table inet strongroom')
      expect(await look()).toEqual([])
      sh('nft flush ruleset')
      expect(await look()).toEqual([])
    })

    test('goal: Docker drops what is not its own; the chain that it keeps for others lets ours pass', async () => {
      sh(`iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -A DOCKER-USER -j RETURN
        iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT; iptables -A FORWARD -i docker0 -o docker0 -j ACCEPT`)
      expect(await look()).toEqual([inward, outward, others])
      for (const way of ['--in-interface', '--out-interface'])
        sh(`iptables --insert DOCKER-USER ${way} sr+ --jump ACCEPT`)
      expect(await look()).toEqual([others])
    })

    test('goal: ufw drops the rest, the ports of our services too', async () => {
      sh(`iptables -P FORWARD DROP; iptables -P INPUT DROP
        for c in ufw-before-forward ufw-before-input ufw-user-input; do iptables -N $c; done
        iptables -A FORWARD -j ufw-before-forward; iptables -A INPUT -j ufw-before-input
        iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
        iptables -A ufw-before-input -i lo -j ACCEPT; iptables -A ufw-before-input -j ufw-user-input
        iptables -A ufw-user-input -p tcp --dport 22 -j ACCEPT`)
      expect(await look()).toEqual([inward, outward, toGateway, toSnapshots, others, ...services])
      sh(`iptables -I ufw-before-forward -i sr+ -j ACCEPT; iptables -I ufw-before-forward -o sr+ -j ACCEPT
        iptables -I ufw-before-input -i sr+ -j ACCEPT; iptables -A ufw-user-input -p udp --dport 53 -j ACCEPT
        iptables -A ufw-user-input -p tcp -m multiport --dports 53,8441,8442 -j ACCEPT`)
      expect(await look()).toEqual([others])
    })

    test('goal: firewalld rejects what no zone lets pass, and no refusal leaves this host', async () => {
      nft(`table inet firewalld {
        chain filter_FORWARD {
          type filter hook forward priority 10; policy accept;
          ct state { established, related } accept
          ct status dnat accept
          iifname "lo" accept
          ct state invalid drop
          jump filter_FORWARD_ZONES
          reject with icmpx admin-prohibited
        }
        chain filter_FORWARD_ZONES { goto filter_FWD_public
        }
        chain filter_FWD_public { iifname "docker0" accept
        }
        chain filter_INPUT { type filter hook input priority 10; policy accept; tcp dport 8441 reject with tcp reset
        }
      }`)
      expect(await look()).toEqual([inward, outward, others, services[0] ?? ''])
    })

    test('goal: the commands that are named let pass what was dropped', async () => {
      const RULES = [
        'iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER',
        'iptables -P FORWARD DROP; iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -P INPUT DROP',
        `nft 'table inet fw { chain i { type filter hook input priority 0; policy drop; }; chain f { type filter hook forward priority 0; ct state established accept; counter reject; }; }'`,
      ]
      for (const rules of RULES) {
        sh(rules)
        const { dropped, chains } = await once({})
        expect(dropped.length).toBeGreaterThan(1)
        const ours = dropped.filter(({ kind }) => kind !== 'others')
        const commands = [...droppedRemedy(ours, config, chains).matchAll(/`([^`]+)`/g)].map(([, command]) => command)
        expect(commands).not.toEqual([])
        sh(commands.join('; '))
        expect(await look()).toEqual([others])
        sh('nft flush ruleset')
        own()
      }
    })

    test('goal: chains are read again for other packets or after 10 minutes, and of a large table the policy', async () => {
      // Its tap has the same name.
      probe.close()
      let passedMs = 0
      const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + passedMs }
      const probing = new ForwardProbe({ config, who: 'daemon', random, timeoutMs, clock })
      using undo = new DisposableStack()
      undo.defer(() => probing.close())
      const chain = (name: string) => `chain ${name} { type filter hook forward priority 0; policy drop; }`
      const found = async () => (await probing.look()).chains?.map(({ chain: name }) => name)
      nft(`table inet fw { ${chain('first')}; }`)
      expect(await found()).toEqual(['first'])
      nft(`delete table inet fw\ntable inet fw { ${chain('second')}; }`)
      const many = `printf "add rule inet fw second ip daddr 198.18.%d.%d accept\\n", $1 / 256, $1 % 256`
      sh(`seq 0 19999 | awk '{ ${many} }' | nft --file -`)
      expect(await found()).toEqual(['first'])
      passedMs = 600_000
      expect(await found()).toEqual(['second'])
      nft(`table ip other { ${chain('third').replace('forward', 'input')}; }`)
      expect(await found()).toEqual(['second', 'third'])
    })

    test('goal: the older tables of iptables are met, which nft does not show', async () => {
      legacy('-P FORWARD DROP')
      expect(await look()).toEqual([inward, outward, others])
      legacy('-A FORWARD -o sr+ -p tcp --dport 22 -j ACCEPT')
      expect(await look()).toEqual([outward, others])
      legacy('-t raw -A PREROUTING -i up0 -p tcp --dport 22 -j DROP')
      legacy('-P FORWARD ACCEPT')
      expect(await look()).toEqual([inward])
    })

    test('goal: sets, marks, rates and packets before forwarding are met as they are', async () => {
      nft(`table inet fw {
        set blocked { type ipv4_addr; flags interval; elements = { 192.175.48.0/25, 192.175.48.128/25 }
        }
        chain pre { type filter hook prerouting priority raw; policy accept; iifname "up0" ip saddr @blocked meta mark set 7
        }
        chain forward { type filter hook forward priority 0; policy accept; meta mark & 0xff == 7 tcp dport 22 drop
        }
      }`)
      expect(await look()).toEqual([inward])
      nft(`flush ruleset
        table netdev early { chain in { type filter hook ingress device up0 priority 0; policy accept; tcp dport { 22, 8441 } drop
        }
      }`)
      own()
      expect(await look()).toEqual([inward, services[0] ?? ''])
      // Nobody is banned for the probe's sake: each look comes from another address.
      nft(`flush ruleset
        table inet bans {
        set rates { type ipv4_addr; flags dynamic, timeout; timeout 1h;
        }
        set banned { type ipv4_addr; flags dynamic, timeout; timeout 1h;
        }
        chain forward { type filter hook forward priority 0; policy accept;
          ip saddr @banned drop
          tcp dport 22 ct state new add @rates { ip saddr limit rate over 4/minute burst 1 packets } add @banned { ip saddr } drop
        }
      }`)
      own()
      for (let time = 0; time < 6; time += 1) expect(await look()).toEqual([])
    })

    test('goal: a firewall that lets one office in passes where the configuration names that office, and nothing is tested where it names nobody', async () => {
      nft(`table inet fw { chain forward { type filter hook forward priority 0; policy drop; ct state established accept
        ip saddr 203.0.113.0/29 accept
        iifname "sr*" accept
      }
      }`)
      expect((await once({})).dropped.map(({ name }) => name)).toEqual([inward, others])
      expect(await once({ probe_peers: ['203.0.113.0/29'] })).toEqual({ dropped: [], unknown: null })
      expect(await once({ probe_peers: [] })).toMatchObject({
        dropped: [],
        unknown: expect.stringContaining('network.probe_peers'),
      })
    })

    test('goal: IPv6 is tested where there is a pool of it, and IPv4 where there is one', async () => {
      const pool_v6 = '2001:db8:88::/64'
      inside(rulesetText(planV6()))
      nft(hostTableText(hostPlan({ nextHopV6, sourceV6: { kind: 'pool' } })))
      expect(await once({ pool_v6 })).toEqual({ dropped: [], unknown: null })
      sh('ip6tables -P FORWARD DROP; ip6tables -A FORWARD -d 2001:db8:88::/48 -p tcp --dport 22 -j ACCEPT')
      expect(await once({})).toEqual({ dropped: [], unknown: null })
      const six = [`${outward} by IPv6`, `${others} by IPv6`]
      expect((await once({ pool_v6 })).dropped.map(({ name }) => name)).toEqual(six)
      sh('iptables -P FORWARD DROP')
      expect((await once({ pool_v6, pool_v4: '' })).dropped.map(({ name }) => name)).toEqual(six)
    })

    test('goal: names are asked for and the gateway is reached in a VM, too', async () => {
      const inVm: Config = {
        ...config,
        network: { ...config.network, allow_names: ['crates.io'] },
        inference: { ...config.inference, placement: 'vm' },
      }
      const of = new ForwardProbe({ config: inVm, who: 'doctor', random, timeoutMs })
      try {
        inside(rulesetText(plan({ names: { port: 53, isStale: false } })))
        nft(hostTableText(hostPlan({ namesPort: 53 })))
        expect(await look(of)).toEqual([])
        nft(`table inet fw { chain i { type filter hook input priority 0; policy drop;
        }
        chain f { type filter hook forward priority 0; policy drop; ct status dnat iifname "up0" accept
          tcp dport { 22, 443 } accept
        }
        }`)
        expect(await look(of)).toEqual([
          toSnapshots,
          'questions of instances for names',
          services[0] ?? '',
          ...services.slice(2),
        ])
      } finally {
        of.close()
      }
    })

    test('goal: the daemon and doctor look at once; nothing is left of either, not even a connection', async () => {
      const all = await Promise.all([look(), once({})])
      expect(all).toEqual([[], { dropped: [], unknown: null }])
      expect(sh('nft list tables')).not.toMatch(/srprobe|srdoctor/)
      expect(sh('conntrack -L 2>/dev/null; ip -brief link show type tun')).not.toMatch(/192\.175\.48|srdoctor/)
      const taps = () => sh('ip -brief link show type tun; ip -netns strongroom -brief link show type tun; ip route')
      expect(taps().match(/srprobe/g)).toHaveLength(2)
      probe.close()
      expect(taps()).not.toMatch(/srprobe|10\.88\.0/)
    })

    test('goal: a tap that is still held for a moment, as by a child that has just been forked, is waited for', async () => {
      for (const netns of [hereNetns, namespace.netns]) {
        probe.close()
        const held = openTap('srprobe', netns)
        setTimeout(held.close, 200)
        expect(await look()).toEqual([])
      }
    })

    test('goal: what became of the tap does not matter, nor another way to the world; without one nothing is claimed', async () => {
      expect(await look()).toEqual([])
      sh('ip -netns strongroom route del 10.88.0.255; tc qdisc del dev srprobe clsact')
      expect(await look()).toEqual([])
      sh('ip link set srprobe down')
      expect(await look()).toEqual([])
      for (const within of ['', '-netns strongroom']) {
        sh(`ip ${within} link del srprobe`)
        expect(await look()).toEqual([])
      }
      sh(
        'ip link add up1 type veth peer name down1; ip link set up1 up; ip link set down1 up; ip address add 198.51.100.1/24 dev up1; ip route replace default via 198.51.100.9',
      )
      sh(
        `nft 'add table inet fw; add chain inet fw f { type filter hook forward priority 0; }; add rule inet fw f iifname up1 drop'`,
      )
      expect(await look()).toEqual([inward, others])
      sh('ip route del default')
      expect(await once({})).toMatchObject({ dropped: [], unknown: expect.stringContaining('no route') })
      sh('ip link del up1; ip route add default via 192.0.2.9')
    })

    test('goal: what this host forwards for others is dropped by our own rules where they are to', async () => {
      nft(hostTableText(hostPlan({ dropOthers: true })))
      expect(await look()).toEqual([others])
    })

    test('goal: no guest reaches the tap of the probe, and nobody sends as the probe from another interface', async () => {
      using guest = createNetns()
      namespace.netns.run(() =>
        sh(`ip link add srtest000001 type veth peer name eth0 netns ${guest.name}; ip link set srtest000001 up
        ip address add 169.254.88.1/32 dev srtest000001; ip route add 10.88.0.1/32 dev srtest000001
        ip neighbour add proxy 169.254.88.1 dev srtest000001`),
      )
      sh(`
        ip -netns ${guest.name} link set eth0 address 02:00:00:00:00:01; ip -netns ${guest.name} link set eth0 up
        ip -netns ${guest.name} address add 10.88.0.1/32 dev eth0; ip -netns ${guest.name} address add 10.88.0.255/32 dev eth0
        ip -netns ${guest.name} route add 169.254.88.1 dev eth0 scope link; ip -netns ${guest.name} route add default via 169.254.88.1`)
      expect(await look()).toEqual([])
      const sent = () => Number(/TX:.*\n\s*\d+\s+(\d+)/.exec(sh('ip -netns strongroom -stats link show srprobe'))?.[1])
      const before = sent()
      sh(
        `ip netns exec ${guest.name} sh -c 'for s in 10.88.0.1 10.88.0.255; do timeout 1 bash -c "exec 3<>/dev/tcp/10.88.0.255/22" 2>/dev/null || true; ping -c1 -W1 -I $s 192.175.48.1 >/dev/null 2>&1 || true; done'`,
      )
      expect(sent()).toBe(before)
      sh('ip -netns strongroom link del srtest000001')
    })
  },
  { timeoutMs: 360_000 },
)
