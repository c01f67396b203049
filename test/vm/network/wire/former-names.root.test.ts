// Goal: after `network.table` or `network.tap_prefix` has changed, a start leaves nothing behind under the former
// names, and touches nothing of others. Real nftables and namespaces. Needs root.

import { expect, test } from 'bun:test'
import { hostPlan, link } from '../../../../scripts/rigs/guest/two-guests.ts'
import { inOwnNetns } from '../../../../scripts/rigs/netns.ts'
import { silentLogger } from '../../../../src/base/log.ts'
import { isNetns } from '../../../../src/host/network/netns.ts'
import { createVmNamespace, namespaceFile } from '../../../../src/host/network/vm-namespace.ts'
import { run } from '../../../../src/linux/command.ts'
import { hostTableText } from '../../../../src/vm/network/host-table.plan.ts'
import { removeFormer } from '../../../../src/vm/network/takeover.driver.ts'

const timeoutMs = 120_000
const name = 'srt_former'

inOwnNetns(
  import.meta.path,
  () => {
    const command = async (argv: readonly string[], stdin = '') =>
      (await run(argv, { stdin, timeoutMs: 60_000, outputBytesMax: 1_000_000 })).stdout
    const held = async () => ({
      tables: (await command(['nft', 'list', 'tables'])).trim().split('\n').toSorted(),
      hasNamespace: isNetns(namespaceFile(name)),
      hasLink: (await command(['ip', '-brief', 'link', 'show'])).includes('sr-vms'),
      hasRules: (await command(['ip', 'rule', 'show'])).includes('sr-vms'),
    })

    test('tables of both families, the link, its rules and the namespace go; the table of another program stays', async () => {
      // Goal: the host is as it was before the appliance had that name.
      await createVmNamespace({ ...link, name }).open()
      await command(['nft', '--file', '-'], hostTableText(hostPlan({ table: name })))
      await command(['nft', '--file', '-'], `add table arp ${name}\nadd table inet filter\n`)
      expect(await held()).toEqual({
        tables: [`table arp ${name}`, 'table inet filter', `table inet ${name}`],
        hasNamespace: true,
        hasLink: true,
        hasRules: true,
      })
      const nothing = { tables: ['table inet filter'], hasNamespace: false, hasLink: false, hasRules: false }
      await removeFormer({ table: name, tapPrefix: link.tapPrefix }, silentLogger)
      expect(await held()).toEqual(nothing)
      // A start that was killed before it stored the new names repeats it.
      await removeFormer({ table: name, tapPrefix: link.tapPrefix }, silentLogger)
      expect(await held()).toEqual(nothing)
    })
  },
  { timeoutMs },
)
