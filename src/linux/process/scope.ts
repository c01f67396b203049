// Commands in a scope of systemd's. Effects: looks whether systemd runs this machine.

import { existsSync } from 'node:fs'

/** Whether systemd runs this machine (sd_booted(3)). */
export function isUnderSystemd(): boolean {
  return existsSync('/run/systemd/system')
}

/**
 * systemd-run in scope mode execs the command in its own place: same pid, same descriptors (systemd-run(1), --scope).
 * Without a name systemd makes one. Properties are those of systemd.resource-control(5).
 */
export function scopeArgv(argv: readonly string[], name: string | null, properties: readonly string[] = []): string[] {
  return [
    ...['systemd-run', '--scope', '--quiet', '--collect'],
    ...(name === null ? [] : [`--unit=${name}`]),
    ...properties.map(property => `--property=${property}`),
    ...['--', ...argv],
  ]
}
