// The link between this host and the network namespace of VMs: names of its ends, from `network.tap_prefix`, and marks
// of packets. Pure.

export type LinkNames = {
  /** This host's end. */
  readonly host: string
  /** The end inside. */
  readonly inside: string
}

/** Bit of a packet's mark: it answers this host itself. Marks do not come over from another namespace. */
export const answerMark = 0x0800_0000

/** Bit of a packet's mark in the namespace of VMs: the table there has seen it, and decides about it. */
export const filteredMark = 0x0400_0000

/** No tap has such a name: the prefix is followed by hexadecimal digits there. */
export function linkNames(tapPrefix: string): LinkNames {
  return { host: `${tapPrefix}-vms`, inside: `${tapPrefix}-host` }
}
