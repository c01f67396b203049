// DNS queries as clients send them.

import { type Answer, encode, type RecordType } from 'dns-packet'

/** A name of an instance in the zone `agents.example`. */
export const HOST = 'abcd2345.acme.agents.example'

export type Asked = {
  name?: string
  type?: string
  id?: number
  flags?: number
  class?: string
  edns?: { size?: number; version?: number; flags?: number; count?: number }
}

export function query({ name = HOST, type = 'A', id = 7, flags = 0x0100, edns, ...rest }: Asked): Buffer {
  const option = edns && {
    type: 'OPT' as const,
    name: '.',
    udpPayloadSize: edns.size ?? 1232,
    extendedRcode: 0,
    ednsVersion: edns.version ?? 0,
    flags: edns.flags ?? 0,
    flag_do: false,
    options: [],
  }
  const additionals: Answer[] = option === undefined ? [] : Array.from({ length: edns?.count ?? 1 }, () => option)
  const packet = encode({
    type: 'query',
    id,
    flags,
    questions: [{ name, type: type as RecordType, class: (rest.class ?? 'IN') as 'IN' }],
    additionals,
  })
  return packet
}
