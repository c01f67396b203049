// The routing of running VMs on the way back to an earlier build. Effects: routing rules in the namespace of VMs.

import { messageOf } from '../base/fault.ts'
import type { LoadedConfig } from '../config/load.ts'
import { openRouting } from '../host/network/vm-namespace.ts'

/**
 * Opens the routing of VMs, because an earlier build's table may not mark their packets. The current build closes it
 * again once its own table is there. A failure is reported with the remedy, because it must not stop the way back.
 * Never rejects.
 */
export async function openVmRouting(
  load: () => LoadedConfig | Promise<LoadedConfig>,
  say: (text: string) => void | Promise<void>,
): Promise<void> {
  try {
    const { config } = await load()
    await openRouting(config.network.table)
  } catch (error) {
    await say(
      `the routing of VMs was not opened (${messageOf(error)}): if running VMs reach nothing, see "Go back after acceptance" in strongroom help upgrade`,
    )
  }
}
