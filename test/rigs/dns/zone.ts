// A zone with a few names, and what one message to it gets, apart from rates.

import { type Answer, decode } from 'dns-packet'
import { v4Bytes, v6Bytes } from '../../../src/instances/dns/address.plan.ts'
import { readQuery, writeResponse } from '../../../src/instances/dns/message.codec.ts'
import { answerQuery, type NameRecords, type Zone } from '../../../src/instances/dns/zone.plan.ts'

export const zone: Zone = {
  domain: 'agents.example',
  hosts: new Set(['ns', 'instances', 'inference']),
  serial: 1_800_000_000,
  publishes: false,
  texts: new Map([['_acme-challenge.instances', ['first', 'second', 'third']]]),
}

export const fingerprint = Uint8Array.from({ length: 32 }, (_, at) => 0xe0 + at)

const at = (v4: string | null, v6: string | null = null, key: Uint8Array | null = null): NameRecords => ({
  v4: v4 === null ? null : v4Bytes(v4),
  v6: v6 === null ? null : v6Bytes(v6),
  fingerprint: key,
})
const NAMES = new Map([
  ['abcd2345.acme', at('10.88.0.7', null, fingerprint)],
  ['booting2.acme', at('10.88.0.8')],
  ['dual2345.acme', at('10.88.0.9', '2001:db8::9')],
  ['sixo2345.acme', at(null, '2001:db8::a')],
  ['ns', at('192.0.2.1', '2001:db8::1')],
  ['inference', at('192.0.2.2')],
])

export const resolve = (name: string) => NAMES.get(name) ?? null

/** Null for nothing. */
export function ask(message: Uint8Array, change: { zone?: Zone; resolve?: typeof resolve } = {}): Buffer | null {
  const read = readQuery(message)
  if (read.kind === 'ignored') return null
  if (read.kind === 'refused') return Buffer.from(read.response)
  const reply = answerQuery(read.query, change.zone ?? zone, change.resolve ?? resolve)
  return Buffer.from(writeResponse(read.query, reply, null))
}

export type Seen = { rcode: string; aa: boolean; answers: string[]; authorities: string[] }

/** As an independent parser reads it. */
export function seen(answer: Buffer | null): Seen {
  if (answer === null) throw new Error('no answer')
  const packet = decode(answer)
  const text = (record: Answer) => {
    const data = 'data' in record ? record.data : ''
    const words = record.type === 'TXT' ? [record.data].flat().map(String).join('') : data
    const value = record.type === 'SSHFP' ? Object.values(record.data).join(' ') : words
    return `${record.name} ${record.type} ${typeof value === 'string' ? value : ''}`.trim()
  }
  return {
    rcode: String(Reflect.get(packet, 'rcode')),
    aa: packet.flag_aa,
    answers: (packet.answers ?? []).map(text),
    authorities: (packet.authorities ?? []).map(text),
  }
}
