// Names of network namespaces (ip-netns(8)) that a command has to itself. Pure.

/** `$1` names the namespace that the command is in. */
const script = `mount -t tmpfs tmpfs /run/netns
  touch "/run/netns/$1"
  mount --bind /proc/self/ns/net "/run/netns/$1"
  shift
  exec "$@"`

/**
 * The command, for `ip netns exec NAME`: namespaces that it names, as an appliance does, have names there alone, and go
 * with its last process. It sees those of this host no more, such as an installed appliance's.
 */
export function withOwnNames(name: string, argv: readonly string[]): string[] {
  return ['sh', '-euc', script, 'sh', name, ...argv]
}
