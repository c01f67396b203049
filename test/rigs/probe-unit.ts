// Commands under the settings of strongroom.service: a unit with the same lines and a script in the daemon's place.
// Effects: files and a unit in a booted Debian.

import { readFileSync, writeFileSync } from 'node:fs'
import { until } from '../../scripts/rigs/until.ts'
import type { SystemdAppliance } from './systemd-appliance.ts'

/** `NAME: works` or `NAME: refused` for each command, in their order. */
export async function likeTheDaemon(
  { debian, systemctl }: SystemdAppliance,
  commands: Readonly<Record<string, string>>,
): Promise<string[]> {
  const text = readFileSync(`${debian.root}/etc/systemd/system/strongroom.service`, 'utf8')
  const own = /^(?:Exec\w+|Type|Restart\w*|StateDirectory\w*|ConfigurationDirectory|Requires|Wants|After)=.*\n/gm
  const unit = text.replace(own, '').replace('[Service]', '[Service]\nType=oneshot\nExecStart=/bin/sh /etc/probe.sh')
  writeFileSync(`${debian.root}/etc/systemd/system/probe.service`, unit)
  const lines = Object.entries(commands).map(
    ([name, command]) =>
      `if ${command} 2> /dev/null > /dev/null; then echo '${name}: works'; else echo '${name}: refused'; fi\n`,
  )
  writeFileSync(`${debian.root}/etc/probe.sh`, lines.join(''))
  await systemctl('daemon-reload')
  await systemctl('start', 'probe.service')
  const said = (): string[] => debian.journal('probe.service').match(/^[\w ]+: (?:works|refused)$/gm) ?? []
  // The journal takes lines in its own time.
  await until('each command has its line', 60_000, () => said().length >= lines.length)
  return said()
}
