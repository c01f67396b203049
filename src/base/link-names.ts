// The link between this host and the network namespace of VMs: names of its ends, from `network.tap_prefix`, and a mark
// of packets that come by it. Pure.

export type LinkNames = {
  /** This host's end. */
  readonly host: string
  /** The end inside. */
  readonly inside: string
}

/** Bit of a packet's mark: it answers this host itself. Marks do not come over from another namespace. */
export const answerMark = 0x0800_0000

/** No tap has such a name: the prefix is followed by hexadecimal digits there. */
export function linkNames(tapPrefix: string): LinkNames {
  return { host: `${tapPrefix}-vms`, inside: `${tapPrefix}-host` }
}
