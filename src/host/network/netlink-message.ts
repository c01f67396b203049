// Parses netlink messages (netlink(7), include/uapi/linux/netlink.h) and nftables events in them
// (include/uapi/linux/netfilter/nf_tables.h). Pure. Numbers are in the machine's byte order, little-endian on every
// platform we support.

/** Fields of a message's header; [offset, size]. */
export const HEADER = { length: [0, 4], type: [4, 2], port: [12, 4] } as const satisfies Record<
  string,
  readonly [offset: number, sizeBytes: number]
>
export const headerBytes = 16
/** struct nfgenmsg: family, version, resource. */
export const nfgenmsgBytes = 4

export type NetlinkMessage = {
  readonly type: number
  /** Port id of the socket whose request caused it; 0 for the kernel. */
  readonly port: number
  readonly payload: Uint8Array
}

/** Returns the messages of one read. An incomplete message ends the list. */
export function readMessages(bytes: Uint8Array): NetlinkMessage[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const messages: NetlinkMessage[] = []
  let at = 0
  while (at + headerBytes <= bytes.length) {
    const length = view.getUint32(at + HEADER.length[0], true)
    if (length < headerBytes || at + length > bytes.length) break
    messages.push({
      type: view.getUint16(at + HEADER.type[0], true),
      port: view.getUint32(at + HEADER.port[0], true),
      payload: bytes.subarray(at + headerBytes, at + length),
    })
    at += aligned(length)
  }
  return messages
}

/** `change`: an object of this table, or the table itself, changed. `generation`: the transaction is complete. */
export type NftEvent =
  | { readonly kind: 'change'; readonly family: number; readonly table: string }
  | { readonly kind: 'generation' }

/** Families of tables (NFPROTO_). */
export const NFT_FAMILIES = { inet: 1, arp: 3 } as const satisfies Record<string, number>

export const NFT = { subsystem: 10, newGeneration: 15, nameAttribute: 1 } as const satisfies Record<string, number>

/** Returns the event; null if no program made the change, such as a quota that packets have used up. */
export function nftEvent({ type, port, payload }: NetlinkMessage): NftEvent | null {
  if (type >>> 8 !== NFT.subsystem || port === 0) return null
  if ((type & 0xff) === NFT.newGeneration) return { kind: 'generation' }
  // The first attribute of every object names its table.
  const name = attribute(payload.subarray(nfgenmsgBytes), NFT.nameAttribute)
  return name === null ? null : { kind: 'change', family: payload[0] ?? 0, table: text(name) }
}

/** Finds an attribute (struct nlattr): length and type, two bytes each; the upper two bits of the type are flags. */
function attribute(bytes: Uint8Array, wanted: number): Uint8Array | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let at = 0
  while (at + attributeHeaderBytes <= bytes.length) {
    const length = view.getUint16(at, true)
    if (length < attributeHeaderBytes || at + length > bytes.length) return null
    if ((view.getUint16(at + 2, true) & 0x3fff) === wanted)
      return bytes.subarray(at + attributeHeaderBytes, at + length)
    at += aligned(length)
  }
  return null
}

export const attributeHeaderBytes = 4

/** Decodes a text, without the final NUL. */
function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0)
  return Buffer.from(end < 0 ? bytes : bytes.subarray(0, end)).toString('latin1')
}

function aligned(length: number): number {
  return (length + 3) & ~3
}
