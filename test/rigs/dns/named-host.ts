// The host of guest-network.ts with the real firewall, ledger and forwarder for a list of names. Lines in are
// commands, lines out say what was done. Run by `bun` in the host's namespace; needs root.

import { guestV6 } from '../../../scripts/rigs/guest/two-guests.ts'
import { firewallSettings, hostTableSettings } from '../../../src/appliance/engine.ts'
import { composeGuestDns } from '../../../src/appliance/guest-dns.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { parseConfig } from '../../../src/config/parse.ts'
import { netnsAt } from '../../../src/host/network/netns.ts'
import { createNft } from '../../../src/host/network/nft.ts'
import { ownAddresses, ownNetworks } from '../../../src/host/network/own-networks.ts'
import { namespaceFile } from '../../../src/host/network/vm-namespace.ts'
import { openStore } from '../../../src/store/db.ts'
import { recordResource } from '../../../src/store/ledger/resource.query.ts'
import { insertVm, moveVm, openVm } from '../../../src/store/ledger/vm.query.ts'
import { VmNetwork } from '../../../src/vm/network/network.driver.ts'

export const vmId = (n: number) => `0000000${n}-0000-4000-8000-000000000000`

export type NamedHost = {
  readonly toml: string
  /** Name of the namespace of VMs. */
  readonly inside: string
  readonly ttlSecondsMin: number
  readonly graceMs: number
}

export function namedHostCode(options: NamedHost): string {
  return `const { runNamedHost } = await import(${JSON.stringify(import.meta.path)}); await runNamedHost(${JSON.stringify(options)})`
}

export async function runNamedHost({ toml, inside, ttlSecondsMin, graceMs }: NamedHost): Promise<void> {
  const netns = netnsAt(namespaceFile(inside))
  const parsed = parseConfig(toml, 'f')
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems))
  const store = openStore(':memory:')
  const { db } = store.ledger
  const nowMs = systemClock.nowMs()
  for (const n of [1, 2]) {
    const { tap, address, addressV6 } = guestV6(n)
    insertVm(db, { id: vmId(n), hostId: store.hostId, image: 'instance', vcpus: 1, memoryMib: 512, nowMs })
    moveVm(db, { id: vmId(n), from: 'waiting', to: 'launching', nowMs, address, addressV6 })
    recordResource(db, { vmId: vmId(n), kind: 'nft', name: tap, nowMs })
    openVm(db, { id: vmId(n), nowMs })
  }
  /** A daemon that starts with this list. */
  const start = async (names: readonly string[]) => {
    const config = { ...parsed.config, network: { ...parsed.config.network, allow_names: [...names] } }
    const { table } = config.network
    const nft = createNft({ table, log: silentLogger, netns })
    const hostNft = createNft({ table, log: silentLogger })
    const network = new VmNetwork({
      ledger: store.ledger,
      nft,
      netns,
      host: { nft: hostNft, ruleset: hostTableSettings(config, { gatewayInVm: false }) },
      clock: systemClock,
      log: silentLogger,
      ruleset: firewallSettings(config, { gatewayInVm: false }),
      names: { entries: names, port: 53 },
      ownNetworks: () => ownNetworks({ withV6: true }),
      ownAddresses: () => ownAddresses({ withV6: true }),
      egressLimitBytes: 10_000_000,
      rescueLimitBytes: 0,
    })
    await network.sync()
    const limits = { ttlSecondsMin, graceMs, absentMs: 0 }
    const dns = composeGuestDns({ config, engine: { network }, clock: systemClock, log: silentLogger, limits })
    while ((dns?.status().listening.length ?? 0) < 2) await Bun.sleep(20)
    return { network, dns }
  }
  let running = await start(parsed.config.network.allow_names)
  say('up')
  for await (const line of console) {
    const [command = '', ...names] = line.split(' ')
    if (command === 'flush') {
      netns.run(() => Bun.spawnSync(['nft', 'flush', 'ruleset']))
      await running.network.sample()
    } else if (command === 'restart') {
      await running.dns?.[Symbol.asyncDispose]()
      running = await start(names)
    }
    say(`${command} done ${JSON.stringify(running.dns?.status())}`)
  }
}

function say(line: string): void {
  process.stdout.write(`${line}\n`)
}
