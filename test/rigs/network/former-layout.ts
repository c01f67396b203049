// This host's network as earlier releases left it: the tap of the one VM beside everything else, and no namespace of
// VMs. Effects: those of ip and nft in this network namespace; ends the one of VMs. Use inside `inOwnNetns`.

import { insideVms } from '../../../scripts/rigs/inside.ts'

/** Standard output of a command that must succeed. */
export function output(argv: readonly string[], stdin = ''): string {
  const { stdout, stderr, exitCode } = Bun.spawnSync([...argv], { stdin: Buffer.from(stdin) })
  if (exitCode !== 0) throw new Error(`${argv.join(' ')}: ${stderr.toString()}`)
  return stdout.toString()
}

/** Bytes that count against the cap of the VM with this tap. */
export function usedBytes(tap: string): number {
  const quota = output(insideVms(['nft', 'list', 'quota', 'inet', 'strongroom', tap]))
  return Number(/ used (\d+) bytes/.exec(quota)?.[1] ?? Number.NaN)
}

/** Puts the VM's tap back to where earlier releases had it, with its count, which is returned. */
export function formerLayout(tap: string, address: string): number {
  const used = usedBytes(tap)
  output(insideVms(['ip', 'link', 'set', 'dev', tap, 'netns', `${process.pid}`]))
  output(['ip', 'netns', 'delete', 'strongroom'])
  output(
    ['ip', '-batch', '-'],
    [
      `link set dev ${tap} up`,
      `address replace 169.254.88.1/32 dev ${tap} scope link`,
      `route replace ${address}/32 dev ${tap} src 169.254.88.1`,
    ].join('\n'),
  )
  output(
    ['nft', '--file', '-'],
    [
      'flush ruleset',
      'add table inet strongroom',
      `add quota inet strongroom ${tap} { over 5368709120 bytes used ${used} bytes; }`,
      `add quota inet strongroom ${tap}_rescue { over 268435456 bytes used 0 bytes; }`,
      'add chain inet strongroom entry { type filter hook prerouting priority -450; policy accept; }',
      `add rule inet strongroom entry iifname "${tap}" quota name "${tap}" drop`,
      'add table inet strongroom_guard',
    ].join('\n'),
  )
  return used
}
